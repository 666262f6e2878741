"""The ordered comparison, case by case, and in general."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.decision import (
    AlreadyWritten,
    Decision,
    DifferentBatch,
    ForeignRowsUnknown,
    Fresh,
    Mismatch,
    PartitionNotStored,
    Replay,
    ReusedBatchId,
    StatefulRestart,
    Stored,
    decide,
)
from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey
from tests.cases import each_case

A: PartitionKey = ("s", TopicPartition("t", "id", 0))
B: PartitionKey = ("s", TopicPartition("t", "id", 1))
C: PartitionKey = ("another", TopicPartition("t", "id", 0))
SAME = Fingerprint(7, 1)
LATER = Fingerprint(7, 2)
"""Of the same records, at another time."""
OTHER = Fingerprint(8, 1)


def batch(
    ranges: dict[PartitionKey, tuple[int, int]],
    batch_id: int = 3,
    stateful: bool = False,
    foreign: bool = False,
    fingerprint: Fingerprint | None = SAME,
) -> Batch:
    extents = {key: OffsetRange(*pair) for key, pair in ranges.items()}
    return Batch(BatchRecord("app", "q", batch_id, "attempt", extents, fingerprint), stateful, foreign)


def stored(offsets: dict[PartitionKey, int], last: int | None = None, fingerprint: Fingerprint | None = SAME) -> Stored:
    return Stored(9, last, offsets, fingerprint)


def skipping(extent: tuple[int, int]) -> PartitionNotStored:
    return PartitionNotStored(B, OffsetRange(*extent))


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
    ("the same records at another time", stored({A: 9}, 3, LATER), batch({A: (5, 9)}), Replay(3)),
    ("likewise, stateful", stored({A: 9}, 3, LATER), batch({A: (5, 9)}, stateful=True), DifferentBatch(3, True)),
    ("other records, all there", stored({A: 9}, 8, OTHER), batch({A: (5, 9)}), DifferentBatch(8, True)),
    ("other files", stored({}, 3, OTHER), batch({}, foreign=True), DifferentBatch(3, True)),
    ("forgotten", stored({A: 9}, 3 + RING), batch({A: (5, 9)}), DifferentBatch(3 + RING, False)),
    ("the oldest that is kept", stored({A: 9}, 2 + RING), batch({A: (5, 9)}), Replay(2 + RING)),
    ("the last of an earlier version", stored({A: 9}, 3, None), batch({A: (5, 9)}), Replay(3)),
    ("likewise, stored further", stored({A: 10}, 3, None), batch({A: (5, 9)}), DifferentBatch(3, False)),
    ("likewise, with state", stored({A: 9}, 3, None), batch({A: (5, 9)}, stateful=True), DifferentBatch(3, False)),
    ("likewise, with files", stored({A: 9}, 3, None), batch({A: (5, 9)}, foreign=True), DifferentBatch(3, False)),
    ("one before the last", stored({A: 9}, 4, None), batch({A: (5, 9)}), DifferentBatch(4, False)),
    ("a new checkpoint from the beginning", stored({A: 9, B: 9}), batch({A: (5, 9), B: (5, 8)}, 0), AlreadyWritten()),
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


@each_case(("before", "incoming", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_every_case(before: Stored, incoming: Batch, expected: Decision) -> None:
    assert decide(before, incoming) == expected


def test_rows_of_other_sources_are_not_passed_over_with_a_range_that_is_there() -> None:
    mixed = replace(batch({A: (5, 9), B: (7, 8)}, 0), foreign=True)
    there = {A: 9, B: 9}
    assert decide(stored(there), mixed) == ForeignRowsUnknown(A, 9, OffsetRange(5, 9))
    assert decide(stored({A: 5, B: 7}), mixed) == Fresh()
    assert decide(stored(there, 0), mixed) == Replay(0)


offsets = st.integers(0, 12)
extents = st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair)))
fingerprints = st.none() | st.builds(Fingerprint, st.integers(0, 1), st.integers(0, 1))
batches = st.builds(
    batch,
    st.dictionaries(st.sampled_from([A, B]), extents),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    fingerprints,
)
lasts = st.none() | st.integers(0, 3) | st.integers(RING - 2, RING + 2)
stores = st.builds(stored, st.dictionaries(st.sampled_from([A, B]), offsets), lasts, fingerprints)


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
    elif isinstance(decision, AlreadyWritten):
        assert moved
        assert all(extent.end <= before.next_offsets[key] for key, extent in moved.items())
        assert before.last_batch_id is None
        assert not incoming.stateful
    elif isinstance(decision, Replay):
        assert before.last_batch_id is not None
        assert before.last_batch_id >= incoming.record.batch_id
        assert all(extent.end <= before.next_offsets[key] for key, extent in moved.items())
        _is_what_was_written(before, incoming)
    elif isinstance(decision, DifferentBatch):
        assert before.last_batch_id is not None
        assert before.last_batch_id >= incoming.record.batch_id
        assert before.fingerprint != incoming.record.fingerprint or not decision.is_known
    elif isinstance(decision, ReusedBatchId):
        assert before.next_offsets.get(decision.key) == decision.stored
        assert decision.stored is None or decision.stored < decision.extent.end
    elif isinstance(decision, PartitionNotStored):
        assert before.next_offsets
        assert before.last_batch_id is None
        assert decision.key not in before.next_offsets
        assert decision.extent.start > 0
    elif isinstance(decision, Mismatch):
        assert decision.stored != decision.extent.start
        assert decision.is_overlap == (decision.stored > decision.extent.start)
        assert decision.query_is_known == (before.last_batch_id is not None)
    elif isinstance(decision, ForeignRowsUnknown):
        assert incoming.foreign
        assert before.last_batch_id is None
    else:
        assert incoming.stateful
        assert before.last_batch_id is None


def _is_what_was_written(before: Stored, incoming: Batch) -> None:
    """A number alone never makes a replay: the fingerprint does, or the ranges where these say all."""
    record, known = incoming.record, before.fingerprint
    assert before.last_batch_id is not None
    if known is not None and record.fingerprint is not None:
        assert before.last_batch_id - record.batch_id < RING
        assert known.inputs == record.fingerprint.inputs
        assert known.clock == record.fingerprint.clock or not incoming.stateful
    else:
        assert record.batch_id == before.last_batch_id
        assert not incoming.stateful
        assert not incoming.foreign
        assert all(before.next_offsets[key] == extent.end for key, extent in record.moved.items())
