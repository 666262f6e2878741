"""kafka-python against the broker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec

from sparkonce import EmbeddedBroker
from tests.interop.python_consumer import python_consumer

DEADLINE_MS = 30_000
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collect_what_the_client_leaves() -> Iterator[None]:
    """kafka-python leaves sockets for the garbage collector; let that happen here, where it is known."""
    yield
    gc.collect()


def of_group_g(broker: EmbeddedBroker) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "consumer_timeout_ms": DEADLINE_MS,
    }


def test_produce_and_consume_in_a_group(kafka_broker: EmbeddedBroker) -> None:
    values = [b"%d" % number for number in range(500)]
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers, acks="all")
    for value in values:
        producer.send("t", value, headers=[("h", b"v")])
    producer.flush(DEADLINE_MS / 1000)
    producer.close()
    with python_consumer("t", **of_group_g(kafka_broker)) as consumer:
        got = []
        for message in consumer:
            got.append(message.value)
            if len(got) == len(values):
                break
        assert got == values
        consumer.commit()
        assert consumer.committed(TopicPartition("t", 0)) == len(values)


def test_the_cluster_is_described(kafka_broker: EmbeddedBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap_servers)
    try:
        (node,) = admin.describe_cluster()["brokers"]
        assert f"{node['host']}:{node['port']}" == kafka_broker.bootstrap_servers
        assert admin.list_topics() == []
    finally:
        admin.close()


@pytest.fixture
def admin(kafka_broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap_servers)
    yield client
    client.close()


def test_groups_and_records_are_administered(kafka_broker: EmbeddedBroker, admin: KafkaAdminClient) -> None:
    partition = TopicPartition("t", 0)
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
    for number in range(4):
        producer.send("t", b"%d" % number)
    producer.flush(DEADLINE_MS / 1000)
    producer.close()
    with python_consumer("t", **of_group_g(kafka_broker)) as consumer:
        assert next(consumer).value == b"0"
        consumer.commit()
        (member,) = admin.describe_groups(["g"])["g"]["members"]
        assert member["member_assignment"]["assigned_partitions"] == [{"topic": "t", "partitions": [0]}]
    assert [(each["group_id"], each["group_state"]) for each in admin.list_groups()] == [("g", "Empty")]
    assert admin.list_group_offsets(["g"])["g"][partition].offset == 1
    admin.alter_group_offsets("g", {partition: OffsetAndMetadata(3, "moved", -1)})
    assert admin.list_group_offsets(["g"])["g"][partition].offset == 3
    assert admin.delete_records({partition: 2})[partition]["low_watermark"] == 2
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 2
    admin.delete_group_offsets("g", [partition])
    assert admin.list_group_offsets(["g"])["g"] == {}
    admin.delete_groups(["g"])
    assert admin.list_groups() == []
