"""Offsets within transactions: what waits in `__consumer_offsets`, for which marker, and what may not remove it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkonce.broker_lite.coordinators.offsets import (
    OFFSETS_TOPIC,
    CommittedOffset,
    OffsetKey,
    PendingOffsets,
    encode,
    partition_of,
)
from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, Producer, TransactionState
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.unit.broker.test_transaction_coordinator import TIMEOUT_MS, World, delete, state

KEY = OffsetKey("g", "t", 0)
GROUPS = {partition_of(f"g{n}", 2): f"g{n}" for n in range(20)}
"""A group for each of two partitions of the offsets topic."""


@pytest.fixture
def world() -> World:
    return World()


def begin(broker: Broker) -> Producer:
    transactions = broker.transactions
    asked = transactions.transactions.init_producer_id(Producer("x", -1, -1), TIMEOUT_MS, broker.clock.now_ms())
    given = transactions.carry_out(asked)
    return Producer("x", given.producer_id, given.epoch)


def end(broker: Broker, producer: Producer, committed: bool) -> Producer:
    """End the transaction; returns the producer of the next."""
    decision = broker.transactions.transactions.end(producer, committed, EPOCH_BUMP, broker.clock.now_ms())
    given = broker.transactions.carry_out(decision)
    assert given.error is ErrorCode.NONE
    return Producer("x", given.producer_id, given.epoch)


def commit(broker: Broker, producer: Producer, group_id: str, offset: int) -> None:
    """Commit an offset of partition t-0 within a transaction, as TxnOffsetCommit does."""
    now_ms = broker.clock.now_ms()
    index = broker.groups.partitions.index_of(group_id)
    log = broker.internal_topic(OFFSETS_TOPIC).logs[index]
    adding = broker.transactions.transactions.add_partitions(producer, [(OFFSETS_TOPIC, index)], EPOCH_BUMP, now_ms)
    assert broker.transactions.carry_out(adding).error is ErrorCode.NONE
    record = encode(OffsetKey(group_id, "t", 0), CommittedOffset(offset, -1, "", now_ms), now_ms)
    batch = encode_batch([record], producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True)
    verification = log.producers.begin_verification(producer.producer_id, producer.epoch, has_epochs=True)
    appended = log.append(batch, 0, now_ms, verification, by_coordinator=True)
    broker.pending_offsets.add(index, producer.producer_id, [replace(record, offset=appended.base_offset)])


def committed_by(broker: Broker, group_id: str) -> int | None:
    found = broker.groups.offsets.of_group(group_id).get(("t", 0))
    return None if found is None else found.offset


@pytest.mark.parametrize("older_committed", [True, False])
def test_an_older_marker_in_another_partition_does_not_end_an_open_transaction(
    world: World, older_committed: bool
) -> None:
    """Partitions are read back one after the other: the older transaction's marker comes after the open one's batch."""
    first, second = GROUPS[0], GROUPS[1]
    broker = world.start(offsets_topic_num_partitions=2)
    broker.create_topic("t", 1, {})
    producer = begin(broker)
    commit(broker, producer, second, 7)
    producer = end(broker, producer, older_committed)
    commit(broker, producer, first, 999)
    broker.logs.abandon()
    broker = world.start(offsets_topic_num_partitions=2)
    assert state(broker) is TransactionState.ONGOING
    assert committed_by(broker, first) is None
    assert committed_by(broker, second) == (7 if older_committed else None)
    assert broker.pending_offsets.is_pending(OffsetKey(first, "t", 0))
    end(broker, producer, True)
    assert committed_by(broker, first) == 999


def test_a_group_whose_only_offsets_wait_for_a_transaction_does_not_expire(world: World) -> None:
    broker = world.start(offsets_topic_num_partitions=1)
    broker.create_topic("t", 1, {})
    broker.groups.group_to_join("g")
    producer = begin(broker)
    commit(broker, producer, "g", 5)
    broker.groups.remove_expired()
    end(broker, producer, True)
    assert committed_by(broker, "g") == 5
    assert broker.groups.group("g") is not None


def test_offsets_that_wait_go_with_their_topic(world: World) -> None:
    """The commit that comes later is none of the next topic of that name."""
    broker = world.start(offsets_topic_num_partitions=1)
    broker.create_topic("t", 1, {})
    producer = begin(broker)
    commit(broker, producer, "g", 5)
    delete(broker, "t")
    assert not broker.pending_offsets
    broker.create_topic("t", 1, {})
    end(broker, producer, True)
    assert committed_by(broker, "g") is None
    broker.logs.abandon()
    assert committed_by(world.start(offsets_topic_num_partitions=1), "g") is None


def at(offset: int, value: int | None, key: OffsetKey = KEY) -> Record:
    """A record at an offset of the offsets topic that commits a value, or removes."""
    found = encode(key, None if value is None else CommittedOffset(value, -1, "", 1), 1)
    return Record(found.key, found.value, 1, (), offset)


@pytest.mark.parametrize(
    ("between", "committed", "effective"),
    [
        ((), True, [0]),
        ((), False, []),
        ((at(2, 9),), True, []),  # a commit that was written later has taken effect
        ((at(2, None),), True, []),
        ((at(2, 9, OffsetKey("g", "t", 1)),), True, [0]),
    ],
)
def test_what_waits(between: tuple[Record, ...], committed: bool, effective: list[int]) -> None:
    pending = PendingOffsets()
    pending.add(0, 7, [at(0, 5)])
    assert pending.is_pending(KEY)
    assert pending.keys_of_group("g") == [KEY]
    pending.written(0, between)
    assert pending.is_pending(KEY) == all(each.value is not None or each.offset != 2 for each in between)
    assert [each.offset for each in pending.end(0, 7, committed)] == effective
    assert not pending
    assert not pending.is_pending(KEY)


def test_of_two_transactions_the_later_record_wins_whichever_ends_first() -> None:
    for first, second, expected in ((7, 8, [0, 1]), (8, 7, [1])):
        pending = PendingOffsets()
        pending.add(0, 7, [at(0, 5)])
        pending.add(0, 8, [at(1, 6)])
        found = [*pending.end(0, first, True)]
        assert pending.is_pending(KEY)
        found += pending.end(0, second, True)
        assert [each.offset for each in found] == expected
        assert not pending.is_pending(KEY)


def test_a_marker_speaks_for_its_own_partition() -> None:
    pending = PendingOffsets()
    other = OffsetKey("h", "t", 0)
    pending.add(0, 7, [at(0, 5)])
    pending.add(1, 7, [at(0, 6, other)])
    assert [each.offset for each in pending.end(0, 7, True)] == [0]
    assert pending.is_pending(other)
    pending.written(0, [at(3, 9, other)])
    assert len([*pending.end(1, 7, True)]) == 1
    assert not pending
