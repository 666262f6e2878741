"""A replica's log: high watermark, batches of a leader, and cutting, against a plain list of what should be there."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lab.sim.disk import SimulatedDisk, SimulatedFile
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record
from tests.chance import examples

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


def open_log(storage: SimulatedDisk, **options: Any) -> PartitionLog:
    log = PartitionLog.open(storage, DIRECTORY, SMALL, NOW, **options)
    log.be_one_of_several(0)
    return log


def batch(count: int = 1, at: int = NOW, **options: Any) -> bytearray:
    return records.encode_batch([Record(None, b"value", at) for _ in range(count)], **options)


def stored(log: PartitionLog) -> bytes:
    """Return all batches from the log's start on, as they lie in the files."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, min_one_batch=True).read()
        data += found
        offset = list(records.scan(found))[-1][1].next_offset
    return data


def bounds(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [(each.base_offset, each.last_offset, each.partition_leader_epoch) for _, each in records.scan(stored(log))]


class CutLog(RuleBasedStateMachine):
    """Whatever is appended, cut, rolled and opened again: the log holds what the list does, and finds all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = SimulatedDisk()
        self.log = open_log(self.storage)
        self.batches: list[tuple[int, int, int]] = []
        self.transactional: dict[int, tuple[int, bool]] = {}
        """By base offset: the producer of a batch in a transaction, and whether it is the marker that ends one."""
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

    @rule(producer=st.sampled_from([5, 6]), count=st.integers(1, 3))
    def write_in_transaction(self, producer: int, count: int) -> None:
        entry = self.log.producers.get(producer)
        options = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        options["base_sequence"] = 0 if entry is None else entry.last_sequence + 1
        verification = self.log.producers.begin_verification(producer, 0, has_epochs=False)
        self.now += 1
        done = self.log.append(batch(count, self.now, **options), self.epoch, self.now, verification)
        self.batches.append((done.base_offset, done.last_offset, self.epoch))
        self.transactional[done.base_offset] = producer, False

    @precondition(lambda self: self.log.producers.first_unstable_offset is not None)
    @rule(prefers=st.sampled_from([5, 6]), committed=st.booleans())
    def end_transaction(self, prefers: int, committed: bool) -> None:
        producer = prefers if self.log.producers.in_transaction(prefers, 0) else 11 - prefers
        self.now += 1
        done = self.log.append_marker(Marker(producer, 0, committed, 0, 0), self.epoch, self.now)
        self.batches.append((done.base_offset, done.last_offset, self.epoch))
        self.transactional[done.base_offset] = producer, True

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        offset = round(share * self.log.log_end_offset)
        self.log.truncate_to(offset)
        self.batches = [each for each in self.batches if each[1] < offset]
        kept = {base for base, _, _ in self.batches}
        self.transactional = {base: each for base, each in self.transactional.items() if base in kept}
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

    @property
    def stable(self) -> int:
        """Where the first transaction begins that is open, or could be again if what is not safe were cut off."""
        began: dict[int, int] = {}
        unstable = [self.safe]
        for base, _, _ in self.batches:
            producer, is_marker = self.transactional.get(base, (-1, False))
            if not is_marker and producer >= 0:
                began.setdefault(producer, base)
            elif is_marker:
                first = began.pop(producer)
                unstable += [first] if base >= self.safe else []
        return min(unstable + list(began.values()))

    @invariant()
    def holds_what_it_should(self) -> None:
        assert bounds(self.log) == self.batches
        assert self.log.log_end_offset == self.end
        assert self.log.high_watermark == self.safe
        assert self.log.last_stable_offset == self.stable
        for base, last, epoch in self.batches[-3:]:
            found = next(records.scan(self.log.read(last, 1, min_one_batch=True).read()))[1]
            assert (found.base_offset, found.partition_leader_epoch) == (base, epoch)
        last_of = {epoch: last + 1 for _, last, epoch in self.batches}
        for epoch, end in last_of.items():
            if epoch < self.log.latest_epoch:
                assert self.log.epoch_end(epoch) == (epoch, end)


def test_whatever_is_cut() -> None:
    run_state_machine_as_test(CutLog, settings=settings(max_examples=examples(60), stateful_step_count=25))


def test_a_follower_has_the_leader_s_bytes_and_leaves_half_a_batch_and_later_epochs() -> None:
    leader, follower = open_log(SimulatedDisk()), open_log(SimulatedDisk())
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
    leader, follower = open_log(SimulatedDisk()), open_log(SimulatedDisk())
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


def transaction(log: PartitionLog, *, committed: bool) -> None:
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1, "transactional": True}
    known = {each.producer_id: each.last_sequence for each in log.producers.entries()}
    options["base_sequence"] = known.get(5, -1) + 1
    log.append(batch(2, **options), 0, NOW, log.producers.begin_verification(5, 0, has_epochs=False))
    log.append_marker(Marker(5, 0, committed, 0, 0), 0, NOW)


def test_a_transaction_is_stable_when_its_marker_is_safe() -> None:
    log = open_log(SimulatedDisk())
    transaction(log, committed=True)
    assert log.advance_high_watermark(2)
    assert log.last_stable_offset == 0  # the marker could still be cut off
    assert log.advance_high_watermark(3)
    assert log.last_stable_offset == 3


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_what_has_ended_and_is_not_safe_is_known_after_a_restart(clean: bool, rolled: bool) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    transaction(log, committed=True)
    log.append(batch(), 0, NOW)
    transaction(log, committed=True)
    if rolled:
        log.roll(NOW)
    transaction(log, committed=False)
    point = log.recovery_point
    if clean:
        log.close(NOW)
        point = log.log_end_offset
    else:
        log.abandon()
    again = open_log(storage, recovery_point=point, clean=clean)
    for high_watermark, stable in ((1, 0), (2, 0), (3, 3), (5, 4), (6, 4), (7, 7), (9, 7), (10, 10)):
        assert again.advance_high_watermark(high_watermark)
        assert again.last_stable_offset == stable


def test_a_log_that_begins_anew_remembers_no_ends_of_before() -> None:
    log = open_log(SimulatedDisk())
    transaction(log, committed=True)
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 0
    log.begin_at(100)
    assert log.last_stable_offset == 100


def test_ends_that_are_cut_off_and_come_again_count_once() -> None:
    leader, follower = open_log(SimulatedDisk()), open_log(SimulatedDisk())
    transaction(leader, committed=True)
    transaction(leader, committed=True)
    data = stored(leader)
    follower.append_as_follower(data, 0, NOW)
    follower.advance_high_watermark(1)
    follower.truncate_to(5)
    assert follower.last_stable_offset == 0
    follower.advance_high_watermark(4)
    assert follower.last_stable_offset == 3
    follower.append_as_follower(data[-(len(data) - len(stored(follower))) :], 0, NOW)
    assert follower.last_stable_offset == 3
    follower.advance_high_watermark(6)
    assert follower.last_stable_offset == 6


def test_an_aborted_transaction_is_known_to_the_follower_and_forgotten_with_its_marker() -> None:
    leader, follower = open_log(SimulatedDisk()), open_log(SimulatedDisk())
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
    storage = SimulatedDisk()
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


def test_epochs_whose_file_is_torn_are_read_from_all_segments(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    for epoch in range(24):
        log.append(batch(3), epoch, NOW)
    epochs = log.leader_epochs.entries
    assert len([name for name in storage.list_directory(DIRECTORY) if name.endswith(".log")]) > 2
    log.close(NOW)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    storage.write(path, storage.read(path)[:-2], durable=True)  # its last line says 23 6 now, and not 23 69
    again = open_log(storage, clean=True)
    assert again.leader_epochs.entries == epochs
    assert again.epoch_end(9) == (9, 30)
    assert "the epochs are read from all batches" in caplog.text
    assert open_log(storage, clean=True).leader_epochs.entries == epochs


def unreadable(monkeypatch: pytest.MonkeyPatch, number: int = errno.EIO) -> None:
    def failing(*_: object) -> bytes:
        raise OSError(number, "?")

    monkeypatch.setattr(SimulatedFile, "pread", failing)


def reopened() -> PartitionLog:
    """Return a log after a restart, with two transactions that are not safe."""
    storage = SimulatedDisk()
    log = open_log(storage)
    transaction(log, committed=True)
    transaction(log, committed=True)
    end = log.log_end_offset
    log.close(NOW)
    return open_log(storage, recovery_point=end, clean=True)


def test_a_high_watermark_moves_without_a_look_into_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loss of its checkpoint, that would be a look at all of it, while everybody waits."""
    log = reopened()
    unreadable(monkeypatch)
    assert log.last_stable_offset == 0
    assert log.advance_high_watermark(4)
    assert log.failure is None
    monkeypatch.undo()
    assert log.last_stable_offset == 3


@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_what_is_stable_is_not_told_where_it_cannot_be_read(
    number: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = reopened()
    log.advance_high_watermark(4)
    unreadable(monkeypatch, number)
    with pytest.raises(KafkaError) as caught:
        assert log.last_stable_offset
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.failure is not None) == fails
    monkeypatch.undo()
    assert log.last_stable_offset == 3


def test_a_failure_to_cut_or_to_note_an_epoch_is_a_failure_of_the_disk() -> None:
    for act in (
        lambda log: log.truncate_to(1),
        lambda log: log.truncate_to(0),
        lambda log: log.begin_at(9),
        lambda log: log.begin_epoch(5),
    ):
        storage = SimulatedDisk()
        log = open_log(storage)
        log.append(batch(), 0, NOW)
        log.append(batch(), 0, NOW)
        storage.write_error = OSError(errno.EIO, "Input/output error")
        storage.broken = True
        with pytest.raises(OSError, match="Input/output error"):
            act(log)
        assert log.failure is not None


def test_a_follower_that_cannot_note_an_epoch_is_told_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = open_log(SimulatedDisk()), open_log(SimulatedDisk())
    leader.append(batch(), 3, NOW)

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "?")

    monkeypatch.setattr(follower.leader_epochs.__class__, "assign", failing)
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(stored(leader), 3, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert follower.failure is not None


def cut_where_the_disk_fails_once(to: int, at_change: int, *, restarts: bool) -> tuple[PartitionLog, bool]:
    """Cut a log of several segments while a change of the disk fails, then append, as a new leader does.

    A broker that `restarts` stops cleanly in between. A log that has failed for good, as after a failed flush, takes
    nothing any more.
    """
    storage = SimulatedDisk()
    log = open_log(storage)
    for offset in range(12):
        options = {"producer_id": offset % 2, "producer_epoch": 0, "base_sequence": offset // 2}
        log.append(batch(**options), offset // 4, NOW)
    log.advance_high_watermark(10)
    changes, change, failed = 0, storage.change, False

    def failing() -> None:
        nonlocal changes, failed
        changes += 1
        if changes == at_change:
            failed = True
            raise OSError(errno.ENOSPC, "No space left on device")
        change()

    storage.change = failing  # type: ignore[method-assign]
    try:
        log.truncate_to(to)
    except OSError:
        assert failed
    assert log.high_watermark <= log.log_end_offset
    storage.change = change  # type: ignore[method-assign]
    if log.failure is not None:
        return log, failed
    if log.log_end_offset > to:  # nothing of it was done
        log.truncate_to(to)
    if restarts:
        log.close(NOW)
        log = PartitionLog.open(storage, DIRECTORY, SMALL, NOW, clean=True)
        log.be_one_of_several(to)
    log.begin_epoch(7)
    log.append(batch(producer_id=1, producer_epoch=0, base_sequence=to // 2), 7, NOW)
    return log, failed


@pytest.mark.parametrize("to", [5, 0])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_cut_that_failed_is_finished_before_anything_else_is_written(restarts: bool, to: int) -> None:
    whole, failed = cut_where_the_disk_fails_once(to, at_change=0, restarts=restarts)
    assert not failed
    finished = 0
    for at_change in range(1, 1_000):
        log, failed = cut_where_the_disk_fails_once(to, at_change, restarts=restarts)
        if log.failure is not None:
            continue
        finished += failed
        assert stored(log) == stored(whole)
        assert log.high_watermark == whole.high_watermark == to
        assert log.producers.entries() == whole.producers.entries()
        assert log.epoch_end(6) == whole.epoch_end(6)
        if not failed:
            break
    assert finished > 3
