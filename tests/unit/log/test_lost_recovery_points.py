"""Compacted logs after an unclean stop: which holes between their segments are losses."""

from __future__ import annotations

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log import checkpoints
from sparkonce.broker_lite.log.batch_filter import OffsetMap
from sparkonce.broker_lite.log.cleaner import assess, clean
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.log_manager import TOPICS_FILE, LogManager
from sparkonce.broker_lite.log.member_logs import MemberLogs
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.records import Record
from tests.unit.log.managing import create_topic
from tests.unit.log.test_log_manager import LOG_DIR, NOW, TOPIC_ID, open_manager


def append_keyed(manager: LogManager, key: bytes, value: bytes) -> None:
    manager.partition("t", 0).append(records.encode_batch([Record(key, value, NOW)]), 0, NOW)


def compacted(storage: SimulatedDisk) -> str:
    """Compact a log of a broker that then dies; return the path of its recovery points."""
    manager = open_manager(storage)
    settings = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0"}
    create_topic(manager, "t", 1, TOPIC_ID, settings, NOW)
    for index in range(20):
        append_keyed(manager, b"a", b"%d" % index)
    log = manager.partition("t", 0)
    log.roll(NOW)
    log.flush(NOW)
    manager.checkpoint()
    for step in clean(assess(log, NOW), OffsetMap(1 << 20), NOW):
        if step is not None:
            step.result()
    append_keyed(manager, b"b", b"last")
    manager.abandon()
    return f"{LOG_DIR}/{checkpoints.RECOVERY_POINTS}"


def check_kept(manager: LogManager) -> None:
    log = manager.partition("t", 0)
    kept = [header.base_offset for segment in log.segments for _, header in segment.batches(0)]
    assert (kept, log.log_end_offset) == ([19, 20], 21)


@pytest.mark.parametrize("recovery_points", [None, b"what"])
def test_a_compacted_log_keeps_its_records_where_no_recovery_points_are_left(recovery_points: bytes | None) -> None:
    storage = SimulatedDisk()
    path = compacted(storage)
    if recovery_points is None:
        storage.remove(path)
    else:
        storage.write(path, recovery_points, durable=True)
    for _ in range(2):  # what the first start notes must not make the second one cut the log
        manager = open_manager(storage)
        check_kept(manager)
        manager.checkpoint()
        manager.abandon()


@pytest.mark.parametrize("kind", [LogManager, MemberLogs])
def test_a_log_that_kafka_has_compacted_keeps_its_records_after_two_unclean_stops(kind: type[LogManager]) -> None:
    """Kafka's recovery points, if it was killed, lie before holes that its cleaner has made."""
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 1, TOPIC_ID, {"segment.bytes": "200"}, NOW)
    for index in range(9):
        append_keyed(manager, b"%d" % index, b"")
    segments = manager.partition("t", 0).segments
    hole = segments[1].base_offset, segments[2].base_offset
    manager.abandon()
    for path in [path for path in storage.files if f"/{hole[0]:020d}." in path]:
        storage.remove(path)
    storage.remove(f"{LOG_DIR}/{TOPICS_FILE}")
    storage.write(f"{LOG_DIR}/{checkpoints.RECOVERY_POINTS}", checkpoints.encode_offsets({("t", 0): 1}), durable=True)
    for _ in range(2):
        manager = kind.open(storage, LOG_DIR, LogConfig(), NOW)
        log = manager.partition("t", 0)
        kept = [header.base_offset for segment in log.segments for _, header in segment.batches(0)]
        assert kept == [offset for offset in range(9) if not hole[0] <= offset < hole[1]]
        manager.abandon()


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_hole_beyond_the_recovery_point_ends_a_log_where_compaction_cannot_have_made_it(policy: str) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 1, TOPIC_ID, {"cleanup.policy": policy, "segment.bytes": "200"}, NOW)
    for index in range(6):
        append_keyed(manager, b"%d" % index, b"")
    log = manager.partition("t", 0)
    second, _third, *_ = (segment.base_offset for segment in log.segments[1:])
    manager.abandon()
    storage.files[f"{log.directory}/{second:020d}.log"].data.clear()
    log = open_manager(storage).partition("t", 0)
    assert (log.log_end_offset, [segment.base_offset for segment in log.segments]) == (second, [0, second])


def test_what_comes_in_place_of_files_that_are_gone_is_not_taken_for_flushed() -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 1, TOPIC_ID, {"segment.bytes": "200"}, NOW)
    for index in range(9):
        append_keyed(manager, b"%d" % index, b"")
    log = manager.partition("t", 0)
    log.flush(NOW)
    manager.checkpoint()
    manager.abandon()
    for segment in log.segments[1:]:
        storage.remove(f"{log.directory}/{segment.base_offset:020d}.log")
    manager = open_manager(storage)
    end = manager.partition("t", 0).log_end_offset
    for index in range(9):
        append_keyed(manager, b"%d" % index, b"")
    manager.abandon()
    storage.files[f"{log.directory}/{end:020d}.log"].data.clear()  # as after a loss of power: nothing of it was flushed
    assert open_manager(storage).partition("t", 0).log_end_offset == end
