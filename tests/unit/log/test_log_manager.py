"""All partitions of a broker: topics come, stay and go, also when the broker does not stop cleanly."""

from __future__ import annotations

import errno
import random
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log import checkpoints, directories
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import LogDirectoryError, check_topic_name
from sparkonce.broker_lite.log.housekeeping import delete_old_segments
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.member_logs import MemberLogs
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.storage import DiskStorage, Storage
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record
from tests.cases import each_case
from tests.unit.log.managing import change_topic, create_topic, delete_topic, forget_topics

NOW = 1_700_000_000_000
LOG_DIR = "/data"
TOPIC_ID = uuid.UUID(int=77)


def open_manager(
    storage: Storage, log_dir: str = LOG_DIR, kind: type[LogManager] = LogManager, **options: Any
) -> LogManager:
    ids = iter(range(1000, 2000))
    return kind.open(storage, log_dir, LogConfig(), NOW, new_uuid=lambda: uuid.UUID(int=next(ids)), **options)


def append(manager: LogManager, topic: str, index: int, count: int = 1) -> None:
    for _ in range(count):
        batch = records.encode_batch([Record(None, b"v", NOW)])
        manager.partition(topic, index).append(batch, 0, NOW)


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    return (SimulatedDisk(), LOG_DIR) if request.param == "memory" else (DiskStorage(), str(tmp_path / "data"))


def test_topics_survive_a_clean_restart(place: tuple[Storage, str]) -> None:
    manager = open_manager(*place)
    topic = create_topic(manager, "t", 3, TOPIC_ID, {"segment.bytes": "5000"}, NOW)
    assert manager.topics["t"] is manager.topic_by_id(TOPIC_ID) is topic
    append(manager, "t", 2, 5)
    cluster_id = manager.cluster_id
    assert not manager.clean
    manager.close(NOW)
    manager = open_manager(*place)
    topic = manager.topics["t"]
    assert manager.clean
    assert (topic.topic_id, topic.partition_count, topic.settings) == (TOPIC_ID, 3, {"segment.bytes": "5000"})
    assert topic.config.segment_bytes == 5000
    assert [log.log_end_offset for log in topic.logs.values()] == [0, 0, 5]
    assert manager.cluster_id == cluster_id
    manager.abandon()
    manager = open_manager(*place)
    assert not manager.clean
    assert manager.partition("t", 2).log_end_offset == 5
    manager.abandon()


