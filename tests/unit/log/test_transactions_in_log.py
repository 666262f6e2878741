"""Transactions in one partition's log: markers, last stable offset, transaction index, and recovery of all of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.offset_index import CorruptIndexError
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.log.transaction_index import ENTRY_BYTES, AbortedTransaction, TransactionIndex
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.control_records import EndMarker, encode_end_marker, read_end_marker
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import ControlType, Record

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=1_500, index_interval_bytes=150)


def open_log(storage: SimulatedDisk, config: LogConfig = SMALL, **options: Any) -> PartitionLog:
    return PartitionLog.open(storage, DIRECTORY, config, NOW, **options)


def write(log: PartitionLog, producer: int, epoch: int = 0, count: int = 1, *, verified: bool = True) -> int:
    """Append a transactional batch, the next of its producer; returns its first offset."""
    entry = log.producers.get(producer)
    last = entry.last_sequence if entry is not None and entry.epoch == epoch else -1
    batch = records.encode_batch(
        [Record(None, b"%d" % producer, NOW)] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=last + 1,
        transactional=True,
    )
    verification = log.producers.begin_verification(producer, epoch, has_epochs=False) if verified else None
    return log.append(batch, 0, NOW, verification).base_offset


def end(log: PartitionLog, producer: int, committed: bool, epoch: int = 0, version: int = 0) -> int:
    return log.append_marker(Marker(producer, epoch, committed, 0, version), 0, NOW).base_offset


def plain(log: PartitionLog) -> int:
    return log.append(records.encode_batch([Record(None, b"plain", NOW)]), 0, NOW).base_offset


def visible(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """Read as a read_committed consumer does: up to the last stable offset, without what was aborted."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        stretch = log.read(offset, 400, True, log.last_stable_offset)
        aborted = sorted(
            log.aborted_transactions(offset, log.upper_bound(offset, stretch)), key=lambda a: a.first_offset
        )
        skipped: set[int] = set()
        data = stretch.read()
        assert data
        for position, header in records.scan(data):
            batch = data[position : position + header.size]
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                if records.control_type(records.decode_records(batch)[0]) is ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [(each.offset, each.value) for each in records.decode_records(batch)]
            offset = header.next_offset
    return found


def test_a_marker_decides_what_is_stable() -> None:
    log = open_log(SimulatedDisk())
    assert plain(log) == 0
    assert log.last_stable_offset == 1
    assert write(log, 7, count=2) == 1
    assert write(log, 8) == 3
    assert plain(log) == 4
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    assert end(log, 8, committed=False) == 5
    assert log.last_stable_offset == 1
    assert log.read(1, 1000, True, log.last_stable_offset).size == 0
    assert end(log, 7, committed=True) == 6
    assert log.last_stable_offset == 7
    assert log.aborted_transactions(0, 7) == [AbortedTransaction(8, 3, 5, 1)]
    assert visible(log) == [(0, b"plain"), (1, b"7"), (2, b"7"), (4, b"plain")]


def test_a_stretch_ends_before_what_is_not_stable() -> None:
    log = open_log(SimulatedDisk())
    plain(log)
    write(log, 7)
    plain(log)
    stretch = log.read(0, 10_000, True, log.last_stable_offset)
    assert [header.base_offset for _, header in records.scan(stretch.read())] == [0]
    assert log.read(0, 10_000, True).size > stretch.size


def test_what_opens_a_transaction_must_be_verified() -> None:
    log = open_log(SimulatedDisk())
    for verified, epoch, error in (
        (False, 0, ErrorCode.INVALID_TXN_STATE),
        (True, 0, None),
        (False, 0, None),
        (False, 1, ErrorCode.INVALID_TXN_STATE),
    ):
        if error is None:
            write(log, 7, epoch, verified=verified)
        else:
            with pytest.raises(KafkaError) as caught:
                write(log, 7, epoch, verified=verified)
            assert caught.value.code is error


