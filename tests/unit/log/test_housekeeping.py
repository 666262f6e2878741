"""Retention, compaction and forgetting of producers, when they are due and not before, in small steps."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

import pytest

from lab.sim.disk import SimulatedDisk, SimulatedFile
from sparkonce.broker_lite.log import checkpoints
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.housekeeping import Housekeeping, HousekeepingSettings
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.records import Record
from tests.unit.log.managing import create_topic, delete_topic

NOW = 1_700_000_000_000
LOG_DIR = "/data"
SETTINGS = HousekeepingSettings(retention_check_interval_ms=1000, cleaner_backoff_ms=100)
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "600", "min.cleanable.dirty.ratio": "0.1"}


class Place:
    """A log directory, its housekeeping and a clock."""

    def __init__(self, storage: SimulatedDisk, settings: HousekeepingSettings = SETTINGS) -> None:
        self.storage = storage
        ids = iter(range(1, 1000))
        self.logs = LogManager.open(storage, LOG_DIR, LogConfig(), NOW, new_uuid=lambda: uuid.UUID(int=next(ids)))
        self.work = Housekeeping(self.logs, settings, 0)
        self.passed_ms = 0
        self.after(0)

    def make(self, name: str, settings: dict[str, str]) -> PartitionLog:
        return create_topic(self.logs, name, 1, uuid.uuid4(), settings, NOW).logs[0]

    def fill(self, log: PartitionLog, count: int = 60) -> None:
        for index in range(count):
            batch = records.encode_batch([Record(b"%d" % (index % 5), b"%d" % index, NOW)])
            log.append(batch, 0, NOW)
        log.roll(NOW)
        self.storage.close()

    def after(self, milliseconds: int) -> int:
        """Let time pass, and do all that is due; returns the number of steps."""
        self.passed_ms += milliseconds
        steps = 0
        while self.work.step(NOW + self.passed_ms, self.passed_ms) or self.work.busy:
            steps += 1
            for flush in self.storage.pending:
                if not flush.done():
                    flush.result()
        return steps


def keys(log: PartitionLog) -> list[bytes | None]:
    data = b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)
    return [record.key for record in records.decode_all(data)]


def test_a_compacted_topic_is_compacted_when_it_is_due() -> None:
    place = Place(SimulatedDisk())
    log = place.make("c", COMPACTED)
    place.fill(log)
    assert place.after(99) == 0
    assert place.after(1) > 60
    assert sorted(keys(log), key=str) == [b"%d" % index for index in range(5)]
    assert log.cleaned_offset == log.log_end_offset == 60
    written = place.storage.read(f"{LOG_DIR}/{checkpoints.CLEANER_OFFSETS}")
    assert checkpoints.decode_offsets(written) == {("c", 0): 60}
    assert checkpoints.decode_offsets(place.storage.read(f"{LOG_DIR}/{checkpoints.RECOVERY_POINTS}")) == {("c", 0): 60}
    assert place.after(100) == 0
    place.logs.close(NOW)
    again = Place(place.storage)
    assert again.logs.partition("c", 0).cleaned_offset == 60
    assert again.after(100) == 0
    again.logs.abandon()


def test_old_segments_and_deleted_files_go_at_their_times() -> None:
    place = Place(SimulatedDisk())
    log = place.make("d", {"retention.ms": "500", "segment.bytes": "600", "file.delete.delay.ms": "1500"})
    place.fill(log)
    assert place.after(999) == 0
    assert place.after(1) > 0
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    assert [name for name in place.storage.files if name.endswith(".log.deleted")]
    place.after(1499)
    assert [name for name in place.storage.files if name.endswith(".log.deleted")]
    place.after(1001)
    assert not [name for name in place.storage.files if name.endswith(".deleted")]
    place.logs.abandon()


def test_nothing_runs_that_is_switched_off_or_not_asked_for() -> None:
    off = HousekeepingSettings(retention_check_interval_ms=10**9, cleaner_enable=False, cleaner_backoff_ms=100)
    for settings, topic in ((off, COMPACTED), (SETTINGS, {"segment.bytes": "600", "retention.ms": "-1"})):
        place = Place(SimulatedDisk(), settings)
        log = place.make("t", topic)
        place.fill(log)
        place.after(1000)
        assert len(keys(log)) == 60
        place.logs.abandon()


def test_silent_producers_are_forgotten() -> None:
    settings = HousekeepingSettings(producer_id_expiration_ms=5000, producer_id_expiration_check_interval_ms=1000)
    place = Place(SimulatedDisk(), settings)
    log = place.make("t", {})
    for producer, at in ((1, NOW), (2, NOW + 1000)):
        batch = records.encode_batch([Record(None, b"", at)], producer_id=producer, producer_epoch=0, base_sequence=0)
        log.append(batch, 0, at)
    place.after(4999)
    assert [each.producer_id for each in log.producers.entries()] == [1, 2]
    place.after(1000)
    assert [each.producer_id for each in log.producers.entries()] == [2]
    place.logs.close(NOW)
    settings = replace(settings, producer_id_expiration_ms=1)  # by the time of the next start, all have been silent
    again = Place(place.storage, settings)
    again.passed_ms = 10_000
    again.after(0)
    assert again.logs.partition("t", 0).producers.entries() == []
    again.logs.abandon()


def test_a_topic_may_be_deleted_and_made_again_in_the_middle() -> None:
    place = Place(SimulatedDisk())
    log = place.make("c", COMPACTED)
    place.fill(log)
    for _ in range(40):
        place.work.step(NOW, 100)
    assert place.work.cleaning is log
    delete_topic(place.logs, "c", NOW)
    place.after(100)
    assert place.work.cleaning is None
    assert not [name for name in place.storage.files if name.endswith(".cleaned")]
    log = place.make("c", COMPACTED)
    assert log.cleaned_offset is None
    place.fill(log)
    place.after(100)
    assert log.cleaned_offset == 60
    place.logs.abandon()


def test_a_log_that_cannot_be_read_is_left_alone_and_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    place = Place(SimulatedDisk())
    bad, good = place.make("bad", COMPACTED), place.make("good", COMPACTED)
    place.fill(bad)
    place.fill(good)
    content = next(each for name, each in place.storage.files.items() if "bad-0/" in name and name.endswith(".log"))
    content.data[57:61] = b"\x00\x01\x00\x00"  # a batch that claims more records than it has
    place.after(100)
    assert (bad.cleaned_offset, good.cleaned_offset) == (None, 60)
    assert "not compacted any more" in caplog.text
    assert place.after(100) == 0
    place.logs.abandon()


@pytest.mark.parametrize("failure", ["rot", "input/output error"])
def test_one_bad_log_holds_up_no_other(
    failure: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(SimulatedDisk())
    aged = {"retention.ms": "500", "segment.bytes": "600"}
    for name in ("a", "b"):
        place.fill(place.make(f"{name}-deleted", aged))
        place.fill(place.make(f"{name}-compacted", COMPACTED | {"min.compaction.lag.ms": "1"}))
    place.logs.close(NOW)
    bad = [f"{LOG_DIR}/a-deleted-0/", f"{LOG_DIR}/a-compacted-0/"]
    for directory in bad:  # so that the segment itself is read, by retention and for the lag
        del place.storage.files[f"{directory}{0:020d}.timeindex"]
    if failure == "rot":
        for directory in bad:
            place.storage.files[f"{directory}{0:020d}.log"].data[8:12] = b"\0\0\0\5"
    place = Place(place.storage)
    if failure != "rot":
        unreadable = [content for name, content in place.storage.files.items() if name.startswith(tuple(bad))]
        read = SimulatedFile.pread

        def pread(file: SimulatedFile, size: int, position: int) -> bytes:
            if any(file._content is each for each in unreadable):
                raise OSError(5, "Input/output error")
            return read(file, size, position)

        monkeypatch.setattr(SimulatedFile, "pread", pread)
    for _ in range(5):
        place.after(1000)
    assert place.logs.partition("b-deleted", 0).log_start_offset == 60
    assert place.logs.partition("b-compacted", 0).cleaned_offset == 60
    if failure != "rot":  # else the time that the file was written at is what counts
        assert place.logs.partition("a-deleted", 0).log_start_offset == 0
    assert place.logs.partition("a-compacted", 0).cleaned_offset is None
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert sum(each.startswith(f"{bad[0][:-1]}: ") for each in errors) == 1
    assert 1 <= sum(each.startswith(f"{bad[1][:-1]}: ") for each in errors) <= 5  # once for each look at retention
    place.logs.abandon()


def test_a_full_disk_puts_compaction_off(caplog: pytest.LogCaptureFixture) -> None:
    place = Place(SimulatedDisk())
    log = place.make("c", COMPACTED)
    place.fill(log)
    place.storage.room = 50
    place.after(100)
    assert "it is tried again" in caplog.text
    assert log.cleaned_offset is None
    assert not [name for name in place.storage.files if name.endswith(".cleaned")]
    assert len(keys(log)) > 5  # segments that nothing is left of are done, for they need no room
    assert set(keys(log)) == {b"%d" % index for index in range(5)}
    place.storage.room = None
    place.after(999)
    assert log.cleaned_offset is None
    place.after(1)
    assert log.cleaned_offset == 60
    assert len(keys(log)) == 5
    place.logs.abandon()


def test_a_round_that_is_stopped_is_done_again_after_a_start() -> None:
    rng = random.Random(5)
    place = Place(SimulatedDisk())
    place.fill(place.make("c", COMPACTED))
    for _ in range(rng.randint(70, 90)):
        place.work.step(NOW, 100)
    assert place.work.busy
    place.work.close()
    place.logs.close(NOW)
    again = Place(place.storage)
    assert again.after(100) > 60
    assert len(keys(again.logs.partition("c", 0))) == 5
    again.logs.abandon()
