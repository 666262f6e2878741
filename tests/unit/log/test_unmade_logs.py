"""A new partition has no folder: it is made with the first record, whatever dies or fails on the way."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable

import pytest

from lab.sim.disk import CutShort, SimulatedDisk
from sparkonce.broker_lite.log.checkpoints import PARTITION_METADATA, encode_partition_metadata
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.log_manager import LogManager, Topic, WantedTopic
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.topics_file import Entry
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.unit.log.managing import create_topic, delete_topic

NOW = 1_700_000_000_000
TOPIC_ID = uuid.UUID(int=77)
METADATA = encode_partition_metadata(TOPIC_ID)
LOG_DIR = "/log"


def manager_on(storage: SimulatedDisk) -> LogManager:
    ids = iter(range(1000, 100_000))
    return LogManager.open(storage, LOG_DIR, LogConfig(), NOW, new_uuid=lambda: uuid.UUID(int=next(ids)))


def append(log: PartitionLog, value: bytes = b"v") -> None:
    log.append(bytearray(encode_batch([Record(None, value, NOW)])), max(log.latest_epoch, 0), NOW)


def folders(storage: SimulatedDisk) -> list[str]:
    return [name for name in storage.list_directory(LOG_DIR) if storage.is_directory(f"{LOG_DIR}/{name}")]


def test_a_topic_of_many_partitions_is_one_folder_and_one_write() -> None:
    storage = SimulatedDisk()
    manager = manager_on(storage)
    written = []
    write = storage.write
    storage.write = lambda path, *rest, **more: (written.append(path), write(path, *rest, **more))  # type: ignore
    wanted = [WantedTopic(name, uuid.uuid4(), 500, range(500), {}) for name in "abcd"]
    manager.keep({each.name: Entry(each.topic_id, 500, {}) for each in wanted})
    assert sum(1 for _ in manager.take(wanted, [], NOW)) == 2000
    assert folders(storage) == ["a-499", "b-499", "c-499", "d-499"]
    assert written.count(f"{LOG_DIR}/topics.json") == 1
    append(manager.partition("b", 7))
    assert folders(storage) == ["a-499", "b-499", "b-7", "c-499", "d-499"]
    manager.close(NOW)
    manager = manager_on(storage)
    assert {topic.name: len(topic.logs) for topic in manager.topics.values()} == dict.fromkeys("abcd", 500)
    assert [manager.partition("b", index).log_end_offset for index in (6, 7)] == [0, 1]
    delete_topic(manager, "b", NOW)
    assert folders(storage) == ["a-499", "c-499", "d-499"]
    assert len(folders(storage)) == 3
    storage.remove(f"{LOG_DIR}/topics.json")
    assert {topic.name: topic.partition_count for topic in manager_again(manager, storage)} == dict.fromkeys("acd", 500)


def manager_again(manager: LogManager, storage: SimulatedDisk) -> list[Topic]:
    manager.abandon()
    return list(manager_on(storage).topics.values())


def test_topics_that_cannot_be_written_down_leave_no_folder() -> None:
    storage = SimulatedDisk()
    manager = manager_on(storage)
    storage.room = 1_000
    with pytest.raises(KafkaError) as refused:
        manager.keep({"t" * 200 + str(number): Entry(uuid.uuid4(), 2, {}) for number in range(10)})
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not manager.topics
    assert not folders(storage)
    manager.abandon()
    assert not manager_on(storage).topics


def test_a_death_anywhere_in_a_first_append_leaves_a_log_that_opens() -> None:
    died_at = 0
    while True:
        storage = SimulatedDisk()
        manager = manager_on(storage)
        create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
        storage.fuse = died_at
        try:
            append(manager.partition("t", 0))
        except CutShort:
            acknowledged = 0
        else:
            acknowledged = 1
        storage.process_died()
        manager = manager_on(storage)
        log = manager.partition("t", 0)
        assert log.log_end_offset >= acknowledged
        append(log)
        assert storage.read(f"{log.directory}/{PARTITION_METADATA}") == METADATA
        manager.close(NOW)
        if acknowledged:
            break
        died_at += 1
    assert died_at >= 4, "the folder's files were made on the way"


def test_an_append_that_fails_is_tried_again() -> None:
    storage = SimulatedDisk()
    manager = manager_on(storage)
    create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
    storage.room = 0
    with pytest.raises(KafkaError) as refused:
        append(manager.partition("t", 0))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno == errno.ENOSPC
    storage.room = None
    append(manager.partition("t", 0))
    assert manager.partition("t", 0).log_end_offset == 1


def test_a_flush_brings_the_names_of_a_new_folder_onto_the_disk() -> None:
    """What is acknowledged as flushed must not be in a folder that a loss of power takes away."""
    for close in (lambda log: log.flush(NOW), lambda log: log.roll(NOW), lambda log: log.close(NOW)):
        storage = SimulatedDisk()
        log = PartitionLog.begin(storage, f"{LOG_DIR}/t-0", LogConfig(), NOW, METADATA)
        flushed: list[str] = []
        later: Callable[..., object] = storage.flush_later
        storage.flush_later = lambda paths, later=later, flushed=flushed: (flushed.extend(paths), later(paths))[1]  # type: ignore
        append(log)
        close(log)
        assert {LOG_DIR, f"{LOG_DIR}/t-0"} <= set(flushed)
        storage.lose_power(random.Random(1))


def test_an_empty_replica_keeps_its_epochs_until_it_has_a_folder() -> None:
    storage = SimulatedDisk()
    log = PartitionLog.begin(storage, f"{LOG_DIR}/t-0", LogConfig(), NOW, METADATA)
    log.begin_epoch(3)
    log.begin_epoch(5)
    log.truncate_to(0)
    assert log.latest_epoch == -1
    log.begin_epoch(6)
    assert not storage.is_directory(f"{LOG_DIR}/t-0")
    append(log)
    log.close(NOW)
    again = PartitionLog.open(storage, f"{LOG_DIR}/t-0", LogConfig(), NOW)
    assert (again.latest_epoch, again.log_end_offset) == (6, 1)
    behind = PartitionLog.begin(storage, f"{LOG_DIR}/t-1", LogConfig(), NOW, METADATA)
    behind.begin_at(40)
    behind.close(NOW)
    assert PartitionLog.open(storage, f"{LOG_DIR}/t-1", LogConfig(), NOW).log_end_offset == 40


def test_an_empty_log_without_a_folder_is_read_as_any_other() -> None:
    log = PartitionLog.begin(SimulatedDisk(), f"{LOG_DIR}/t-0", LogConfig(), NOW, METADATA)
    assert log.read(0, 100, min_one_batch=True).read() == b""
    assert (log.size, log.delete_records(-1), finish(log.max_timestamp_offset())) == (0, 0, None)
    assert log.aborted_transactions(0, 10) == []
    log.flush(NOW)
    log.roll(NOW)
    log.close(NOW)
