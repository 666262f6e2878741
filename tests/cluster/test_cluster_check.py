"""The files of a real cluster agree; each way in which they may not is told, with the place."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from sparkonce import BrokerStartError, EmbeddedCluster
from sparkonce.broker_lite.cluster.metadata_log import FOLDER
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH, encode_partition_metadata
from sparkonce.broker_lite.log.log_manager import TOPICS_FILE
from sparkonce.broker_lite.log.topics_file import Entry, decode, encode
from sparkonce.broker_lite.server import membership
from sparkonce.jobs.cli.cluster_check import read_image, trusted
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.protocol.records import scan, set_base_offset, validate, write_crc
from tests.cluster.files import arguments_of

RECORDS = 30
SEGMENT_BYTES = "1024"
BROKERS = (1, 2, 3)
CUT = 3


def older_log(stopped: Path) -> Path:
    """The controller's log as it was before there were topics."""
    return stopped.with_name("older-log")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three brokers that have replicated a topic of several segments, one batch for each record."""
    folder = tmp_path_factory.mktemp("cluster")
    # Topics are counted below, and clients of other tests may ask for theirs at an address that they know.
    config = {"min.insync.replicas": 2, "auto.create.topics.enable": False}
    with EmbeddedCluster(3, folder, config=config) as cluster:
        shutil.copytree(folder / "metadata" / FOLDER, older_log(folder))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topics = [
            NewTopic("t", 1, 3, config={"segment.bytes": SEGMENT_BYTES}),
            NewTopic("c", 1, 3, config={"cleanup.policy": "compact"}),
        ]
        for made in admin.create_topics(topics).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number)
            assert producer.flush(60) == 0
        producer.produce("c", b"value", b"key")
        assert producer.flush(60) == 0
        cluster.wait_in_sync()
    return folder


@pytest.fixture
def cluster(stopped: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(stopped, tmp_path / "copy")


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = main(["cluster-check", *arguments_of(folder)])
    return status, capsys.readouterr().out


def segments(folder: Path, broker_id: int) -> list[Path]:
    return sorted((folder / str(broker_id) / "t-0").glob("*.log"))


def test_replicas_that_agree_are_right(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(segments(cluster, 1)) > 1
    status, said = check(cluster, capsys)
    assert said == f"RESULT partitions=2 replicas=6 batches={3 * (RECORDS + 1)} compacted=1 violations=0\n"
    assert status == 0


def cut_the_end(paths: list[Path]) -> None:
    """Let the last batches be gone: several, since of the last one nobody may know that it is safe."""
    *_, before, last = paths
    last.write_bytes(b"")
    data = before.read_bytes()
    before.write_bytes(data[: [position for position, _ in scan(data)][-CUT]])


def change_a_record(path: Path) -> None:
    """Let the first batch of a segment say something else, with a checksum that fits."""
    data = bytearray(path.read_bytes())
    size = validate(data).size
    batch = data[:size]
    batch[-2] ^= 1
    write_crc(batch)
    data[:size] = batch
    path.write_bytes(data)


def repeat_a_batch(path: Path) -> None:
    """Let the last batch of a segment come twice, as an idempotent producer's that was not recognized."""
    data = path.read_bytes()
    position, header = list(scan(data))[-1]
    again = bytearray(data[position:])
    set_base_offset(again, header.next_offset)
    path.write_bytes(data + again)


def damage(path: Path) -> None:
    """Flip a bit."""
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("invariant", "change", "segment"), [("logs-match", change_a_record, 0), ("whole", damage, 0)])
@pytest.mark.parametrize("broker_id", BROKERS)
def test_a_replica_that_differs_is_told(
    cluster: Path,
    capsys: pytest.CaptureFixture[str],
    invariant: str,
    change: Callable[[Path], None],
    segment: int,
    broker_id: int,
) -> None:
    change(segments(cluster, broker_id)[segment])
    status, said = check(cluster, capsys)
    assert said.startswith(f"VIOLATION {invariant}: ")
    assert "t-0" in said.splitlines()[0]
    assert status == 1


def who_must_have_all(cluster: Path) -> int:
    image, _, _ = read_image(cluster / "metadata")
    topic = image.topic("t")
    assert topic is not None
    return trusted(topic.partitions[0])[0]


