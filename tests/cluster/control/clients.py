"""What these tests ask clusters with: Confluent's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedCluster
from tests.reading import AT_ONCE, assign

QUIET = {"log_level": 0}


def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "topic.metadata.refresh.fast.interval.ms": 50, **QUIET})


def create(client: AdminClient, name: str, partitions: int = 3, factor: int = 3, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    (future,) = client.create_topics([NewTopic(name, partitions, factor, config=settings)]).values()
    future.result(20)


def refusal(futures: Mapping[Any, Any]) -> str:
    """Return the name of the error that a request of one thing is refused with."""
    (future,) = futures.values()
    error = future.exception(20)
    assert isinstance(error, KafkaException), "it was not refused"
    return str(error.args[0].name())


def leaders(client: AdminClient, topic: str) -> dict[int, int]:
    found = client.list_topics(topic, timeout=10).topics[topic]
    return {index: partition.leader for index, partition in found.partitions.items()}


def told_leaders(cluster: EmbeddedCluster, topic: str, partitions: int) -> dict[int, int]:
    return {index: cluster.leader(topic, index) for index in range(partitions)}


def produce(cluster: EmbeddedCluster, topic: str, partition: int, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET})
    errors = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def consumed(cluster: EmbeddedCluster, topic: str, partition: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", **AT_ONCE, **QUIET})
    assign(consumer, [TopicPartition(topic, partition, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 20)]
    finally:
        consumer.close()
