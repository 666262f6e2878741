"""The state of a table, moved forward commit by commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.offset_store.log.actions import Actions, Metadata, Protocol
from sparkonce.offset_store.log.state import (
    IN_COMMIT_TIMESTAMPS,
    NEWS_KINDS,
    ROW_TRACKING_DOMAIN,
    STATE_KINDS,
    LogError,
    TableState,
    first_state,
)
from tests.chance import examples

NAMES = st.sampled_from(("a", "b", "c"))
PROTOCOLS = st.builds(
    lambda features: {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": sorted(features)},
    st.frozensets(NAMES),
)


def _metadata(name: str, timed: bool) -> dict[str, Any]:
    configuration = {IN_COMMIT_TIMESTAMPS: "true"} if timed else {}
    return {"id": name, "schemaString": "{}", "partitionColumns": [], "configuration": configuration}


METADATA = st.builds(_metadata, NAMES, st.booleans())
TXNS = st.builds(lambda name, to: {"appId": name, "version": to}, NAMES, st.integers(-9, 9))
DOMAINS = st.builds(
    lambda name, text, gone: {"domain": name, "configuration": text, "removed": gone}, NAMES, NAMES, st.booleans()
)


def commits(first: bool = False) -> st.SearchStrategy[Actions]:
    """Return commits as the protocol allows them: each identifier and domain once."""
    once = 1 if first else 0
    return st.fixed_dictionaries(
        {
            "commitInfo": st.lists(st.just({"operation": "WRITE"}), min_size=1, max_size=1),
            "protocol": st.lists(PROTOCOLS, min_size=once, max_size=1),
            "metaData": st.lists(METADATA, min_size=once, max_size=1),
            "txn": st.lists(TXNS, max_size=3, unique_by=lambda txn: txn["appId"]),
            "domainMetadata": st.lists(DOMAINS, max_size=3, unique_by=lambda each: each["domain"]),
            "add": st.just([]),
            "remove": st.just([]),
        }
    )


def logs() -> st.SearchStrategy[list[Actions]]:
    """Return logs; each commit has the in-commit timestamp of its version, whether the table has them or not."""
    drawn = st.tuples(commits(first=True), st.lists(commits(), max_size=5))
    return drawn.map(lambda log: [_timed(each, number) for number, each in enumerate([log[0], *log[1]])])


def _timed(actions: Actions, version: int) -> Actions:
    return {**actions, "commitInfo": [{**actions["commitInfo"][0], "inCommitTimestamp": 1000 + version}]}


def folded(state: TableState, log: Sequence[Actions]) -> TableState:
    for actions in log:
        state = state.after(actions)
    return state


def replayed(log: Sequence[Actions]) -> TableState:
    """Reconcile all commits at once, newest first, as PROTOCOL.md's "Action Reconciliation" puts it."""
    newest = list(reversed(log))
    protocol = next(each["protocol"][0] for each in newest if each["protocol"])
    metadata = Metadata.of(next(each["metaData"][0] for each in newest if each["metaData"]))
    transactions: dict[str, int] = {}
    domains: dict[str, Any] = {}
    for actions in newest:
        for txn in actions["txn"]:
            transactions.setdefault(txn["appId"], txn["version"])
        for each in actions["domainMetadata"]:
            domains.setdefault(each["domain"], each)
    kept = {name: each["configuration"] for name, each in domains.items() if not each["removed"]}
    timestamp = 1000 + len(log) - 1 if metadata.is_on(IN_COMMIT_TIMESTAMPS) else None
    return TableState(len(log) - 1, Protocol.of(protocol), metadata, transactions, kept, timestamp)


def checkpoint(state: TableState, log: Sequence[Actions]) -> Actions:
    """Return what a checkpoint of the state has, from the actions themselves."""
    newest = list(reversed(log))
    return {
        "protocol": [next(each["protocol"][0] for each in newest if each["protocol"])],
        "metaData": [next(each["metaData"][0] for each in newest if each["metaData"])],
        "txn": [{"appId": name, "version": to} for name, to in state.transactions.items()],
        "domainMetadata": [
            {"domain": name, "configuration": text, "removed": False} for name, text in state.domains.items()
        ],
    }


