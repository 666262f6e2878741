"""The admin clients of confluent-kafka and kafka-python: topics, partitions, settings, records, and a crash."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import confluent_kafka.admin as confluent
import kafka.admin as kafka_python
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition

from sparkonce import EmbeddedBroker

TIMEOUT_S = 30


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as embedded:
        yield embedded


def produce(broker: EmbeddedBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_confluent_kafka(broker: EmbeddedBroker) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    made = admin.create_topics([confluent.NewTopic("t", 1, 1, config={"retention.ms": "100000"})])
    made["t"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([confluent.NewTopic("t", 1)])["t"].result(TIMEOUT_S)
    admin.create_partitions([confluent.NewPartitions("t", 3)])["t"].result(TIMEOUT_S)
    assert len(admin.list_topics("t", TIMEOUT_S).topics["t"].partitions) == 3

    entry = confluent.ConfigEntry("cleanup.policy", "compact", incremental_operation=confluent.AlterConfigOpType.APPEND)
    topic = confluent.ConfigResource(confluent.ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([topic])[topic].result(TIMEOUT_S)
    configs = admin.describe_configs([topic])[topic].result(TIMEOUT_S)
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["retention.ms"].value == "100000"
    assert configs["retention.ms"].source == confluent.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert configs["segment.ms"].is_default

    produce(broker, "t", 5)
    where = TopicPartition("t", 0, 3)
    assert admin.delete_records([where])[where].result(TIMEOUT_S).low_watermark == 3
    earliest = admin.list_offsets({TopicPartition("t", 0): confluent.OffsetSpec.earliest()})
    assert next(iter(earliest.values())).result(TIMEOUT_S).offset == 3
    node = confluent.ConfigResource(confluent.ResourceType.BROKER, "0")
    assert admin.describe_configs([node])[node].result(TIMEOUT_S)["num.partitions"].is_read_only
    elected = admin.elect_leaders(confluent_election_type(), [TopicPartition("t", 0)]).result(TIMEOUT_S)
    assert next(iter(elected.values())).name() == "ELECTION_NOT_NEEDED"
    admin.delete_topics(["t"])["t"].result(TIMEOUT_S)


def confluent_election_type() -> object:
    from confluent_kafka import ElectionType

    return ElectionType.PREFERRED


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kafka_python(broker: EmbeddedBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        admin.create_topics(
            {"t": {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "100000"}}}
        )
        admin.create_partitions({"t": 2})
        topic = kafka_python.ConfigResource(kafka_python.ConfigResourceType.TOPIC, "t", {"segment.ms": "7000"})
        admin.alter_configs([topic])
        asked = kafka_python.ConfigResource(kafka_python.ConfigResourceType.TOPIC, "t", None)
        configs = admin.describe_configs([asked])["topic"]["t"]
        assert {name: each["value"] for name, each in configs.items()} == {
            "retention.ms": "100000",
            "segment.ms": "7000",
        }
        produce(broker, "t", 5)
        admin.delete_records({KafkaPythonPartition("t", 0): 2})
        (node,) = admin.describe_log_dirs()
        assert {each["name"] for each in node["log_dirs"][0]["topics"]} == {"t"}
        (described,) = admin.describe_topic_partitions(["t"])["topics"]
        assert len(described["partitions"]) == 2
        assert admin.list_partition_reassignments() == {}
    finally:
        admin.close()
        gc.collect()  # kafka-python leaves sockets for the garbage collector; let that happen here


def test_what_was_changed_survives_a_crash() -> None:
    with EmbeddedBroker(process=True) as broker:
        admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([confluent.NewTopic("t", 1)])["t"].result(TIMEOUT_S)
        changes = {
            confluent.ConfigResource(confluent.ResourceType.TOPIC, "t"): "max.message.bytes",
            confluent.ConfigResource(confluent.ResourceType.BROKER, "0"): "message.max.bytes",
        }
        for resource, name in changes.items():
            operation = confluent.AlterConfigOpType.SET
            resource.add_incremental_config(confluent.ConfigEntry(name, "5000", incremental_operation=operation))
        for future in admin.incremental_alter_configs(list(changes)).values():
            future.result(TIMEOUT_S)
        produce(broker, "t", 3)
        where = TopicPartition("t", 0, 2)
        admin.delete_records([where])[where].result(TIMEOUT_S)
        broker.kill()
        broker.restart()
        again = confluent.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for resource, name in changes.items():
            assert again.describe_configs([resource])[resource].result(TIMEOUT_S)[name].value == "5000"
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        try:
            # Where the log starts is written down every minute; until then a crash brings records back, as in Kafka.
            assert consumer.get_watermark_offsets(TopicPartition("t", 0), TIMEOUT_S)[1] == 3
        finally:
            consumer.close()
