"""Decisions as text, their keys, and how one follows or takes back another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.connectors.kafka_sink.transactions import transactional_prefix
from sparkonce.exactly_once.transactions import (
    KEPT_QUERIES,
    Decision,
    DecisionFormatError,
    PreparedTransaction,
    app_of_key,
    decision_key,
    finished_key,
    following,
    ranges_text,
)
from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Writes
from tests.cases import each_case

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(0, 2**63 - 1)
partitions = st.builds(TopicPartition, names, names, st.integers(0, 9999))
moved = st.builds(lambda start, size: OffsetRange(start, start + size), numbers, st.integers(1, 10**9))


keys = st.tuples(names, st.builds(TopicPartition, names, st.just("id"), st.integers(0, 9999)))
"""A batch has one topic of a name for each source."""
fingerprints = st.integers(0, 2**63 - 1).map(Fingerprint.from_int)
ranges = st.dictionaries(keys, moved, max_size=3)
batch_records = st.builds(BatchRecord, names, names, numbers, names, ranges, st.none() | fingerprints)
prepared = st.builds(PreparedTransaction, names, numbers, st.integers(0, 2**15 - 1), numbers)
decisions = st.builds(
    Decision,
    number=st.integers(1, 2**31),
    record=batch_records,
    transactions=st.lists(prepared, max_size=3).map(tuple),
    queries=st.dictionaries(names, numbers, max_size=3),
    group_id=names,
    at_ms=numbers,
    offsets=st.dictionaries(st.tuples(names, partitions), numbers, max_size=3),
    before=st.none() | numbers,
    fingerprints=st.dictionaries(names, st.dictionaries(numbers, fingerprints, max_size=3), max_size=3),
    undone=st.booleans(),
    topics=st.lists(names, max_size=2).map(tuple),
)


@given(decisions)
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    assert Decision.from_json(decision.to_json()) == decision


def test_every_part_of_a_decision_is_needed() -> None:
    document = json.loads(following(None, record("q", 7), TRANSACTIONS, "g", 99).to_json())
    for newer in ("fingerprints", "topics"):  # older decisions have none
        document.pop(newer)
    for name in document:
        without = {key: value for key, value in document.items() if key != name}
        with pytest.raises(DecisionFormatError):
            Decision.from_json(json.dumps(without))


@each_case("text", ["", "null", "[]", "1", '"x"', "{}", "{", '{"sparkonce":1}', '{"sparkonce":[]}'])
def test_other_texts_are_refused_with_a_quote(text: str) -> None:
    with pytest.raises(DecisionFormatError):
        Decision.from_json(text)


def test_a_newer_format_is_told() -> None:
    with pytest.raises(DecisionFormatError, match="format 2; this version of sparkonce reads 1"):
        Decision.from_json('{"sparkonce":2}')


apps = names | st.sampled_from(["", "/", "%", "a/finished", "%2F", "..", " ", "driver", "ü", "a//b", "sparkonce/x"])


@given(apps, apps)
def test_keys_tell_applications_apart(one: str, other: str) -> None:
    assert app_of_key(decision_key(one)) == (one, False)
    assert app_of_key(finished_key(one)) == (one, True)
    if one != other:
        keys = {decision_key(one), finished_key(one), decision_key(other), finished_key(other)}
        assert len(keys) == 4
        assert not transactional_prefix(one).startswith(transactional_prefix(other))


@each_case("key", [None, b"", b"x", b"sparkonce", b"other/app", b"sparkonce/a/b", b"sparkonce/a/finished/x"])
def test_keys_of_others(key: bytes | None) -> None:
    assert app_of_key(key) is None


KEY = ("s", TopicPartition("t", "id", 0))


def record(query_id: str, batch_id: int) -> BatchRecord:
    ranges = {KEY: OffsetRange(batch_id, batch_id + 1)}
    return BatchRecord("app", query_id, batch_id, f"{query_id}-{batch_id}", ranges)


TRANSACTIONS = (PreparedTransaction("x", 1, 2, 3), PreparedTransaction("y", 4, 5, 6))


def test_the_first_decision() -> None:
    first = following(None, record("q", 7), TRANSACTIONS, "g", 99)
    assert first == Decision(1, record("q", 7), TRANSACTIONS, {"q": 7}, "g", 99, {KEY: 8})
    assert first.rows == 9
    committed = first.as_committed()
    assert (committed.version, committed.timestamp_ms, committed.record) == (1, 99, record("q", 7))
    assert committed.writes == Writes.ROWS | Writes.OFFSETS


def test_what_follows_knows_the_other_queries() -> None:
    last = following(None, record("q", 0), (), "g", 0)
    last = following(last, record("r", 5), (), "g", 0)
    last = following(last, record("q", 1), (), "g", 0)
    assert (last.number, last.before, dict(last.queries)) == (3, 0, {"r": 5, "q": 1})


def test_taking_back_leaves_everything_as_it_was() -> None:
    before = following(following(None, record("r", 5), (), "g", 0), record("q", 0), (), "g", 0)
    decided = following(before, record("q", 1), TRANSACTIONS, "g", 1)
    undone = decided.undoing(2)
    assert (undone.number, undone.transactions, undone.undone, undone.at_ms) == (4, (), True, 2)
    assert (dict(undone.queries), undone.offsets) == (dict(before.queries), before.offsets)
    again = following(undone, record("q", 1), TRANSACTIONS, "g", 3)
    assert again == replace(decided, number=5, at_ms=3)


def test_the_last_batches_of_a_query_are_remembered() -> None:
    decisions = [following(None, whole("other", 4), (), "g", 0)]
    for batch_id in range(RING + 5):
        decisions.append(following(decisions[-1], whole("q", batch_id), (), "g", 0))
    last = Decision.from_json(decisions[-1].to_json())
    assert last.fingerprints["other"] == {4: whole("other", 4).fingerprint}
    assert last.fingerprints["q"] == {batch: whole("q", batch).fingerprint for batch in range(5, RING + 5)}
    undone = last.undoing(1).fingerprints
    assert undone["q"] == {batch: whole("q", batch).fingerprint for batch in range(5, RING + 4)}
    after = following(decisions[-1], whole("third", 0), (), "g", 0)
    assert after.fingerprints["q"] == {RING + 4: whole("q", RING + 4).fingerprint}


def whole(query_id: str, batch_id: int) -> BatchRecord:
    return replace(record(query_id, batch_id), fingerprint=Fingerprint.of([query_id, batch_id], []))


def test_taking_back_the_first_batch_of_a_query_forgets_the_query() -> None:
    assert dict(following(None, record("q", 0), TRANSACTIONS, "g", 0).undoing(1).queries) == {}


@given(st.lists(st.tuples(st.integers(0, 2 * KEPT_QUERIES), st.booleans()), max_size=300))
def test_the_queries_that_were_decided_last_are_kept(steps: list[tuple[int, bool]]) -> None:
    last: Decision | None = None
    expected: dict[str, int] = {}
    for batch_id, (query, is_undone) in enumerate(steps):
        last = following(last, record(f"q{query}", batch_id), (), "g", 0)
        if is_undone:
            last = last.undoing(0)
            expected = {name: batch for name, batch in expected.items() if name in last.queries or name == f"q{query}"}
        else:
            expected.pop(f"q{query}", None)
            expected[f"q{query}"] = batch_id
        assert len(last.queries) <= KEPT_QUERIES
        assert all(expected[name] == batch for name, batch in last.queries.items())


def test_ranges_in_messages() -> None:
    ranges = {("s", TopicPartition("t", "", number)): OffsetRange(1, 1 + number) for number in range(8)}
    text = ranges_text(BatchRecord("a", "q", 0, "x", ranges))
    assert text == "t-1 [1, 2), t-2 [1, 3), t-3 [1, 4), t-4 [1, 5), t-5 [1, 6) and 2 more partitions"
    assert ranges_text(BatchRecord("a", "q", 0, "x", {})) == "no records"