@settings(max_examples=examples(25))
@given(logs())
def test_a_state_moved_forward_is_that_of_a_replay(log: list[Actions]) -> None:
    assert folded(first_state(0, log[0]), log[1:]) == replayed(log)


@settings(max_examples=examples(25))
@given(logs(), st.data())
def test_a_checkpoint_stands_for_all_before_it(log: list[Actions], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(log) - 1))
    whole = folded(first_state(0, log[0]), log[1:])
    state = folded(first_state(0, log[0]), log[1 : at + 1])
    loaded = folded(first_state(at, checkpoint(state, log[: at + 1])), log[at + 1 :])
    if at < len(log) - 1:
        assert loaded == whole
    else:  # a checkpoint has no in-commit timestamp
        assert (loaded.transactions, loaded.domains, loaded.metadata) == (
            whole.transactions,
            whole.domains,
            whole.metadata,
        )


@settings(max_examples=examples(15))
@given(logs(), commits())
def test_an_older_state_does_not_change(log: list[Actions], more: Actions) -> None:
    state = folded(first_state(0, log[0]), log[1:])
    before = dict(state.transactions), dict(state.domains), state.protocol, state.metadata
    state.after(more)
    assert (dict(state.transactions), dict(state.domains), state.protocol, state.metadata) == before


def plain(**configuration: str) -> TableState:
    metadata = _metadata("a", False) | {"configuration": configuration}
    actions: dict[str, list] = {kind: [] for kind in NEWS_KINDS}
    return first_state(
        0, actions | {"protocol": [{"minReaderVersion": 1, "minWriterVersion": 2}], "metaData": [metadata]}
    )


ANY_JSON = st.sampled_from((None, True, 7, "7", "x", [], ["x"], [1, 2], {}, {"x": "y"}, {"x": None}, 1.5))
FIELDS = (
    *("appId", "version", "domain", "configuration", "removed", "minReaderVersion", "minWriterVersion"),
    *("writerFeatures", "readerFeatures", "id", "schemaString", "partitionColumns", "inCommitTimestamp"),
)


@settings(max_examples=examples(40))
@given(
    st.fixed_dictionaries(
        {
            kind: st.lists(st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=4), max_size=2)
            for kind in (*STATE_KINDS, "commitInfo")
        }
    )
)
def test_what_breaks_the_protocol_is_one_kind_of_error(actions: Actions) -> None:
    for state in (plain(), plain(**{IN_COMMIT_TIMESTAMPS: "true"})):
        with suppress(LogError):
            assert state.after(actions).version == 1


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_first_commit_without_either_is_refused(missing: str) -> None:
    state = plain()
    actions: dict[str, list] = {
        "protocol": [{"minReaderVersion": 1, "minWriterVersion": 2}],
        "metaData": [state.metadata.action],
        "txn": [],
        "domainMetadata": [],
    }
    with pytest.raises(LogError, match="has no"):
        first_state(0, {**actions, missing: []})


@pytest.mark.parametrize(("configuration", "expected"), [(None, 0), ({"rowIdHighWaterMark": -1}, 0), (9, None)])
def test_the_next_row_id(configuration: Any, expected: int | None) -> None:
    state = plain()
    if configuration is not None:
        text = json.dumps(configuration)
        moved = {"domain": ROW_TRACKING_DOMAIN, "configuration": text, "removed": False}
        actions: dict[str, list] = {kind: [] for kind in NEWS_KINDS}
        state = state.after({**actions, "domainMetadata": [moved]})
    if expected is None:
        with pytest.raises(LogError, match="domainMetadata"):
            _ = state.next_row_id
    else:
        assert state.next_row_id == expected
