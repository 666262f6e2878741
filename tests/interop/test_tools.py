"""Apache Kafka's command-line tools for topics, settings, offsets, log directories and versions against the broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedBroker
from tests.interop.tools import CONFIG_COMMAND, KafkaTools

pytestmark = pytest.mark.java
NODE = "3"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with EmbeddedBroker(config={"node.id": NODE, "num.partitions": 2}) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def tools(broker: EmbeddedBroker) -> Iterator[KafkaTools]:
    with KafkaTools(broker.bootstrap_servers) as running:
        yield running


def produce(broker: EmbeddedBroker, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def described(text: str) -> dict[str, tuple[str, str]]:
    """Read what ConfigCommand says: the value and the synonyms of each setting."""
    found = re.findall(r"^  (\S+?)=(.*) sensitive=\S+ synonyms=\{(.*)\}$", text, re.MULTILINE)
    return {name: (value, synonyms) for name, value, synonyms in found}


def test_topics_are_made_grown_described_and_deleted(tools: KafkaTools) -> None:
    made = tools.do(
        "TopicCommand", "--create", "--topic", "life", "--partitions", "2", "--config", "retention.ms=10000"
    )
    assert "Created topic life." in made
    tools.do("TopicCommand", "--alter", "--topic", "life", "--partitions", "4")
    said = tools.do("TopicCommand", "--describe", "--topic", "life")
    settings = r"Configs: min.insync.replicas=1,retention.ms=10000"
    assert re.search(rf"PartitionCount: 4\s+ReplicationFactor: 1\s+{settings}", said), said
    assert len(re.findall(rf"Partition: \d\s+Leader: {NODE}\s+Replicas: {NODE}\s+Isr: {NODE}", said)) == 4
    assert tools.do("TopicCommand", "--describe", "--unavailable-partitions").strip() == ""
    assert "life" in tools.do("TopicCommand", "--list").split()
    tools.do("TopicCommand", "--delete", "--topic", "life")
    assert "life" not in tools.do("TopicCommand", "--list").split()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--create", "--topic", "three", "--replication-factor", "3"), "replication factor of 3 cannot be reached"),
        (("--create", "--topic", "none", "--partitions", "0"), "must be greater than 0"),
        (("--create", "--topic", "bad", "--config", "retention.ms=x"), "retention.ms"),
        (("--create", "--topic", "away", "--replica-assignment", "7"), "broker 7, but no such broker is registered"),
        (("--alter", "--topic", "missing", "--partitions", "3"), "does not exist"),
    ],
)
def test_what_cannot_be_is_refused(tools: KafkaTools, arguments: tuple[str, ...], said: str) -> None:
    status, text = tools.run("TopicCommand", *arguments)
    assert status == 1
    assert said in text


def test_a_topics_settings_are_changed_and_shown(tools: KafkaTools) -> None:
    tools.do("TopicCommand", "--create", "--topic", "set")
    entity = ("--entity-type", "topics", "--entity-name", "set")
    tools.configs("--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.bytes=2000000")
    own = described(tools.configs("--describe", *entity))
    assert own == {
        "cleanup.policy": (
            "compact,delete",
            "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete",
        ),
        "segment.bytes": (
            "2000000",
            "DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000, DEFAULT_CONFIG:log.segment.bytes=1073741824",
        ),
    }
    tools.configs("--alter", *entity, "--delete-config", "segment.bytes")
    everything = described(tools.configs("--describe", *entity, "--all"))
    assert everything["segment.bytes"] == ("1073741824", "DEFAULT_CONFIG:log.segment.bytes=1073741824")
    assert everything["retention.ms"] == ("604800000", "")
    status, text = tools.run(CONFIG_COMMAND, "--alter", *entity, "--add-config", "segment.byte=1")
    assert status == 1
    assert "Unknown topic config name: segment.byte" in text


def test_a_brokers_settings_are_changed_and_shown(tools: KafkaTools) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", NODE)
    everything = described(tools.configs("--describe", *entity, "--all"))
    assert everything["num.partitions"] == (
        "2",
        "STATIC_BROKER_CONFIG:num.partitions=2, DEFAULT_CONFIG:num.partitions=1",
    )
    tools.configs("--alter", *entity, "--add-config", "log.retention.ms=5000")
    tools.configs("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=6000")
    assert described(tools.configs("--describe", *entity))["log.retention.ms"] == (
        "5000",
        "DYNAMIC_BROKER_CONFIG:log.retention.ms=5000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=6000, "
        "DEFAULT_CONFIG:log.retention.hours=168",
    )
    tools.configs("--alter", *entity, "--delete-config", "log.retention.ms")
    tools.configs("--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "log.retention.ms")
    assert described(tools.configs("--describe", *entity)) == {}
    status, text = tools.run(CONFIG_COMMAND, "--alter", *entity, "--add-config", "num.partitions=5")
    assert status == 1
    assert "Cannot update these configs dynamically: [num.partitions]" in text


def test_a_groups_settings_are_changed_and_shown(tools: KafkaTools) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "g")
    tools.configs("--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000")
    assert described(tools.configs("--describe", *entity))["consumer.session.timeout.ms"] == (
        "50000",
        "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, "
        "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000",
    )
    assert tools.configs("--describe", "--entity-type", "users").strip() == ""


def test_records_are_deleted_and_offsets_and_sizes_told(
    broker: EmbeddedBroker, tools: KafkaTools, tmp_path: Path
) -> None:
    tools.do("TopicCommand", "--create", "--topic", "some", "--partitions", "2")
    produce(broker, "some", 1, 10)

    def offsets(time: str) -> set[str]:
        return set(tools.do("GetOffsetShell", "--topic", "some", "--time", time).split())

    assert offsets("latest") == {"some:0:0", "some:1:10"}
    wanted = tmp_path / "offsets.json"
    wanted.write_text('{"version": 1, "partitions": [{"topic": "some", "partition": 1, "offset": 4}]}')
    assert "low_watermark: 4" in tools.do("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert offsets("earliest") == {"some:0:0", "some:1:4"}
    said = tools.do("LogDirsCommand", "--describe", "--topic-list", "some")
    (directory,) = directories(said)
    assert directory["logDir"] == str(broker.data_dir)
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes["some-0"] == 0
    assert sizes["some-1"] == sum(path.stat().st_size for path in broker.data_dir.glob("some-1/*.log"))


def directories(said: str) -> list[dict[str, Any]]:
    document = next(line for line in said.splitlines() if line.startswith("{"))
    found: list[dict[str, Any]] = json.loads(document)["brokers"][0]["logDirs"]
    return found


def test_the_versions_are_told(tools: KafkaTools) -> None:
    said = tools.do("BrokerApiVersionsCommand")
    assert f"(id: {NODE} rack: null isFenced: false)" in said
    assert "Fetch(1): 4 to 18 [usable: 18]" in said
    assert "AlterReplicaLogDirs(34): 1 to 2 [usable: 2]" in said
    assert "StreamsGroupHeartbeat(88): UNSUPPORTED" in said


def test_a_broker_by_itself_is_shown_as_a_quorum_of_one(tools: KafkaTools) -> None:
    said = tools.do("MetadataQuorumCommand", "describe", "--status")
    fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    assert (fields["LeaderId"].strip(), fields["MaxFollowerLag"].strip()) == (str(NODE), "0")
    said = tools.do("MetadataQuorumCommand", "describe", "--replication")
    assert said.splitlines()[1].split()[0] == str(NODE)


def test_a_plan_that_names_the_log_directory_is_carried_out_under_a_throttle(
    broker: EmbeddedBroker, tools: KafkaTools, tmp_path: Path
) -> None:
    tools.do("TopicCommand", "--create", "--topic", "planned")
    stays = {"topic": "planned", "partition": 0, "replicas": [int(NODE)], "log_dirs": [str(broker.data_dir)]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [stays]}))
    throttles = ("--throttle", "1000000", "--replica-alter-log-dirs-throttle", "1000000")
    command = ("reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(plan))
    said = tools.do(*command, *throttles)
    assert "The replica-alter-dir throttle limit was set to 1000000 B/s" in said
    assert f"Successfully started moving log directory to {broker.data_dir} for replica planned-0" in said
    said = tools.do("reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", str(plan))
    assert "Reassignment of partition planned-0 is completed" in said


def test_no_election_and_no_move_is_needed(tools: KafkaTools) -> None:
    tools.do("TopicCommand", "--create", "--topic", "stays")
    tools.do("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    said = tools.do("LeaderElectionCommand", "--election-type", "preferred", "--topic", "stays", "--partition", "0")
    assert "Valid replica already elected for partitions stays-0" in said
    assert "No partition reassignments found" in tools.do("reassign.ReassignPartitionsCommand", "--list")
