"""The logs of a cluster's broker: they come, change and go as the cluster says, and high watermarks are read back."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log import directories
from sparkonce.broker_lite.log.checkpoints import RECOVERY_POINTS
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.log_manager import LogManager, Topic, WantedTopic
from sparkonce.broker_lite.log.member_logs import MemberLogs
from sparkonce.broker_lite.log.steps import finish
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record

NOW = 1_700_000_000_000
LOG_DIR = "/data"
ID = uuid.UUID(int=77)


def open_logs(storage: SimulatedDisk) -> LogManager:
    ids = iter(range(1000, 2000))
    new_uuid = lambda: uuid.UUID(int=next(ids))  # noqa: E731
    return MemberLogs.open(storage, LOG_DIR, LogConfig(), NOW, new_uuid=new_uuid)


def topic(
    name: str = "t", count: int = 3, here: Collection[int] = (0, 2), *, topic_id: uuid.UUID = ID, **settings: str
) -> WantedTopic:
    named: Mapping[str, str] = {name.replace("_", "."): value for name, value in settings.items()}
    return WantedTopic(name, topic_id, count, here, named)


def fill(logs: LogManager, index: int, count: int, safe: int) -> None:
    log = logs.log_of((ID, index))
    for _ in range(count):
        log.append(records.encode_batch([Record(None, b"v", NOW)]), 0, NOW)
    log.advance_high_watermark(safe)


def take(logs: LogManager, wanted: Collection[WantedTopic]) -> list[Topic] | None:
    """Have all logs match these topics; return the topics that are gone, None if nothing has changed."""
    ids = {each.topic_id for each in wanted}
    gone = [each for each in logs.topics.values() if each.topic_id not in ids]
    return gone if finish(logs.take(wanted, gone, NOW)) else None


def names(storage: SimulatedDisk) -> list[str]:
    return [each for each in storage.list_directory(LOG_DIR) if each.startswith("t-")]


def test_only_the_partitions_that_have_a_replica_here_have_a_log() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    assert take(logs, [topic()]) == []
    assert (logs.topics["t"].partition_count, sorted(logs.topics["t"].logs)) == (3, [0, 2])
    assert take(logs, [topic()]) is None
    with pytest.raises(KafkaError) as refused:
        logs.log_of((ID, 1))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fill(logs, 0, 1, 1)
    logs.close(NOW)
    again = open_logs(storage)
    assert (again.topics["t"].partition_count, sorted(again.topics["t"].logs)) == (3, [0, 2])
    assert take(again, [topic()]) is None


def test_settings_replicas_and_the_number_of_partitions_change() -> None:
    logs = open_logs(SimulatedDisk())
    take(logs, [topic()])
    kept = logs.log_of((ID, 2))
    fill(logs, 2, 3, 3)
    assert take(logs, [topic(count=5, here=(1, 2), segment_bytes="5000")]) == []
    assert (logs.topics["t"].partition_count, sorted(logs.topics["t"].logs)) == (5, [1, 2])
    assert logs.log_of((ID, 2)) is kept
    assert {each.config.segment_bytes for each in logs.topics["t"].logs.values()} == {5000}


def test_a_topic_that_is_deleted_takes_its_files_with_it_and_its_namesake_begins_anew() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic()])
    fill(logs, 0, 5, 4)
    logs.checkpoint()
    gone = take(logs, [topic(topic_id=uuid.UUID(int=78))])
    assert gone is not None
    assert [each.topic_id for each in gone] == [ID]
    assert logs.topics["t"].logs[0].log_end_offset == 0
    logs.abandon()
    again = open_logs(storage)
    assert again.log_of((uuid.UUID(int=78), 2)).high_watermark == 0
    gone = take(again, [])
    assert gone is not None
    assert again.topics == {}


def test_what_a_cluster_does_not_know_at_first_is_put_aside_and_what_it_deletes_later_is_removed() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic()])
    fill(logs, 0, 1, 1)
    logs.close(NOW)
    logs = open_logs(storage)
    take(logs, [])
    assert all(each.endswith("-stray") for each in names(storage))
    assert len(names(storage)) == 2
    take(logs, [topic(here=(1,))])
    assert len(names(storage)) == 3
    take(logs, [])
    while logs.remove_deleted():
        pass
    assert len(names(storage)) == 2


def test_what_cannot_be_put_aside_is_not_removed_either() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    other = topic("t-other", topic_id=uuid.UUID(int=9))
    take(logs, [topic(), other])
    before = names(storage)
    logs.close(NOW)
    logs = open_logs(storage)
    storage.broken = True
    take(logs, [])
    storage.broken = False
    take(logs, [])
    assert not logs.remove_deleted()
    assert names(storage) == before
    logs.abandon()
    take(open_logs(storage), [])
    assert [each.partition(".")[0] for each in names(storage)] == before
    assert all(each.endswith("-stray") for each in names(storage))


def warned_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said of partitions that have less than they had, without where they are and why that may be."""
    said = [each.message for each in caplog.records if "was replicated up to" in each.message]
    return [each.rpartition("/")[2].partition(": unless")[0] for each in said]


