"""A replica's log: high watermark, batches of a leader, and cutting, against a plain list of what should be there."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from broker_lite.coordinators.producer_state import Marker, Verification
from broker_lite.log.config import LogConfig
from broker_lite.log.replicated_log import ReplicatedLog
from broker_lite.protocol import records
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import Record
from tests.unit.log.memory_storage import MemoryStorage

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


def open_log(storage: MemoryStorage, **options: int | bool) -> ReplicatedLog:
    return ReplicatedLog.open(storage, DIRECTORY, SMALL, NOW, **options)


def batch(count: int = 1, at: int = NOW, **options: int | bool) -> bytearray:
    return records.encode_batch([Record(None, b"value", at) for _ in range(count)], **options)


def stored(log: ReplicatedLog) -> bytes:
    """Give all batches from the log's start on, as they lie in the files."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, min_one_batch=True).read()
        data += found
        offset = list(records.scan(found))[-1][1].next_offset
    return data


def bounds(log: ReplicatedLog) -> list[tuple[int, int, int]]:
    return [(each.base_offset, each.last_offset, each.partition_leader_epoch) for _, each in records.scan(stored(log))]


class CutLog(RuleBasedStateMachine):
    """Whatever is appended, cut, rolled and opened again: the log holds what the list does, and finds all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.log = open_log(self.storage)
        self.batches: list[tuple[int, int, int]] = []
        self.epoch = 0
        self.safe = 0
        self.now = NOW

    @rule(count=st.integers(1, 4), producer=st.sampled_from([-1, 7]))
    def append(self, count: int, producer: int) -> None:
        known = {each.producer_id: each for each in self.log.producers.entries()}
        sequence = known[producer].last_sequence + 1 if producer in known else 0
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if producer >= 0 else {}
        self.now += 1
        done = self.log.append(batch(count, self.now, **options), self.epoch, self.now)
        self.batches.append((done.base_offset, done.last_offset, self.epoch))

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        offset = round(share * self.log.log_end_offset)
        self.log.truncate_to(offset)
        self.batches = [each for each in self.batches if each[1] < offset]
        self.safe = min(self.safe, self.end)

    @rule(share=st.floats(0, 1.2))
    def make_safe(self, share: float) -> None:
        offset = round(share * self.log.log_end_offset)
        moved = self.log.advance_high_watermark(offset)
        assert moved == (min(offset, self.end) > self.safe)
        self.safe = max(self.safe, min(offset, self.end))

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(clean=st.booleans())
    def open_again(self, clean: bool) -> None:
        point, producers = self.log.recovery_point, self.log.producers.entries()
        if clean:
            self.log.close(NOW)
            point = self.end
        else:
            self.log.abandon()
        self.log = open_log(self.storage, recovery_point=point, clean=clean)
        self.log.advance_high_watermark(self.safe)
        assert [(each.producer_id, each.last_sequence) for each in self.log.producers.entries()] == [
            (each.producer_id, each.last_sequence) for each in producers if each.batches
        ]

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    @invariant()
    def holds_what_it_should(self) -> None:
        assert bounds(self.log) == self.batches
        assert self.log.log_end_offset == self.end
        assert self.log.high_watermark == self.safe
        for base, last, epoch in self.batches[-3:]:
            found = next(records.scan(self.log.read(last, 1, min_one_batch=True).read()))[1]
            assert (found.base_offset, found.partition_leader_epoch) == (base, epoch)
        last_of = {epoch: last + 1 for _, last, epoch in self.batches}
        for epoch, end in last_of.items():
            if epoch < self.log.latest_epoch:
                assert self.log.epoch_end(epoch) == (epoch, end)


def test_whatever_is_cut() -> None:
    run_state_machine_as_test(CutLog, settings=settings(max_examples=60, stateful_step_count=25))


def test_a_follower_has_the_leader_s_bytes_and_leaves_half_a_batch_and_later_epochs() -> None:
    leader, follower = open_log(MemoryStorage()), open_log(MemoryStorage())
    leader.append(batch(2), 0, NOW)
    leader.append(batch(1), 1, NOW)
    leader.append(batch(3), 2, NOW)
    data = stored(leader)
    assert follower.append_as_follower(data[: len(data) - 1], 1, NOW) == len(data) - len(batch(3))
    assert (follower.log_end_offset, follower.latest_epoch) == (3, 1)
    assert follower.append_as_follower(data[-len(batch(3)) :], 1, NOW) == 0  # of an epoch that is not followed yet
    assert follower.append_as_follower(data[-len(batch(3)) :], 2, NOW) == len(batch(3))
    assert stored(follower) == data
    assert follower.leader_epochs.entries == leader.leader_epochs.entries


def test_a_follower_takes_nothing_that_is_damaged_or_does_not_come_next() -> None:
    leader, follower = open_log(MemoryStorage()), open_log(MemoryStorage())
    leader.append(batch(2), 0, NOW)
    data = bytearray(stored(leader))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(data, 0, NOW)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    data[-1] ^= 1
    follower.append_as_follower(data, 0, NOW)
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(data, 0, NOW)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.log_end_offset == 2


def transaction(log: ReplicatedLog, *, committed: bool) -> None:
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1, "transactional": True}
    known = {each.producer_id: each.last_sequence for each in log.producers.entries()}
    options["base_sequence"] = known.get(5, -1) + 1
    log.append(batch(2, **options), 0, NOW, Verification.LEGACY)
    log.append_marker(Marker(5, 0, committed, 0, 0), 0, NOW)


def test_a_transaction_is_stable_when_its_marker_is_safe() -> None:
    log = open_log(MemoryStorage())
    transaction(log, committed=True)
    assert log.advance_high_watermark(2)
    assert log.last_stable_offset == 0  # the marker could still be cut off
    assert log.advance_high_watermark(3)
    assert log.last_stable_offset == 3


def test_an_aborted_transaction_is_known_to_the_follower_and_forgotten_with_its_marker() -> None:
    leader, follower = open_log(MemoryStorage()), open_log(MemoryStorage())
    transaction(leader, committed=False)
    transaction(leader, committed=False)
    follower.append_as_follower(stored(leader), 0, NOW)
    assert follower.aborted_transactions(0, 9) == leader.aborted_transactions(0, 9) != []
    follower.truncate_to(5)
    assert [each.last_offset for each in follower.aborted_transactions(0, 9)] == [2]
    assert follower.producers.first_unstable_offset == 3
    follower.truncate_to(2)
    assert follower.aborted_transactions(0, 9) == []
    assert follower.producers.first_unstable_offset == 0


def test_beginning_anew_where_the_leader_begins() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for _ in range(9):
        log.append(batch(2, producer_id=3, producer_epoch=0, base_sequence=log.log_end_offset), 0, NOW)
    log.begin_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert log.producers.entries() == []
    log.append(batch(), 4, NOW)
    log.close(NOW)
    again = open_log(storage, recovery_point=101, log_start_offset=100, clean=True)
    assert bounds(again) == [(100, 100, 4)]