def test_unknown_partitions() -> None:
    manager = open_manager(SimulatedDisk())
    create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    for topic, index in (("u", 0), ("t", 1), ("t", -1)):
        with pytest.raises(KafkaError) as caught:
            manager.partition(topic, index)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert manager.topic_by_id(uuid.UUID(int=1)) is None


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "code"),
    [
        ("t", 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("u", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("u", 10_001, {}, ErrorCode.INVALID_PARTITIONS),
        ("u", 1, {"nonsense": "1"}, ErrorCode.INVALID_CONFIG),
        ("..", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_topics_that_cannot_be(name: str, partitions: int, settings: dict[str, str], code: ErrorCode) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    before = storage.list_directory(LOG_DIR)
    with pytest.raises(KafkaError) as caught:
        create_topic(manager, name, partitions, uuid.UUID(int=5), settings, NOW)
    assert caught.value.code is code
    assert storage.list_directory(LOG_DIR) == before
    check_topic_name("x" * 249)


def test_a_deleted_topic_is_gone_and_its_name_is_free(place: tuple[Storage, str]) -> None:
    storage, log_dir = place
    manager = open_manager(*place)
    create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 5)
    delete_topic(manager, "t", NOW)
    assert manager.topics == {}
    assert manager.topic_by_id(TOPIC_ID) is None
    assert not [name for name in storage.list_directory(log_dir) if name.startswith("t-")]
    create_topic(manager, "t", 1, uuid.UUID(int=78), {}, NOW)
    manager.abandon()
    manager = open_manager(*place)
    assert manager.topics["t"].topic_id == uuid.UUID(int=78)
    assert manager.partition("t", 0).log_end_offset == 0
    manager.abandon()


@pytest.mark.parametrize("between", ["nothing", "crash", "checkpoint", "full disk"])
def test_a_topic_made_again_gets_no_offsets_of_the_one_that_was_deleted(between: str) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "kept", 1, uuid.UUID(int=76), {}, NOW)
    create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
    for topic in ("kept", "t"):
        append(manager, topic, 0, 100)
        manager.partition(topic, 0).delete_records(60)
        manager.partition(topic, 0).cleaned_offset = 70
    manager.checkpoint()
    manager.checkpoint_cleaner()
    delete_topic(manager, "t", NOW)
    if between == "crash":
        manager.abandon()
        manager = open_manager(storage)
    elif between == "checkpoint":
        manager.checkpoint()
    elif between == "full disk":
        storage.write_error = OSError(28, "No space left on device")
        with pytest.raises(KafkaError) as caught:
            create_topic(manager, "t", 1, uuid.UUID(int=78), {}, NOW)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert list(manager.topics) == ["kept"]
        storage.write_error = None
    create_topic(manager, "t", 1, uuid.UUID(int=78), {}, NOW)
    append(manager, "t", 0, 10)
    manager.abandon()
    manager = open_manager(storage)
    log = manager.partition("t", 0)
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, 10, None)
    log = manager.partition("kept", 0)
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (60, 100, 70)


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = open_manager(DiskStorage(), str(tmp_path))
    create_topic(manager, "x" * 249, 1, TOPIC_ID, {}, NOW)
    delete_topic(manager, "x" * 249, NOW)
    manager.abandon()


def test_creations_and_deletions_that_were_cut_short(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 1)
    manager.abandon()
    storage.make_directory(f"{LOG_DIR}/t-1")
    storage.make_directory(f"{LOG_DIR}/new-0")
    for name in ("t-1", "new-0"):
        storage.write(f"{LOG_DIR}/{name}/partition.metadata.tmp", b"", durable=True)
    old = directories.aside_path(LOG_DIR, "old", 0, directories.DELETED_SUFFIX, lambda: uuid.UUID(int=1))
    storage.make_directory(old)
    storage.write(f"{old}/{0:020d}.log", b"x", durable=True)
    manager = open_manager(storage)
    assert list(manager.topics) == ["t"]
    names = [name for name in storage.list_directory(LOG_DIR) if name.startswith(("t-", "new-", "old-"))]
    assert [name.split(".")[0] for name in names] == ["new-0", "t-0", "t-1"]
    assert [name.endswith("-stray") for name in names] == [True, False, True]
    assert caplog.text.count("belongs to no topic") == 2
    manager.abandon()
    assert list(open_manager(storage).topics) == ["t"]


def test_a_deletion_of_many_partitions_that_was_cut_short_is_finished(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    topic = create_topic(manager, "t", 3, TOPIC_ID, {}, NOW)
    other = create_topic(manager, "other", 1, uuid.UUID(int=7), {}, NOW)
    for index in range(3):
        append(manager, "t", index, 1)
    forget_topics(manager, [topic], NOW)
    manager.remove_deleted("t")
    manager.abandon()
    storage.make_directory(f"{LOG_DIR}/t-7")  # not of that topic
    storage.write(f"{LOG_DIR}/t-7/{0:020d}.log", b"x", durable=True)
    manager = open_manager(storage)
    assert list(manager.topics) == ["other"]
    assert manager.deletions == {TOPIC_ID: "t"}
    assert manager.topics["other"].topic_id == other.topic_id
    names = [name for name in storage.list_directory(LOG_DIR) if name.startswith("t-")]
    assert [name.split(".")[0] for name in names] == ["t-7"]
    assert caplog.text.count("belongs to no topic") == 1
    manager.finish_deletions([TOPIC_ID])
    manager.close(NOW)
    assert not open_manager(storage).deletions


def test_a_deletion_that_was_refused_after_all_is_none_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may be there, and the flush of its folder have failed."""
    storage = SimulatedDisk()
    manager = open_manager(storage)
    topic = create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 1)
    whole = storage.write
    failures = [OSError(errno.EIO, "the folder's flush fails")]

    def write(path: str, data: bytes, *, durable: bool) -> None:
        whole(path, data, durable=durable)
        if path.endswith("topics.json") and failures:
            raise failures.pop()

    monkeypatch.setattr(storage, "write", write)
    with pytest.raises(KafkaError):
        forget_topics(manager, [topic], NOW)
    append(manager, "t", 0, 1)
    manager.abandon()
    manager = open_manager(storage)
    assert manager.partition("t", 0).log_end_offset == 2


def test_a_change_that_was_refused_after_all_is_none_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    whole = storage.write
    failures = [OSError(errno.EIO, "the folder's flush fails")]

    def write(path: str, data: bytes, *, durable: bool) -> None:
        whole(path, data, durable=durable)
        if path.endswith("topics.json") and failures:
            raise failures.pop()

    monkeypatch.setattr(storage, "write", write)
    with pytest.raises(KafkaError):
        create_topic(manager, "u", 1, uuid.uuid4(), {}, NOW)
    manager.abandon()
    assert set(open_manager(storage).topics) == {"t"}


def test_a_directory_without_topics_file_is_taken_over() -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "a-1", 2, TOPIC_ID, {}, NOW)
    append(manager, "a-1", 0, 1)
    append(manager, "a-1", 1, 3)
    manager.close(NOW)
    storage.remove(f"{LOG_DIR}/topics.json")
    storage.remove(f"{LOG_DIR}/a-1-1/partition.metadata")
    storage.make_directory(f"{LOG_DIR}/__cluster_metadata-0")
    manager = open_manager(storage)
    assert list(manager.topics) == ["a-1"]
    assert storage.is_directory(f"{LOG_DIR}/__cluster_metadata-0")
    assert manager.topics["a-1"].topic_id == TOPIC_ID
    assert [log.log_end_offset for log in manager.topics["a-1"].logs.values()] == [1, 3]
    manager.abandon()
    assert open_manager(storage).topics["a-1"].topic_id == TOPIC_ID


def test_nothing_of_a_topic_that_is_taken_over_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    compacted = {"cleanup.policy": "compact", "segment.bytes": "2000"}
    for index, name in enumerate(("__consumer_offsets", "old", "older")):
        create_topic(manager, name, 2, uuid.UUID(int=index + 1), compacted, NOW)
        manager.partition(name, 1).append(records.encode_batch([Record(b"k", b"v", NOW)]), 0, NOW)
        manager.partition(name, 1).roll(NOW)
    manager.close(NOW)
    storage.remove(f"{LOG_DIR}/topics.json")
    for defaults in (LogConfig(cleanup_policy=("compact",)), LogConfig(retention_ms=1, retention_bytes=0)):
        manager = LogManager.open(
            storage, LOG_DIR, defaults, NOW, internal_topics={"__consumer_offsets": compacted, "__other": {}}
        )
        assert manager.topics["__consumer_offsets"].settings == compacted
        for name in ("old", "older"):
            assert "compact" not in manager.topics[name].config.cleanup_policy
        for name in manager.topics:
            assert delete_old_segments(manager.partition(name, 1), NOW + 1_000_000_000_000) == 0
        manager.close(NOW)
    assert caplog.text.count("whose settings are not known (old, older)") == 1
    manager = open_manager(storage)
    old = manager.topics["old"]
    change_topic(manager, "old", 2, old.topic_id, {"retention.ms": "1000"}, NOW)
    assert delete_old_segments(manager.partition("old", 1), NOW + 1001) == 1


def test_two_brokers_cannot_share_a_directory(place: tuple[Storage, str]) -> None:
    manager = open_manager(*place)
    with pytest.raises(LogDirectoryError, match="in use by another broker"):
        open_manager(*place)
    manager.abandon()
    open_manager(*place).abandon()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has no node.id"),
        (b"# only a comment\n", "it has no node.id"),
        (b"version=1\ncluster.id=mine\n", "it has no node.id"),
        (b"version=1\ncluster.id=mine\nnode.id=x\n", "node.id='x'"),
        (b"version=1\ncluster.id=mi", "it has no node.id"),
        (b"node.id=0\nclus", "'clus' is no name=value"),
        (b"\0\0\0\0", "is no name=value"),
        (b"node.id=0\n\xff=", "it is not UTF-8"),
    ],
)
def test_a_damaged_meta_properties_is_refused(content: bytes, said: str) -> None:
    storage = SimulatedDisk()
    open_manager(storage).close(NOW)
    storage.write(f"{LOG_DIR}/meta.properties", content, durable=True)
    expected = rf"/data/meta\.properties is damaged \(.*{re.escape(said)}.*\): restore it, or remove it"
    with pytest.raises(LogDirectoryError, match=expected):
        open_manager(storage)
    storage.remove(f"{LOG_DIR}/meta.properties")
    assert open_manager(storage).cluster_id, "the refusal lets go of the directory, and the cure works"


@pytest.mark.parametrize("configured", ["", "mine"])
@pytest.mark.parametrize("lacking", [b"version=1\nnode.id=0\n", b"version=0\nbroker.id=0\ncluster.id=\n"])
def test_a_cluster_id_that_is_missing_is_written(lacking: bytes, configured: str) -> None:
    storage = SimulatedDisk()
    storage.make_directory(LOG_DIR)
    storage.write(f"{LOG_DIR}/meta.properties", lacking, durable=True)
    manager = open_manager(storage, cluster_id=configured)
    cluster_id = manager.cluster_id
    manager.close(NOW)
    assert cluster_id == (configured or cluster_id) != ""
    assert f"cluster.id={cluster_id}\n".encode() in storage.read(f"{LOG_DIR}/meta.properties")
    assert open_manager(storage).cluster_id == cluster_id


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    storage = SimulatedDisk()
    open_manager(storage, cluster_id="mine", node_id=3).close(NOW)
    with pytest.raises(LogDirectoryError, match=r"cluster\.id=mine, not yours"):
        open_manager(storage, cluster_id="yours", node_id=3)
    with pytest.raises(LogDirectoryError, match=r"node\.id=3, not 0"):
        open_manager(storage)
    assert open_manager(storage, node_id=3).cluster_id == "mine"


def test_a_damaged_topics_file_is_an_error_that_says_what_to_do() -> None:
    storage = SimulatedDisk()
    open_manager(storage).close(NOW)
    for bad in (b"{", b"[]", b'{"topics": {"t": {}}}', b'{"topics": {"t": {"id": "x", "partitions": 1}}}'):
        storage.write(f"{LOG_DIR}/topics.json", bad, durable=True)
        with pytest.raises(LogDirectoryError, match="restore it, or remove it"):
            open_manager(storage)


@each_case(
    ("old", "new"),
    [
        ('"version": 1', '"version": 2'),
        ('"version": 1, ', ""),
        ('"partitions": 2', '"partitions": 0'),
        ('"partitions": 2', '"partitions": -1'),
        ('"partitions": 2', '"partitions": 1.5'),
        ('"partitions": 2', '"partitions": "2"'),
        ('"u"', '"../elsewhere"'),
        ('"settings": {}', '"settings": []'),
        ('"settings": {}', '"settings": {"retention.ms": 1000}'),
        ('"settings": {}', '"settings": {"retention.ms": "soon"}'),
        (checkpoints.encode_uuid(uuid.UUID(int=2)), checkpoints.encode_uuid(uuid.UUID(int=1))),
    ],
)
def test_nothing_in_the_topics_file_is_guessed(old: str, new: str) -> None:
    """A broker that started with fewer topics or partitions would put their records aside, or lose them by defaults."""
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 2, uuid.UUID(int=1), {}, NOW)
    create_topic(manager, "u", 1, uuid.UUID(int=2), {}, NOW)
    append(manager, "t", 1)
    manager.close(NOW)
    path = f"{LOG_DIR}/topics.json"
    good = storage.read(path)
    assert old in good.decode()
    storage.write(path, good.decode().replace(old, new).encode(), durable=True)
    with pytest.raises(LogDirectoryError, match=re.escape(path)):
        open_manager(storage)
    storage.write(path, good, durable=True)
    assert open_manager(storage).partition("t", 1).log_end_offset == 1


@pytest.mark.parametrize("kind", [LogManager, MemberLogs])
def test_the_records_of_a_topic_made_again_are_not_those_of_the_one_in_an_older_topics_file(
    caplog: pytest.LogCaptureFixture, kind: type[LogManager]
) -> None:
    """As when a part of a directory is restored from a backup: clients ask by the id (KIP-516)."""
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 2)
    append(manager, "t", 1, 2)
    older = storage.read(f"{LOG_DIR}/topics.json")
    delete_topic(manager, "t", NOW)
    create_topic(manager, "t", 2, uuid.UUID(int=78), {}, NOW)
    append(manager, "t", 0, 3)
    manager.partition("t", 0).delete_records(2)
    append(manager, "t", 1, 3)
    manager.close(NOW)
    storage.write(f"{LOG_DIR}/topics.json", older, durable=True)
    storage.remove(f"{LOG_DIR}/t-1/partition.metadata")  # this one might be either's
    manager = open_manager(storage, kind=kind)
    assert {index: log.log_end_offset for index, log in manager.topics["t"].logs.items() if log.log_end_offset} == {
        1: 3
    }
    line = caplog.records[0].getMessage()
    assert line.startswith(
        f"{LOG_DIR}/t-0 of topic id {checkpoints.encode_uuid(uuid.UUID(int=78))} belongs to no topic"
    )
    (aside,) = (name for name in storage.list_directory(LOG_DIR) if name.endswith("-stray"))
    assert f"{0:020d}.log" in storage.list_directory(f"{LOG_DIR}/{aside}")


def test_a_directory_that_is_taken_over_has_the_id_that_any_partition_names() -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
    append(manager, "t", 0)
    append(manager, "t", 1)
    manager.close(NOW)
    for name in ("topics.json", "t-0/partition.metadata"):
        storage.remove(f"{LOG_DIR}/{name}")
    for _ in range(2):
        manager = open_manager(storage)
        assert manager.topics["t"].topic_id == TOPIC_ID
        assert [log.log_end_offset for log in manager.topics["t"].logs.values()] == [1, 1]
        manager.close(NOW)


def test_checkpoints_are_written_and_a_damaged_one_costs_only_time(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 2, TOPIC_ID, {"flush.ms": "100"}, NOW)
    append(manager, "t", 1, 4)
    manager.checkpoint()
    assert storage.read(f"{LOG_DIR}/recovery-point-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 0\n"
    manager.flush_due(NOW + 100)
    assert storage.read(f"{LOG_DIR}/recovery-point-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 0\n"
    manager.flush_due(NOW + 60_000)
    assert storage.read(f"{LOG_DIR}/recovery-point-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 4\n"
    assert storage.read(f"{LOG_DIR}/replication-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 4\n"
    assert storage.read(f"{LOG_DIR}/log-start-offset-checkpoint") == b"0\n0\n"
    manager.abandon()
    storage.write(f"{LOG_DIR}/recovery-point-offset-checkpoint", b"what", durable=True)
    storage.write(f"{LOG_DIR}/log-start-offset-checkpoint", b"0\n1\nt 1 2\n", durable=True)
    manager = open_manager(storage)
    assert "going on without it" in caplog.text
    assert (manager.partition("t", 1).log_start_offset, manager.partition("t", 1).log_end_offset) == (2, 4)
    with pytest.raises(KafkaError):
        manager.partition("t", 1).read(1, 100, min_one_batch=True)
    assert finish(manager.partition("t", 1).offset_for_timestamp(0)) == (NOW, 2)
    manager.checkpoint()
    assert storage.read(f"{LOG_DIR}/log-start-offset-checkpoint") == b"0\n1\nt 1 2\n"


def test_a_disk_that_fails_one_log_leaves_the_others_durable(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    manager = open_manager(storage)
    create_topic(manager, "t", 3, TOPIC_ID, {"flush.ms": "100"}, NOW)
    for index in range(3):
        append(manager, "t", index, 4)
    storage.flush_errors = [OSError(5, "fsync failed")]
    for later in (100, 200, 60_000):
        manager.flush_due(NOW + later)
    assert [log.recovery_point for log in manager.topics["t"].logs.values()] == [0, 4, 4]
    assert storage.read(f"{LOG_DIR}/recovery-point-offset-checkpoint") == b"0\n3\nt 0 0\nt 1 4\nt 2 4\n"
    assert caplog.text.count("a flush has failed") == 1
    append(manager, "t", 1)
    with pytest.raises(OSError, match="fsync failed"):
        manager.close(NOW)
    assert not storage.locks
    manager = open_manager(storage)  # with a new disk
    assert not manager.clean
    append(manager, "t", 0)
    assert [log.log_end_offset for log in manager.topics["t"].logs.values()] == [5, 5, 4]


@each_case("seed", range(20))
def test_topics_that_were_answered_for_survive_a_loss_of_power(seed: int) -> None:
    rng = random.Random(seed)
    storage = SimulatedDisk()
    manager = open_manager(storage)
    wanted: dict[str, uuid.UUID] = {}
    for step in range(rng.randint(1, 15)):
        if wanted and rng.random() < 0.3:
            delete_topic(manager, wanted.popitem()[0], NOW)
        else:
            name = f"t{step}"
            wanted[name] = uuid.UUID(int=step + 1)
            create_topic(manager, name, rng.randint(1, 3), wanted[name], {}, NOW)
            append(manager, name, 0, rng.randint(0, 3))
        if rng.random() < 0.2:
            manager.checkpoint()
    storage.lose_power(rng)
    manager = open_manager(storage)
    assert {topic.name: topic.topic_id for topic in manager.topics.values()} == wanted
    for name in wanted:
        append(manager, name, 0)


def test_disk_storage_flushes_in_the_background(tmp_path: Path) -> None:
    storage = DiskStorage()
    path = str(tmp_path / "x")
    file = storage.open(path)
    file.append(b"abc")
    file.append(memoryview(b"def"))
    assert (file.size, storage.size(path), file.pread(3, 2)) == (6, 6, b"cde")
    storage.flush_later([path, str(tmp_path), str(tmp_path / "gone")]).result()
    file.truncate(2)
    file.append(b"z")
    file.flush()
    assert storage.read(path) == b"abz"
    assert file.fileno() > 0
    file.close()
    file.close()
    storage.close()
    assert storage.flush_later([path]).result() is None
    storage.close()


def test_a_partition_that_is_a_link_is_deleted_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    """As of Kafka's logs that somebody has moved to another disk."""
    data, other = tmp_path / "data", tmp_path / "other"
    manager = open_manager(DiskStorage(), str(data))
    topic = create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 1)
    manager.close(NOW)
    other.mkdir()
    (data / "t-0").rename(other / "t-0")
    (data / "t-0").symlink_to(other / "t-0")
    manager = open_manager(DiskStorage(), str(data))
    topic = manager.topics["t"]
    forget_topics(manager, [topic], NOW)
    manager.abandon()
    manager = open_manager(DiskStorage(), str(data))
    assert not manager.topics
    manager.close(NOW)
    assert not list(data.glob("t-0*"))
    assert list(other.iterdir()) == [other / "t-0"]


def test_a_folder_that_is_gone_with_its_records_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = open_manager(DiskStorage(), str(tmp_path))
    create_topic(manager, "t", 2, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 3)
    manager.close(NOW)
    shutil.rmtree(tmp_path / "t-0")
    manager = open_manager(DiskStorage(), str(tmp_path))
    assert manager.partition("t", 0).log_end_offset == 0
    manager.close(NOW)
    (line,) = (record.getMessage() for record in caplog.records if "is gone" in record.getMessage())
    assert line.startswith(f"{tmp_path}/t-0 is gone, with records up to offset 3: the partition begins empty")


def test_a_file_that_is_gone_with_its_records_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = open_manager(DiskStorage(), str(tmp_path))
    create_topic(manager, "t", 1, TOPIC_ID, {}, NOW)
    append(manager, "t", 0, 3)
    manager.close(NOW)
    manager = open_manager(DiskStorage(), str(tmp_path))
    manager.close(NOW)
    assert "on the disk up to" not in caplog.text
    (tmp_path / "t-0" / f"{0:020}.log").unlink()
    manager = open_manager(DiskStorage(), str(tmp_path))
    manager.close(NOW)
    assert "t-0 ends at offset 0, and was on the disk up to 3: " in caplog.text