def test_a_partition_whose_folder_is_gone_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic()])
    fill(logs, 0, 5, 3)
    fill(logs, 2, 2, 2)
    logs.flush_due(NOW)
    directories.remove_log(storage, logs.log_of((ID, 0)).directory)
    logs.abandon()
    open_logs(storage)
    assert warned_of(caplog) == ["t-0: it ends at offset 0, but was replicated up to 3"]


def test_high_watermarks_are_read_back_and_never_beyond_the_end(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic()])
    fill(logs, 0, 5, 3)
    fill(logs, 2, 2, 2)
    logs.flush_due(NOW)
    fill(logs, 0, 1, 5)  # too late for the file
    logs.log_of((ID, 2)).truncate_to(1)
    logs.abandon()
    again = open_logs(storage)
    assert [again.log_of((ID, index)).high_watermark for index in (0, 2)] == [3, 1]
    assert warned_of(caplog) == ["t-2: it ends at offset 1, but was replicated up to 2"]
    again.log_of((ID, 0)).advance_high_watermark(6)
    again.flush_due(NOW + again.high_watermark_interval_ms - 1)
    again.abandon()
    assert open_logs(storage).log_of((ID, 0)).high_watermark == 6


def test_a_topic_does_not_begin_with_the_high_watermark_of_one_that_had_its_name() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic(here=(0,))])
    fill(logs, 0, 3, 3)
    logs.flush_due(NOW)
    take(logs, [topic(here=(0,), topic_id=uuid.UUID(int=78))])
    log = logs.log_of((uuid.UUID(int=78), 0))
    for _ in range(3):
        log.append(records.encode_batch([Record(None, b"w", NOW)]), 0, NOW)
    logs.abandon()
    assert open_logs(storage).log_of((uuid.UUID(int=78), 0)).high_watermark == 0


def test_a_replica_that_comes_back_does_not_begin_with_the_recovery_point_that_it_had() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    here, away = topic(here=(0,), segment_bytes="150"), topic(here=(), segment_bytes="150")
    take(logs, [here])
    fill(logs, 0, 9, 9)
    logs.log_of((ID, 0)).flush(NOW)
    logs.checkpoint()
    take(logs, [away])
    take(logs, [here])
    fill(logs, 0, 9, 9)
    log = logs.log_of((ID, 0))
    second = log.segments[1].base_offset
    logs.abandon()
    del storage.files[f"{log.directory}/{0:020d}.log"].data[:]  # as after a loss of power: nothing of it was flushed
    assert second > 0
    assert open_logs(storage).log_of((ID, 0)).log_end_offset == 0


def test_what_comes_after_a_cut_is_not_taken_for_flushed() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic(here=(0,), segment_bytes="150")])
    log = logs.log_of((ID, 0))
    fill(logs, 0, 9, 0)
    log.flush(NOW)
    logs.checkpoint()
    log.truncate_to(2)
    fill(logs, 0, 9, 0)
    second = log.segments[1].base_offset
    logs.abandon()
    storage.process_died()
    storage.files[f"{log.directory}/{second:020d}.log"].data.clear()  # nothing of it was flushed
    again = open_logs(storage).log_of((ID, 0))
    assert (second, again.log_end_offset, again.recovery_point) == (2, 2, 2)


