"""What makes a log shorter at its start: deleted records, and segments that are too old or too many."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lab.sim.disk import CutShort, SimulatedDisk
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.housekeeping import delete_old_segments
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def batch(*timestamps: int, size: int = 20) -> bytearray:
    return records.encode_batch([Record(b"k", b"v" * size, at) for at in timestamps or (NOW,)])


def filled(storage: SimulatedDisk, count: int, config: LogConfig = SMALL) -> PartitionLog:
    log = PartitionLog.open(storage, DIRECTORY, config, NOW)
    for index in range(count):
        log.append(batch(NOW), index // 10, NOW)
    return log


def test_deleted_records_are_not_read_any_more() -> None:
    log = filled(SimulatedDisk(), 30)
    assert log.delete_records(0) == 0
    assert log.delete_records(13) == 13
    assert log.delete_records(5) == 13
    with pytest.raises(KafkaError) as caught:
        log.read(12, 1000, min_one_batch=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert next(iter(records.decode_all(log.read(13, 1000, min_one_batch=True).read()))).offset == 13
    assert log.delete_records(20) == 20
    assert log.delete_records(-1) == log.log_end_offset == 30


def test_leader_epochs_stay_as_long_as_their_segments() -> None:
    """The start is written down later: after a crash the log may begin earlier again."""
    storage = SimulatedDisk()
    log = filled(storage, 30, deletable())
    log.delete_records(15)
    crashed = PartitionLog.open(storage, DIRECTORY, log.config, NOW)
    assert (crashed.log_start_offset, crashed.leader_epochs.entries) == (0, [(0, 0), (1, 10), (2, 20)])
    crashed.delete_records(15)
    delete_old_segments(crashed, NOW)
    assert (bases(crashed)[0], crashed.leader_epochs.entries) == (14, [(1, 14), (2, 20)])
    crashed.delete_records(-1)
    delete_old_segments(crashed, NOW)
    assert (bases(crashed), crashed.leader_epochs.entries) == ([28], [(2, 28)])


@pytest.mark.parametrize("offset", [-2, 31])
def test_records_that_are_not_there_cannot_be_deleted(offset: int) -> None:
    log = filled(SimulatedDisk(), 30)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def deletable(**settings: object) -> LogConfig:
    return replace(SMALL, segment_bytes=200, file_delete_delay_ms=0, retention_ms=-1, **settings)  # type: ignore[arg-type]


def test_segments_wholly_before_the_start_go() -> None:
    log = filled(SimulatedDisk(), 9, deletable(cleanup_policy=("compact",)))
    assert bases(log) == [0, 2, 4, 6, 8]
    log.delete_records(5)
    assert delete_old_segments(log, NOW) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 5)
    assert delete_old_segments(log, NOW) == 0
    log.delete_records(-1)
    assert delete_old_segments(log, NOW) == 2
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([8], 9, 9)


def test_the_oldest_segments_beyond_the_size_go() -> None:
    log = filled(SimulatedDisk(), 9, deletable())
    two = log.segments[0].size
    log.config = deletable(retention_bytes=2 * two)
    size = log.size
    assert delete_old_segments(log, NOW) == 2
    assert log.size == size - 2 * two >= 2 * two
    assert log.log_start_offset == 4
    log.config = deletable(retention_bytes=0)
    assert delete_old_segments(log, NOW) == 3
    assert (bases(log), log.log_start_offset, log.size) == ([9], 9, 0)
    assert delete_old_segments(log, NOW) == 0
    assert log.append(batch(), 0, NOW).base_offset == 9


def test_segments_that_are_too_old_go_up_to_the_first_that_is_not() -> None:
    log = PartitionLog.open(SimulatedDisk(), DIRECTORY, deletable(), NOW)
    for at in (NOW, NOW, NOW + 5, NOW, NOW + 1, NOW + 1, NOW + 9):
        log.append(batch(at), 0, NOW)
    log.config = replace(log.config, retention_ms=100)
    assert delete_old_segments(log, NOW + 100) == 0
    assert delete_old_segments(log, NOW + 101) == 1  # the second holds a later one
    assert bases(log) == [2, 4, 6]
    assert delete_old_segments(log, NOW + 106) == 2
    assert delete_old_segments(log, NOW + 110) == 1
    assert (bases(log), log.log_start_offset) == ([7], 7)


def test_a_segment_without_timestamps_counts_from_when_it_was_written() -> None:
    storage = SimulatedDisk()
    storage.now_ms = NOW
    log = PartitionLog.open(storage, DIRECTORY, deletable(), NOW)
    for _ in range(3):
        log.append(batch(-1), 0, NOW)
    log.config = replace(log.config, retention_ms=100)
    assert delete_old_segments(log, NOW + 100) == 0
    assert delete_old_segments(log, NOW + 101) == 2


def test_a_compacted_topic_without_delete_keeps_old_segments() -> None:
    log = filled(SimulatedDisk(), 9, replace(deletable(cleanup_policy=("compact",)), retention_ms=1, retention_bytes=1))
    assert delete_old_segments(log, NOW + 10**9) == 0
    log.config = replace(log.config, cleanup_policy=("compact", "delete"))
    assert delete_old_segments(log, NOW + 10**9) == 5


def test_files_outlive_their_segment_for_readers_and_by_the_delay() -> None:
    storage = SimulatedDisk()
    log = filled(storage, 5, replace(deletable(retention_bytes=0), file_delete_delay_ms=1000))
    being_sent = log.read(0, 10_000, min_one_batch=True)
    wanted = being_sent.read()
    delete_old_segments(log, NOW)
    assert sorted(name.rpartition(".")[2] for name in storage.files if ".log" in name) == ["deleted"] * 3 + ["log"]
    assert not [name for name in storage.files if name.endswith("00.snapshot")]
    log.deleted.remove_due(NOW + 999)
    assert len(log.deleted) == 3
    log.deleted.remove_due(NOW + 1000)
    assert len(log.deleted) == 0
    assert not [name for name in storage.files if name.endswith(".deleted")]
    assert being_sent.read() == wanted


def test_a_file_on_disk_is_closed_when_the_last_reader_has_finished(tmp_path: Path) -> None:
    log = PartitionLog.open(DiskStorage(), str(tmp_path), deletable(retention_bytes=0), NOW)
    for _ in range(3):
        log.append(batch(), 0, NOW)
    being_sent = log.read(0, 10_000, min_one_batch=True)
    descriptor = being_sent.file.fileno()
    file = os.fstat(descriptor)
    delete_old_segments(log, NOW)
    assert len(being_sent.read()) == being_sent.size
    del being_sent
    with suppress(OSError):  # the number is free, or has been given to another file
        assert not os.path.samestat(os.fstat(descriptor), file)
    log.close(NOW)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_crash_at_any_moment_of_a_deletion_loses_nothing_else(policy: str) -> None:
    def prepared() -> tuple[SimulatedDisk, PartitionLog]:
        storage = SimulatedDisk()
        log = filled(storage, 9, replace(deletable(cleanup_policy=(policy,)), retention_bytes=400))
        log.flush(NOW)
        log.delete_records(3)
        return storage, log

    storage, log = prepared()
    storage.fuse = 1000
    delete_old_segments(log, NOW)
    for moment in range(1000 - storage.fuse):
        storage, log = prepared()
        storage.fuse = moment
        with pytest.raises(CutShort):
            delete_old_segments(log, NOW)
        storage.lose_power(random.Random(moment))
        log = PartitionLog.open(storage, DIRECTORY, log.config, NOW, recovery_point=9, log_start_offset=3)
        assert log.log_end_offset == 9
        assert log.log_start_offset in (3, 4)
        assert [len(list(records.scan(log.read(offset, 1, min_one_batch=True).read()))) for offset in range(4, 9)]
        assert not [name for name in storage.files if name.endswith(".deleted")]
        delete_old_segments(log, NOW)
        assert log.log_start_offset == (4 if policy == "delete" else 3)


def test_a_log_that_was_cut_below_its_start_begins_there() -> None:
    storage = SimulatedDisk()
    log = filled(storage, 5)
    log.abandon()
    storage.files.clear()
    log = PartitionLog.open(storage, DIRECTORY, SMALL, NOW, log_start_offset=4)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (4, 4, [4])
    log.append(batch(), 0, NOW)
    log.abandon()
    log = PartitionLog.open(storage, DIRECTORY, SMALL, NOW, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (7, 7, [7])
    assert log.append(batch(), 0, NOW).base_offset == 7
