"""A consumer group forgets offsets in the end; the last decision does not."""

from __future__ import annotations

from sparkonce.exactly_once.transactions import Decision, following
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey

KEY: PartitionKey = ("kafka", TopicPartition("topic", "id", 0))
OTHER: PartitionKey = ("kafka", TopicPartition("topic", "id", 1))


def decide(last: Decision | None, batch_id: int, ranges: dict[PartitionKey, OffsetRange]) -> Decision:
    record = BatchRecord("app", "query", batch_id, f"attempt-{batch_id}", ranges)
    return Decision.from_json(following(last, record, [], "group", 0).to_json())


def test_a_decision_knows_every_partition_that_was_ever_read() -> None:
    first = decide(None, 0, {KEY: OffsetRange(0, 5), OTHER: OffsetRange(0, 7)})
    second = decide(first, 1, {KEY: OffsetRange(5, 9)})
    assert second.offsets == {KEY: 9, OTHER: 7}


def test_a_decision_taken_back_takes_its_offsets_back() -> None:
    first = decide(None, 0, {KEY: OffsetRange(3, 5), OTHER: OffsetRange(2, 7)})
    second = decide(first, 1, {KEY: OffsetRange(5, 9), OTHER: OffsetRange(7, 7)})
    assert second.undoing(0).offsets == {KEY: 5, OTHER: 7}
    assert Decision.from_json(second.undoing(0).to_json()).offsets == {KEY: 5, OTHER: 7}