def test_a_transactional_batch_needs_a_producer() -> None:
    log = open_log(SimulatedDisk())
    with pytest.raises(KafkaError) as caught:
        log.append(records.encode_batch([Record(None, b"x", NOW)], transactional=True), 0, NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_deleting_records_moves_the_last_stable_offset_along() -> None:
    log = open_log(SimulatedDisk())
    write(log, 7, count=3)
    plain(log)
    log.delete_records(2)
    assert log.last_stable_offset == 2


def test_the_marker_is_kafkas() -> None:
    batch = encode_end_marker(EndMarker(True, 5), 7, 2, NOW, 0)
    header = records.validate(batch)
    assert (header.is_control, header.is_transactional, header.producer_id, header.producer_epoch) == (True, True, 7, 2)
    assert header.base_sequence == -1
    (record,) = records.decode_records(batch)
    assert (record.key, record.value) == (bytes.fromhex("00000001"), bytes.fromhex("000000000005"))
    assert read_end_marker(record) == EndMarker(True, 5)
    assert read_end_marker(Record(bytes.fromhex("00000009"), None)) is None


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_is_still_open_after_a_restart(clean: bool) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    write(log, 7)
    plain(log)
    if clean:
        log.close(NOW)
    log = open_log(storage, clean=clean)
    assert log.last_stable_offset == 0
    write(log, 7, verified=False)
    end(log, 7, committed=False)
    assert log.last_stable_offset == log.log_end_offset == 4
    assert visible(log) == [(1, b"plain")]


@dataclass
class History:
    """Which producers have a transaction open since when, and what became of the others."""

    log: PartitionLog
    rng: random.Random
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    mine: dict[int, list[int]] = field(default_factory=dict)

    def step(self) -> None:
        producer = self.rng.randint(1, 4)
        action = self.rng.random()
        if action < 0.15:
            plain(self.log)
        elif action < 0.7:
            count = self.rng.randint(1, 3)
            first = write(self.log, producer, count=count)
            self.open.setdefault(producer, first)
            self.mine.setdefault(producer, []).extend(range(first, first + count))
        else:
            committed = self.rng.random() < 0.5
            marker = end(self.log, producer, committed)
            first_offset = self.open.pop(producer, None)
            written = self.mine.pop(producer, [])
            if first_offset is not None and not committed:
                stable = min(self.open.values(), default=marker + 1)
                self.aborted.append(AbortedTransaction(producer, first_offset, marker, stable))
                self.hidden |= set(written)
            self.hidden.add(marker)

    def check(self, log: PartitionLog) -> None:
        end_offset = log.log_end_offset
        kept = [each for each in self.aborted if each.last_offset < end_offset]
        found = [entry for segment in log._segments for entry in segment.transaction_index.entries]
        assert found == kept
        if end_offset == self.log.log_end_offset:
            stable = min(self.open.values(), default=end_offset)
            assert log.last_stable_offset == stable
            expected = [offset for offset in range(stable) if offset not in self.hidden]
            assert [offset for offset, _ in visible(log)] == expected
        for first in range(0, end_offset, 5):
            for upto in range(first + 1, end_offset + 1, 7):
                wanted = {a for a in kept if a.last_offset >= first and a.first_offset < upto}
                assert set(log.aborted_transactions(first, upto)) >= wanted
                assert len(log.aborted_transactions(first, upto)) == len(set(log.aborted_transactions(first, upto)))


@pytest.mark.parametrize("how", ["clean", "crash", "power"])
def test_recovery_gives_the_same_transactions(how: str) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        storage = SimulatedDisk()
        history = History(open_log(storage), rng)
        for _ in range(rng.randint(1, 120)):
            history.step()
        recovery_point = history.log.recovery_point
        if how == "clean":
            history.log.close(NOW)
        elif how == "power":
            storage.lose_power(rng)
        log = open_log(storage, clean=how == "clean", recovery_point=recovery_point)
        history.check(log)
        expected = {each.producer_id: each.current_transaction_first_offset for each in log.producers.entries()}
        log.close(NOW)
        again = open_log(storage, clean=True)
        history.check(again)
        entries = again.producers.entries()
        assert {each.producer_id: each.current_transaction_first_offset for each in entries} == expected


def test_a_transaction_index_that_is_damaged_is_built_again(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    history = History(open_log(storage), random.Random(3))
    for _ in range(80):
        history.step()
    history.log.close(NOW)
    indexes = [name for name in storage.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    assert len(indexes) > 1
    for name in indexes:
        path = f"{DIRECTORY}/{name}"
        storage.write(path, storage.read(path)[:-1], durable=True)
    log = open_log(storage, clean=True)
    assert set(log.aborted_transactions(0, log.log_end_offset)) == set(history.aborted)
    assert "building it again" in caplog.text
    history.check(log)


longs = st.integers(0, 2**62)


@given(st.lists(st.tuples(longs, longs, st.integers(1, 1000), longs), max_size=20))
def test_the_file_is_read_back(drawn: list[tuple[int, int, int, int]]) -> None:
    entries, last = [], -1
    for producer, first, step, stable in drawn:
        last += step
        entries.append(AbortedTransaction(producer, min(first, last), last, stable))
    index = TransactionIndex(entries)
    assert len(index.encode()) == ENTRY_BYTES * len(entries)
    assert TransactionIndex.decode(0, index.encode()).entries == tuple(entries)


def test_the_files_bytes_are_kafkas() -> None:
    index = TransactionIndex()
    index.append(AbortedTransaction(1, 2, 3, 4))
    assert index.encode() == b"\0\0" + b"".join(bytes(7) + bytes([number]) for number in (1, 2, 3, 4))


@pytest.mark.parametrize(
    "data",
    [
        bytes(33),
        b"\0\1" + TransactionIndex([AbortedTransaction(1, 20, 30, 31)]).encode()[2:],
        TransactionIndex([AbortedTransaction(1, 2, 9, 10)]).encode(),
        TransactionIndex([AbortedTransaction(1, 20, 30, 31)]).encode() * 2,
        TransactionIndex([AbortedTransaction(1, 31, 30, 31)]).encode(),
    ],
)
def test_a_damaged_file_is_known(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        TransactionIndex.decode(10, data)