def test_one_in_sync_whose_log_is_shorter_is_told(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut_the_end(segments(cluster, who_must_have_all(cluster)))
    status, said = check(cluster, capsys)
    assert "VIOLATION safe-in-sync: t-0: " in said
    assert status == 1


def test_one_in_sync_whose_log_is_gone_is_told(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = cluster / str(who_must_have_all(cluster)) / "t-0"
    shutil.rmtree(gone)
    status, said = check(cluster, capsys)
    assert f"VIOLATION whole: {gone}: it ends at offset 0, and had safe records below " in said
    assert "VIOLATION safe-in-sync: t-0: " in said
    assert status == 1


def test_a_partition_that_is_gone_everywhere_is_told(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for broker_id in BROKERS:
        shutil.rmtree(cluster / str(broker_id) / "t-0")
    status, said = check(cluster, capsys)
    assert said.count("t-0: it ends at offset 0, and had safe records below ") == len(BROKERS)
    assert status == 1


def test_damage_in_a_compacted_topic_is_told(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = (cluster / "3" / "c-0").glob("*.log")
    damage(segment)
    status, said = check(cluster, capsys)
    assert said.startswith(f"VIOLATION whole: {segment}: at byte 0 of ")
    assert status == 1


@pytest.mark.parametrize("position", [200, 900, -3])
def test_damage_in_the_controllers_log_is_told(
    cluster: Path, capsys: pytest.CaptureFixture[str], position: int
) -> None:
    (log,) = (cluster / "metadata" / FOLDER).glob("*.log")
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(data)
    status, said = check(cluster, capsys)
    assert said.startswith(f"VIOLATION whole: {log}: ")
    assert status == 1


def test_a_cluster_does_not_begin_from_a_damaged_log(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership, "START_TIMEOUT_S", 1.0)
    (log,) = (cluster / "metadata" / FOLDER).glob("*.log")
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    with pytest.raises(BrokerStartError):
        EmbeddedCluster(3, cluster)
    assert log.read_bytes() == data
    assert f"{log} is damaged: at byte 0 of " in caplog.text
    assert list(cluster.glob("*/*-stray")) == []


@pytest.mark.parametrize("lost", ["position", "start"])
def test_a_log_that_is_older_than_what_a_broker_followed_is_told(
    stopped: Path, cluster: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    """It is an older copy, or the broker has started once more than the log knows."""
    epoch = cluster / "1" / BROKER_EPOCH
    if lost == "start":
        epoch.write_text(f"{int(epoch.read_text()) + 1000}")
    else:
        shutil.rmtree(cluster / "metadata" / FOLDER)
        shutil.copytree(older_log(stopped), cluster / "metadata" / FOLDER)
    status, said = check(cluster, capsys)
    assert f"VIOLATION log-goes-on: {cluster / '1'}: broker 1 followed " in said
    assert status == 1
    for broker_id in BROKERS:
        (cluster / str(broker_id) / BROKER_EPOCH).write_text("-1")
    assert "log-goes-on" not in check(cluster, capsys)[1]  # it is to take any log


def test_topics_of_which_the_log_does_not_know_are_named(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics = cluster / "2" / TOPICS_FILE
    found = decode(topics.read_bytes())
    gone = Entry(uuid.UUID(int=7), 1, {})
    topics.write_bytes(encode(found._replace(topics={**found.topics, "gone": gone})))
    status, said = check(cluster, capsys)
    assert "NOT IN THE CONTROLLER'S LOG: topic gone of broker 2, which puts it aside" in said
    assert status == 0


def test_what_is_left_of_a_former_topic_of_the_name_is_no_replica(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, _, _ = read_image(cluster / "metadata")
    topic = image.topic("t")
    assert topic is not None
    left_behind = next(each for each in BROKERS if each not in trusted(topic.partitions[0]))
    folder = cluster / str(left_behind) / "t-0"
    (folder / "partition.metadata").write_bytes(encode_partition_metadata(uuid.UUID(int=7)))
    change_a_record(segments(cluster, left_behind)[0])
    status, said = check(cluster, capsys)
    assert status == 0, said


def test_brokers_that_are_left_out_are_named(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster-check", str(cluster / "metadata"), str(cluster / "1"), str(cluster / "3")]) == 0
    assert "NOT LOOKED AT: the replicas of broker 2, whose data was not named" in capsys.readouterr().out


def test_a_broker_of_another_cluster_is_refused(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "metadata" / "cluster-id").write_text("other\n")
    assert main(["cluster-check", *arguments_of(cluster)]) == 2
    assert "the controller's log to other" in capsys.readouterr().err


@pytest.mark.parametrize(("unclean", "expected"), [("true", 0), ("false", 1)])
def test_one_that_an_unclean_election_has_left_behind_may_have_called_other_records_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unclean: str, expected: int
) -> None:
    """Where such elections are not allowed, somebody has lost records: by ElectLeaders, or a setting that was there."""
    with EmbeddedCluster(2, tmp_path, config={"min.insync.replicas": 1}) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        allowed = {"unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2]], config=allowed)])["t"].result(60)
        cluster.wait_in_sync()
        cluster.stop(2)
        write(servers, b"of 1")
        cluster.stop(1)
        cluster.restart(2)
        cluster.wait_until(lambda: cluster.leader("t", 0) == 2, "broker 2 does not lead")
        write(servers, b"of 2")
        setting = ConfigEntry("unclean.leader.election.enable", unclean, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[setting])
        admin.incremental_alter_configs([resource])[resource].result(60)
    status, said = check(tmp_path, capsys)
    assert status == expected, said
    assert said.startswith("VIOLATION safe-stays: t-0: " if expected else "RESULT ")


def write(bootstrap_servers: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    producer.produce("t", value)
    assert producer.flush(60) == 0


def test_a_batch_that_is_there_twice_is_told(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for broker_id in BROKERS:
        repeat_a_batch(segments(cluster, broker_id)[-1])
        marks = cluster / str(broker_id) / "replication-offset-checkpoint"
        marks.write_text(marks.read_text().replace(f"t 0 {RECORDS}", f"t 0 {RECORDS + 1}"))
    status, said = check(cluster, capsys)
    assert said.startswith("VIOLATION no-duplicates: t-0: ")
    assert status == 1


def test_a_cluster_that_runs_is_not_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster(1, tmp_path):
        assert main(["cluster-check", *arguments_of(tmp_path)]) == 2
    assert f"a broker runs on {tmp_path / '1'}: stop it first" in capsys.readouterr().err


def test_what_is_no_cluster_is_refused(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster-check", str(tmp_path / "nowhere"), str(cluster / "1")]) == 2
    assert "nowhere holds no controller's log: name the brokers' metadata.log.dir" in capsys.readouterr().err
    assert main(["cluster-check", str(cluster / "metadata"), str(tmp_path)]) == 2
    assert f"{tmp_path} is no broker's data directory" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["zookeeper://", "zookeeper:///x", "zookeeper://127.0.0.1:abc/x"])
def test_an_address_that_is_none_of_a_zookeeper_is_refused(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster-check", place, "data"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("sparkonce cluster-check: zookeeper.connect=")
    assert "expected host:port of each server" in told
