"""What the tests of coordinators share: a cluster of three processes, whose coordinators are killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from tests.reading import AT_ONCE, assign

DEADLINE_S = 60.0
QUIET = {"log_level": 2}
"""Broken connections are what these tests make."""

SETTINGS = {
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
"""One partition for all groups, and one for all transactional ids, so that it is known who coordinates them."""


def ready(cluster: EmbeddedCluster) -> None:
    """Bring back who is down, and wait until all have all."""
    for broker_id, broker in cluster.brokers.items():
        if broker.pid is None:
            cluster.restart(broker_id)
        broker.faults.clear()
    cluster.wait_in_sync()


def create_topic(cluster: EmbeddedCluster, name: str, leaders: Sequence[int]) -> None:
    """Make a topic whose partitions are led by these brokers, with a replica on every broker."""
    replicas = [[leader, *(each for each in cluster.brokers if each != leader)] for leader in leaders]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(name, len(leaders), replica_assignment=replicas)
    admin.create_topics([new])[name].result(DEADLINE_S)
    cluster.wait_in_sync()


def group_coordinator(cluster: EmbeddedCluster) -> int:
    """Return the broker that coordinates all groups."""
    return cluster.leader(OFFSETS_TOPIC, 0)


def transaction_coordinator(cluster: EmbeddedCluster) -> int:
    """Return the broker that coordinates all transactions."""
    return cluster.leader(TRANSACTIONS_TOPIC, 0)


def make_internal_topics(cluster: EmbeddedCluster) -> None:
    """Have the coordinators' topics made, by asking for them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "first"})
    producer.init_transactions(DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "first"})
    consumer.committed([TopicPartition("none", 0)], DEADLINE_S)
    consumer.close()
    cluster.wait_in_sync()


def transactional(cluster: EmbeddedCluster, name: str, **settings: Any) -> Producer:
    """Return a producer that may begin its first transaction."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "linger.ms": 0, **QUIET}
    producer = Producer({**config, **{key.replace("_", "."): value for key, value in settings.items()}})
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, topic: str, values: Sequence[str], partitions: int) -> None:
    """Write values to all partitions in turn, and wait until they are acknowledged."""
    failed: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failed


def read(cluster: EmbeddedCluster, topic: str, partitions: int, isolation: str = "read_committed") -> list[str]:
    """Return the values of a topic, sorted, up to its ends (for read_committed, the last stable offsets)."""
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "readers",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**config, "enable.auto.commit": False, "isolation.level": isolation, **AT_ONCE, **QUIET})
    try:
        assign(consumer, [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        values, ends = [], set()
        while len(ends) < partitions:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"nothing more came of {topic}"
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ends.add(message.partition())
            elif message.error().fatal():
                raise KafkaException(message.error())
        return sorted(values)
    finally:
        consumer.close()
