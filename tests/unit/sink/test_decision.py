"""The five-step comparison, case by case, and in general."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactly_once.batch import Batch
from exactly_once.decision import (
    AlreadyThere,
    Decision,
    Fresh,
    Mismatch,
    NeverStored,
    OthersUnknown,
    Replay,
    ReusedBatchId,
    StatefulRestart,
    Stored,
    decide,
)
from offset_store.offsets import OffsetRange, TopicPartition
from offset_store.record import BatchRecord, PartitionKey

A: PartitionKey = ("s", TopicPartition("t", "id", 0))
B: PartitionKey = ("s", TopicPartition("t", "id", 1))
C: PartitionKey = ("another", TopicPartition("t", "id", 0))


def batch(ranges: dict[PartitionKey, tuple[int, int]], batch_id: int = 3, stateful: bool = False) -> Batch:
    extents = {key: OffsetRange(*pair) for key, pair in ranges.items()}
    return Batch(BatchRecord("app", "q", batch_id, "attempt", extents), stateful)


def stored(offsets: dict[PartitionKey, int], last: int | None = None) -> Stored:
    return Stored(9, last, offsets)


def skipping(extent: tuple[int, int]) -> NeverStored:
    return NeverStored(B, OffsetRange(*extent))


def mismatch(at: int, query_is_known: bool) -> Mismatch:
    return Mismatch(A, at, OffsetRange(5, 9), query_is_known)


TABLE: list[tuple[str, Stored, Batch, Decision]] = [
    ("an empty store", stored({}), batch({A: (0, 5)}), Fresh()),
    ("the next batch", stored({A: 5, B: 7}, 2), batch({A: (5, 9), B: (7, 8)}), Fresh()),
    ("a new checkpoint that begins where the old ended", stored({A: 5}), batch({A: (5, 9)}, 0), Fresh()),
    ("a partition that is new", stored({A: 5}, 2), batch({A: (5, 9), B: (0, 4)}), Fresh()),
    ("a batch without new records, after a watermark", stored({A: 5}, 2), batch({A: (5, 5)}), Fresh()),
    ("a partition that does not move is not compared", stored({A: 5, B: 9}, 2), batch({A: (5, 6), B: (7, 7)}), Fresh()),
    ("no source of ours", stored({}, 2), batch({}), Fresh()),
    ("the same batch again", stored({A: 9}, 3), batch({A: (5, 9)}), Replay(3)),
    ("its number again, for more", stored({A: 9}, 3), batch({A: (5, 10)}), ReusedBatchId(A, 9, OffsetRange(5, 10), 3)),
    ("an old number again, far on", stored({A: 4}, 8), batch({A: (5, 9)}), ReusedBatchId(A, 4, OffsetRange(5, 9), 8)),
    ("an old number, a new topic", stored({A: 9}, 3), batch({B: (0, 4)}), ReusedBatchId(B, None, OffsetRange(0, 4), 3)),
    ("an older batch again", stored({A: 9}, 8), batch({A: (5, 9)}), Replay(8)),
    ("the same batch of no source of ours", stored({}, 3), batch({}), Replay(3)),
    ("a replay of a stateful query", stored({A: 9}, 3), batch({A: (5, 9)}, stateful=True), Replay(3)),
    ("a new checkpoint from the beginning", stored({A: 9, B: 9}), batch({A: (5, 9), B: (5, 8)}, 0), AlreadyThere()),
    ("one partition there, one ahead", stored({A: 9, B: 5}), batch({A: (5, 9), B: (5, 8)}, 0), mismatch(9, False)),
    ("there, but this query wrote before", stored({A: 9}, 2), batch({A: (5, 9)}), mismatch(9, True)),
    ("half there", stored({A: 7}), batch({A: (5, 9)}, 0), mismatch(7, False)),
    ("a gap", stored({A: 3}), batch({A: (5, 9)}, 0), mismatch(3, False)),
    ("a gap in a known query", stored({A: 3}, 2), batch({A: (5, 9)}), mismatch(3, True)),
    ("one there, one never stored", stored({A: 9}), batch({A: (5, 9), B: (0, 1)}, 0), mismatch(9, False)),
    ("new, beside stored ones, from 0", stored({A: 5}), batch({A: (5, 9), B: (0, 4)}, 0), Fresh()),
    ("new, beside stored ones, from behind", stored({A: 5}), batch({A: (5, 5), B: (2, 4)}, 0), skipping((2, 4))),
    ("likewise, and it does not move", stored({A: 5}), batch({A: (5, 9), B: (2, 2)}, 0), skipping((2, 2))),
    ("likewise, and the others are there", stored({A: 9}), batch({A: (5, 9), B: (2, 2)}, 0), skipping((2, 2))),
    ("likewise, of a query that wrote before", stored({A: 5}, 2), batch({A: (5, 9), B: (2, 4)}), Fresh()),
    ("another source from behind", stored({A: 5}), batch({A: (5, 9), C: (2, 4)}, 0), Fresh()),
    ("nothing stored, from behind", stored({}), batch({A: (5, 9), B: (2, 4)}, 0), Fresh()),
    ("stateful, first batch, empty store", stored({}), batch({A: (0, 5)}, 0, True), Fresh()),
    ("stateful, going on", stored({A: 5}, 2), batch({A: (5, 9)}, stateful=True), Fresh()),
    ("stateful, no new records", stored({A: 9}, 2), batch({A: (9, 9)}, stateful=True), Fresh()),
    (
        "stateful, no new records, offsets set back",
        stored({A: 5}, 2),
        batch({A: (9, 9)}, stateful=True),
        Mismatch(A, 5, OffsetRange(9, 9), True),
    ),
    ("stateful, checkpoint lost", stored({A: 9}), batch({A: (0, 9)}, 0, True), StatefulRestart(A, 9)),
    ("stateful, begun at the stored offsets", stored({A: 9}), batch({A: (9, 12)}, 0, True), StatefulRestart(A, 9)),
    ("stateful, lost, nothing new", stored({A: 9}), batch({A: (9, 9)}, 0, True), StatefulRestart(A, 9)),
]  # fmt: skip


@pytest.mark.parametrize(("before", "incoming", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_every_case(before: Stored, incoming: Batch, expected: Decision) -> None:
    assert decide(before, incoming) == expected


def test_rows_of_other_sources_are_not_passed_over_with_a_range_that_is_there() -> None:
    mixed = replace(batch({A: (5, 9), B: (7, 8)}, 0), foreign=True)
    there = {A: 9, B: 9}
    assert decide(stored(there), mixed) == OthersUnknown(A, 9, OffsetRange(5, 9))
    assert decide(stored({A: 5, B: 7}), mixed) == Fresh()
    assert decide(stored(there, 0), mixed) == Replay(0)


offsets = st.integers(0, 12)
extents = st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair)))
batches = st.builds(batch, st.dictionaries(st.sampled_from([A, B]), extents), st.integers(0, 3), st.booleans())
stores = st.builds(stored, st.dictionaries(st.sampled_from([A, B]), offsets), st.none() | st.integers(0, 3))


@given(stores, batches)
def test_nothing_is_written_twice_and_nothing_is_skipped(before: Stored, incoming: Batch) -> None:
    """What the decision means for the records: judged from the stored offsets alone."""
    decision = decide(before, incoming)
    moved = incoming.record.moved
    if isinstance(decision, Fresh):
        assert all(before.next_offsets.get(key, extent.start) == extent.start for key, extent in moved.items())
        assert before.last_batch_id is None or before.last_batch_id < incoming.record.batch_id
        if before.last_batch_id is None and before.next_offsets:
            ranges = incoming.record.ranges
            assert not any(ranges[each].start > 0 for each in ranges.keys() - before.next_offsets.keys())
    elif isinstance(decision, AlreadyThere):
        assert moved
        assert all(extent.end <= before.next_offsets[key] for key, extent in moved.items())
        assert before.last_batch_id is None
        assert not incoming.stateful
    elif isinstance(decision, Replay):
        assert before.last_batch_id is not None
        assert before.last_batch_id >= incoming.record.batch_id
        assert all(extent.end <= before.next_offsets[key] for key, extent in moved.items())
    elif isinstance(decision, ReusedBatchId):
        assert before.next_offsets.get(decision.key) == decision.stored
        assert decision.stored is None or decision.stored < decision.extent.end
    elif isinstance(decision, NeverStored):
        assert before.next_offsets
        assert before.last_batch_id is None
        assert decision.key not in before.next_offsets
        assert decision.extent.start > 0
    elif isinstance(decision, Mismatch):
        assert decision.stored != decision.extent.start
        assert decision.is_overlap == (decision.stored > decision.extent.start)
        assert decision.query_is_known == (before.last_batch_id is not None)
    else:
        assert incoming.stateful
        assert before.last_batch_id is None