def test_recovery_points_are_written_once_for_all_logs_that_were_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has failed over cuts all that it followed, and the file is about all partitions."""
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic(count=9, here=range(9))])
    for index in range(9):
        fill(logs, index, 3, 0)
        logs.log_of((ID, index)).flush(NOW)
    logs.checkpoint()
    written, write = [], storage.write

    def counted(path: str, *rest: Any, **options: Any) -> None:
        written.append(path.rpartition("/")[2])
        write(path, *rest, **options)

    monkeypatch.setattr(storage, "write", counted)
    for index in range(9):
        logs.log_of((ID, index)).truncate_to(1)
    for index in range(9):
        fill(logs, index, 2, 0)
    assert written.count(RECOVERY_POINTS) == 1


def test_settings_that_no_broker_takes_do_not_keep_a_topic_away() -> None:
    logs = open_logs(SimulatedDisk())
    take(logs, [topic(segment_bytes="none")])
    assert logs.topics["t"].config == LogConfig()
    assert take(logs, [topic(segment_bytes="none")]) is None


def test_a_follower_begins_with_the_whole_batch_that_its_leaders_log_begins_within() -> None:
    logs = open_logs(SimulatedDisk())
    take(logs, [topic(here=(0,)), topic("leader", here=(0,), topic_id=uuid.UUID(int=5))])
    leader, follower = logs.log_of((uuid.UUID(int=5), 0)), logs.log_of((ID, 0))
    for _ in range(2):
        leader.append(records.encode_batch([Record(None, b"v", NOW) for _ in range(4)]), 0, NOW)
    leader.advance_high_watermark(8)
    leader.delete_records(2)
    follower.begin_at(2)
    follower.append_as_follower(leader.read(2, 1000, min_one_batch=True).read(), 0, NOW)
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 8)
    assert follower.read(2, 1000, min_one_batch=True).read() == leader.read(2, 1000, min_one_batch=True).read()
    with pytest.raises(KafkaError) as refused:
        follower.append_as_follower(leader.read(2, 1000, min_one_batch=True).read(), 0, NOW)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_the_disk_refuses_is_made_later_and_written_down_then() -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    take(logs, [topic()])
    storage.write_error = OSError("no space")
    wanted = [topic(), topic("late", topic_id=uuid.UUID(int=9))]
    assert take(logs, wanted) is None
    assert sorted(logs.topics) == ["t"]
    storage.write_error = None
    assert take(logs, wanted) == []
    assert take(logs, wanted) is None
    logs.abandon()
    assert sorted(open_logs(storage).topics) == ["late", "t"]


def test_only_what_does_not_pass_is_a_failure_of_the_directory() -> None:
    for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ENOSPC, errno.ENAMETOOLONG):
        logs = open_logs(SimulatedDisk())
        logs.note_failure(OSError(number, "?"))
        logs.note_failure(KafkaError(ErrorCode.CORRUPT_MESSAGE, "?"))
        logs.note_failure(OSError("without a number"))
        assert logs.failure() is None
    for number in (errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EACCES):
        logs = open_logs(SimulatedDisk())
        told = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "?")
        told.__cause__ = OSError(number, "?")
        logs.note_failure(told)
        assert logs.failure() is told.__cause__


@pytest.mark.parametrize(("continues", "offset"), [(True, 9), (False, 2)])
def test_that_another_log_of_the_controller_is_followed_is_written_down_at_once(continues: bool, offset: int) -> None:
    storage = SimulatedDisk()
    logs = open_logs(storage)
    logs.metadata_position = (1, ID, 9)
    logs.close(NOW)
    logs = open_logs(storage)
    logs.note_metadata_position((1, uuid.UUID(int=7), 2), continues=continues)
    logs.abandon()
    storage.process_died()
    found = open_logs(storage).metadata_position
    assert found is not None
    assert found[2] == offset
