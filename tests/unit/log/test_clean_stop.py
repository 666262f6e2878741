"""A clean stop: what its mark vouches for is on the disk, and what is there already is not flushed again."""

from __future__ import annotations

import errno
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log import checkpoints, file_system, storage
from sparkonce.broker_lite.log.batch_filter import OffsetMap
from sparkonce.broker_lite.log.cleaner import assess, clean
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.log.storage import DiskStorage, Storage
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.records import Record
from tests.unit.log.managing import create_topic

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SETTINGS = LogConfig(
    cleanup_policy=("compact",), segment_bytes=300, index_interval_bytes=100, min_cleanable_dirty_ratio=0.0
)


def open_log(disk: SimulatedDisk) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, SETTINGS, NOW, clean=True)


def append(log: PartitionLog, epoch: int = 0) -> None:
    log.append(records.encode_batch([Record(b"k", b"v" * 20, NOW)]), epoch, NOW)


def closed_log() -> SimulatedDisk:
    disk = SimulatedDisk()
    log = open_log(disk)
    for _ in range(8):
        append(log)
    log.close(NOW)
    return disk


def as_follower(log: PartitionLog) -> None:
    batch = records.encode_batch([Record(b"k", b"w", NOW)], base_offset=log.log_end_offset, leader_epoch=3)
    log.append_as_follower(batch, 3, NOW)


def cut_and_write_as_much_again(log: PartitionLog) -> None:
    log.be_one_of_several()
    log.truncate_to(7)
    append(log, 9)


def compact(log: PartitionLog) -> None:
    for flush in clean(assess(log, NOW), OffsetMap(1 << 20), NOW):
        if flush is not None:
            flush.result()


CHANGES: dict[str, Callable[[PartitionLog], object]] = {
    "append": append,
    "append as a follower": as_follower,
    "marker": lambda log: log.append_marker(Marker(5, 0, False, 0, 0), 0, NOW),
    "truncate": lambda log: log.truncate_to(5),
    "truncate, and write as much again": cut_and_write_as_much_again,
    "begin at": lambda log: log.begin_at(100),
    "roll": lambda log: log.roll(NOW),
    "delete segments": lambda log: log.drop_segments(1, NOW),
    "compact": compact,
    "epoch": lambda log: log.begin_epoch(7),
}


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: disk.read(path) for path in disk.files}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_nothing_is_lost_with_the_power_after_a_clean_stop(change: Callable[[PartitionLog], object]) -> None:
    for seed in range(8):
        disk = closed_log()
        log = open_log(disk)
        change(log)
        log.close(NOW)
        before = contents(disk)
        disk.lose_power(random.Random(seed), torn=True)
        assert contents(disk) == before, f"seed {seed}"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_was_built_again_is_on_the_disk(suffix: str) -> None:
    """That of an older segment, too, which a clean stop does not flush."""
    for seed in range(8):
        disk = closed_log()
        path = f"{DIRECTORY}/{0:020d}{suffix}"
        good = disk.read(path)
        disk.write(path, b"torn", durable=True)
        log = open_log(disk)
        log.read(0, 1 << 20, True)
        log.close(NOW)
        disk.lose_power(random.Random(seed))
        assert disk.read(path) == good, f"seed {seed}"


def test_an_unchanged_log_is_neither_written_nor_flushed() -> None:
    disk = closed_log()
    log = open_log(disk)
    log.read(0, 1 << 20, True)
    disk.fuse = 0  # the next change ends the process
    log.close(NOW)


def open_manager(place: Storage, directory: str = "/data") -> LogManager:
    return LogManager.open(place, directory, LogConfig(), NOW)


def test_a_failed_flush_of_leader_epochs_leaves_no_mark() -> None:
    disk = SimulatedDisk()
    manager = open_manager(disk)
    create_topic(manager, "t", 1, uuid.UUID(int=7), {}, NOW)
    append(manager.partition("t", 0), epoch=4)
    disk.flush_errors = [OSError(errno.EIO, "Input/output error")]
    with pytest.raises(OSError, match="Input/output error"):
        disk.settle()
    with pytest.raises(OSError, match="Input/output error"):
        manager.close(NOW)
    assert f"/data/{checkpoints.CLEAN_SHUTDOWN}" not in disk.files


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = [str(tmp_path / str(number)) for number in range(storage._MANY_PATHS)]
    for path in found[1:]:  # one is deleted before it is flushed
        Path(path).write_bytes(b"x")
    return found


def flushed_one_by_one(disk: DiskStorage, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    calls: list[int] = []
    with monkeypatch.context() as counting:
        counting.setattr(os, "fsync", calls.append)
        disk.flush_later(paths).result()
    return len(calls)


@pytest.mark.parametrize("reports", [True, False])
def test_many_files_are_flushed_as_a_whole_or_one_by_one(
    reports: bool, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole only if the file system was open since before they were written, and reports errors."""
    if not reports:
        monkeypatch.setattr(file_system, "_REPORTS_ALL_ERRORS", (1_000, 0))
    disk = DiskStorage()
    assert flushed_one_by_one(disk, paths, monkeypatch) == len(paths) - 1
    disk.lock(f"{tmp_path}/.lock").release()
    assert flushed_one_by_one(disk, paths[:9], monkeypatch) == 8
    assert flushed_one_by_one(disk, paths, monkeypatch) in ({0, len(paths) - 1} if reports else {len(paths) - 1})
    disk.close()


def test_after_an_error_of_the_file_system_each_file_is_flushed_ever_after(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, False, True])
    monkeypatch.setattr(file_system, "_flush", lambda _descriptor: next(answers))
    disk = DiskStorage()
    disk.lock(f"{tmp_path}/.lock").release()
    each = len(paths) - 1
    assert [flushed_one_by_one(disk, paths, monkeypatch) for _ in range(3)] == [0, each, each]
    disk.close()
