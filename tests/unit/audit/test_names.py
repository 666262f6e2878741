"""Two names for one table, in logs that the sink did not check, or in which the user said that it is meant."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.exactly_once.audit import Report
from sparkonce.exactly_once.audit_findings import Finding, Problem
from sparkonce.offset_store.commit_log import LogCommit, StoredState
from sparkonce.offset_store.record import BatchCounts, Writes
from sparkonce.offset_store.txn_ids import BEGINS_LATE, COVERED_TWICE, FIRST_TXN_ID, meant_txn_id, offset_txn_id
from tests.cases import each_case
from tests.chance import examples
from tests.unit.audit.logs import APP, BOTH, audit, committed, key, partition, record, state_of

OTHER = "other"


def chain(
    app: str,
    start: int,
    *ends: int,
    first_batch: int = 0,
    topic_id: str = partition(0).topic_id,
    counts: BatchCounts | None = None,
    writes: Writes = BOTH,
) -> list[LogCommit]:
    """A chain of one application, a batch for each end; its versions are set by `in_order`."""
    found, where = [], (key(0)[0], partition(0, topic_id))
    for batch_id, end in enumerate(ends, first_batch):
        batch = replace(record(batch_id, {where: (start, end)}, app_id=app, query_id=f"query of {app}"), counts=counts)
        found.append(committed(0, batch, writes))
        start = end
    return found


def in_order(commits: Sequence[LogCommit]) -> list[LogCommit]:
    made = []
    for version, commit in enumerate(commits):
        batch = commit.entry.batch
        assert batch is not None
        entry = replace(commit.entry, version=version, batch=replace(batch, version=version))
        made.append(replace(commit, entry=entry))
    return made


def saying(commit: LogCommit, *txn_ids: str) -> LogCommit:
    return replace(commit, transactions={**commit.transactions, **dict.fromkeys(txn_ids, 1)})


def truncated(commits: Sequence[LogCommit], read_to: int) -> list[LogCommit]:
    """The log was truncated to where the first batch begins, after it had been read up to ``read_to``."""
    first = commits[0].entry.batch
    assert first is not None
    ranges = {each: replace(extent, cut_from=read_to) for each, extent in first.record.ranges.items()}
    batch = replace(first, record=replace(first.record, ranges=ranges))
    return [replace(commits[0], entry=replace(commits[0].entry, batch=batch)), *commits[1:]]


def of(report: Report, problem: Problem) -> list[Finding]:
    return [finding for finding in report.findings if finding.problem is problem]


spans = st.lists(st.integers(0, 12), min_size=2, max_size=5, unique=True).map(sorted)


@settings(max_examples=examples(200), deadline=None)
@given(spans, spans, st.booleans(), st.randoms(use_true_random=False))
def test_records_of_two_names_are_found_as_by_counting_them(
    mine: list[int], theirs: list[int], same_topic: bool, some: random.Random
) -> None:
    one = chain(APP, *mine)
    other = chain(OTHER, *theirs, topic_id=partition(0).topic_id if same_topic else "B" * 22)
    commits: list[LogCommit] = []
    while one or other:
        commits.append((one if one and (not other or some.random() < 0.5) else other).pop(0))
    commits = in_order(commits)
    twice = set(range(mine[0], mine[-1])) & set(range(theirs[0], theirs[-1])) if same_topic else set[int]()
    report = audit(commits)
    assert report.proven is not bool(twice)
    for finding in of(report, Problem.COVERED_TWICE):
        assert f"[{min(twice)}, {max(twice) + 1}) too" in finding.message
    meant = [saying(commits[0], meant_txn_id(OTHER, COVERED_TWICE)), *commits[1:]]
    assert audit(meant).proven


LETTERS, ROWS = BatchCounts(dead_letters=3, files=1), BatchCounts(rows=3, files=1)
SHARED: list[tuple[str, list[LogCommit], bool]] = [
    ("rows", chain(APP, 0, 5, counts=ROWS) + chain(OTHER, 0, 5, counts=ROWS), True),
    ("dead letters", chain(APP, 0, 5, counts=LETTERS) + chain(OTHER, 0, 5, counts=LETTERS), False),
    ("offsets", chain(APP, 0, 5, writes=Writes.OFFSETS) + chain(OTHER, 0, 5, writes=Writes.OFFSETS), False),
    ("one name, two topics", chain(APP, 0, 5) + chain(OTHER, 0, 5, topic_id="B" * 22), False),
    ("handed over", chain(APP, 0, 5) + chain(OTHER, 5, 9), False),
]


@each_case(("commits", "is_twice"), [row[1:] for row in SHARED], ids=[row[0] for row in SHARED])
def test_only_tables_of_rows_are_judged(commits: list[LogCommit], is_twice: bool) -> None:
    assert bool(of(audit(in_order(commits)), Problem.COVERED_TWICE)) is is_twice


def of_sources(queries: Sequence[tuple[str, str]]) -> list[LogCommit]:
    """Batches of one application over the same records: for each, the query and the name of its source."""
    return in_order(
        [committed(0, record(0, {key(0, source): (0, 5)}, query_id=query), BOTH) for query, source in queries]
    )


SOURCES: list[tuple[str, list[LogCommit], bool]] = [
    ("renamed, with a new checkpoint", of_sources([("one", "default"), ("two", "renamed")]), True),
    ("a self-union", [committed(0, record(0, {key(0): (0, 5), key(0, "second"): (0, 5)}))], False),
    ("both of one query, in turn", of_sources([("one", "default"), ("one", "second")]), False),
]  # fmt: skip


@each_case(("commits", "is_twice"), [row[1:] for row in SOURCES], ids=[row[0] for row in SOURCES])
def test_two_sources_of_one_name_cover_records_once_in_one_query(commits: list[LogCommit], is_twice: bool) -> None:
    report = audit(commits)
    assert bool(of(report, Problem.COVERED_TWICE)) is is_twice
    meant = [saying(commits[0], meant_txn_id(APP, COVERED_TWICE)), *commits[1:]]
    assert not of(audit(meant), Problem.COVERED_TWICE)


def test_a_name_whose_commits_are_no_longer_kept_is_known_by_its_checkpoint() -> None:
    commits = in_order(chain(APP, 0, 5) + chain(OTHER, 0, 3, 9))
    kept = StoredState(0, state_of(commits[:1]))
    (found,) = of(audit(commits[1:], kept), Problem.COVERED_TWICE)
    assert "[4, 5) too" in found.message
    assert audit(in_order(chain(APP, 0, 5) + chain(OTHER, 5, 9))[1:], kept).proven


BEGINNINGS: list[tuple[str, list[LogCommit], bool]] = [
    ("from the start", chain(APP, 0, 5), False),
    ("at the newest records, behind an empty batch 0", chain(APP, 5, 9, first_batch=1), False),
    ("the checkpoint of another table", chain(APP, 5, 9, 12, first_batch=2), True),
    ("a new topic of an old query", chain(APP, 0, 5, first_batch=2), False),
    ("of dead letters", chain(APP, 5, 9, first_batch=2, counts=LETTERS), False),
    ("of offsets", chain(APP, 5, 9, first_batch=2, writes=Writes.OFFSETS), False),
    ("under another name before", chain(OTHER, 0, 5) + chain(APP, 5, 9, first_batch=2), False),
    ("under another name, with a gap", chain(OTHER, 0, 4) + chain(APP, 5, 9, first_batch=2), True),
    ("checked by the sink", [saying(chain(APP, 5, 9, first_batch=2)[0], FIRST_TXN_ID)], False),
    ("meant", [saying(chain(APP, 5, 9, first_batch=2)[0], meant_txn_id(APP, BEGINS_LATE))], False),
    ("meant by another", [saying(chain(APP, 5, 9, first_batch=2)[0], meant_txn_id(OTHER, BEGINS_LATE))], True),
]  # fmt: skip


@each_case(("commits", "is_late"), [row[1:] for row in BEGINNINGS], ids=[row[0] for row in BEGINNINGS])
def test_a_chain_whose_beginning_is_elsewhere_is_named(commits: list[LogCommit], is_late: bool) -> None:
    report = audit(in_order(commits))
    assert [finding.commit is not None for finding in of(report, Problem.BEGINS_LATE)] == [True] * is_late
    assert report.proven is not is_late


def test_a_chain_behind_a_truncated_log_begins_where_it_had_been_read_to() -> None:
    after = truncated(chain(APP, 5, 9, first_batch=2), 7)
    assert not of(audit(in_order(chain(OTHER, 0, 7) + after)), Problem.BEGINS_LATE)
    assert of(audit(in_order(chain(OTHER, 0, 5) + after)), Problem.BEGINS_LATE)


def test_what_was_before_the_kept_commits_is_not_known_to_begin_late() -> None:
    commits = in_order(chain(OTHER, 0, 5) + chain(APP, 5, 9, 12, first_batch=2))
    stored = {offset_txn_id(APP, *key(0)): 9}
    assert audit(commits[2:], StoredState(1, {**state_of(commits[:1]), **stored})).proven
