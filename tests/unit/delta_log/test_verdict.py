"""Whether a commit may follow others that landed: recorded answers of delta-spark, and properties."""

from __future__ import annotations

import ast
import copy
import inspect
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.offset_store.log import verdict
from sparkonce.offset_store.log.actions import Actions
from sparkonce.offset_store.log.state import NEWS_KINDS, ROW_TRACKING_DOMAIN
from sparkonce.offset_store.log.verdict import Conflict, Touched, TransactionMoved, judge
from tests.commit_pairs import Judge, conflict_of, grouped, pairs, recorded

VERSION = 7
NAMES = st.sampled_from(("a", "b", "c", ROW_TRACKING_DOMAIN))
ANY_JSON = st.sampled_from((None, True, 7, "a", "b", ROW_TRACKING_DOMAIN, "RESTORE", [], ["a"], {}, {"a": None}))
FIELDS = ("appId", "version", "domain", "configuration", "removed", "operation", "path", "isBlindAppend")
ANY_ACTION = st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=3)
ACTION = {
    "txn": st.builds(lambda name, to: {"appId": name, "version": to}, NAMES, st.integers(0, 9)),
    "domainMetadata": st.builds(lambda name, gone: {"domain": name, "removed": gone}, NAMES, st.booleans()),
    "commitInfo": st.sampled_from(("WRITE", "RESTORE", "OPTIMIZE")).map(lambda name: {"operation": name}),
}
TOUCHED = st.builds(Touched, st.frozensets(NAMES), st.frozensets(NAMES), st.booleans())


def commits(action_of: st.SearchStrategy | None = None) -> st.SearchStrategy[Actions]:
    known = {kind: ACTION.get(kind, st.just({})) if action_of is None else action_of for kind in NEWS_KINDS}
    return st.fixed_dictionaries({kind: st.lists(each, max_size=2) for kind, each in known.items()})


@given(TOUCHED, commits(ANY_ACTION))
def test_every_commit_gets_a_verdict(touched: Touched, landed: Actions) -> None:
    conflict = judge(touched, VERSION, landed)
    assert conflict is None or (conflict.version == VERSION and str(VERSION) in str(conflict))


@given(TOUCHED, commits(), commits())
def test_more_actions_never_undo_a_conflict(touched: Touched, landed: Actions, more: Actions) -> None:
    if judge(touched, VERSION, landed) is not None:
        assert judge(touched, VERSION, {kind: [*landed[kind], *more[kind]] for kind in NEWS_KINDS}) is not None


@given(TOUCHED, TOUCHED, commits())
def test_what_depends_on_more_never_conflicts_with_less(one: Touched, other: Touched, landed: Actions) -> None:
    both = Touched(one.transactions | other.transactions, one.domains | other.domains, one.replaces or other.replaces)
    conflicts = [judge(each, VERSION, landed) for each in (one, other)]
    assert (judge(both, VERSION, landed) is None) == (conflicts == [None, None])


@given(TOUCHED, commits())
def test_a_moved_identifier_is_always_found(touched: Touched, landed: Actions) -> None:
    conflict = judge(touched, VERSION, landed)
    if any(txn["appId"] in touched.transactions for txn in landed["txn"]):
        assert conflict is not None
    if isinstance(conflict, TransactionMoved):
        assert {"appId": conflict.txn_id, "version": conflict.to} in landed["txn"]


def wrong_answers(judging: Judge) -> list[str]:
    wrong = []
    for pair, theirs, ours in recorded():
        conflict = conflict_of(pair, judging)
        found = None if conflict is None else type(conflict).__name__
        if found != ours or (theirs is not None and found is None):
            wrong.append(f"{pair}: {found}, delta-spark {theirs}")
    return wrong


def test_ours_is_nowhere_laxer_than_delta_spark() -> None:
    assert not wrong_answers(judge)
    assert Counter(ours for _, _, ours in recorded()).keys() == {
        None,
        *(each.__name__ for each in Conflict.__args__),
    }


def planted() -> Iterator[tuple[str, Judge]]:
    """Yield `judge` without each of its rules, and without each kind of action in the rules that look at two."""
    tree = ast.parse(inspect.getsource(judge)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    body = tree.body
    for rule in body:
        if isinstance(rule, ast.If | ast.For):
            yield ast.unparse(rule).splitlines()[0], _compiled(tree, [each for each in body if each is not rule])
    for kind in ("protocol", "metaData", "add", "remove"):
        yield (
            f"without {kind}",
            lambda touched, version, landed, kind=kind: judge(touched, version, {**landed, kind: []}),
        )


def _compiled(tree: ast.FunctionDef, body: list[ast.stmt]) -> Judge:
    changed = copy.copy(tree)
    changed.body = body
    namespace = dict(vars(verdict))
    exec(compile(ast.Module([changed], []), "planted", "exec"), namespace)
    return namespace["judge"]


PLANTED = dict(planted())


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_found(name: str) -> None:
    assert wrong_answers(PLANTED[name])


def test_row_ids_and_timestamps_are_no_conflict() -> None:
    touched = Touched(frozenset({"a"}), frozenset({ROW_TRACKING_DOMAIN}))
    row_ids = {"domain": ROW_TRACKING_DOMAIN, "configuration": '{"rowIdHighWaterMark":9}', "removed": False}
    landed = grouped([{"commitInfo": {"inCommitTimestamp": 5}}, {"domainMetadata": row_ids}])
    assert judge(touched, VERSION, landed) is None


def test_the_generator_draws_the_same_for_a_seed() -> None:
    assert pairs(3, 50) == pairs(3, 50)
