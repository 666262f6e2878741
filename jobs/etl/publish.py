"""Publish the flights to a topic through librdkafka, idempotently, and count the acknowledged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

POLL_EVERY = 1_000
QUEUE_FULL_WAIT_S = 0.1


class PublishError(RuntimeError):
    """A flight that the broker did not acknowledge."""


def create_topic(bootstrap_servers: str, topic: str, partitions: int, replicas: int = 1) -> None:
    """Create the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result()


def publish(
    bootstrap_servers: str,
    topic: str,
    messages: Iterable[tuple[bytes, bytes]],
    on_acknowledged: Callable[[int], None],
) -> int:
    """Send every message with acks=all and idempotence; return how many were acknowledged.

    ``on_acknowledged`` is called with the running count from time to time, between two sends; it may kill the broker,
    for example.

    Raises:
        PublishError: if the producer gave up a message.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,  # a lost connection is expected, and the producer reconnects
        }
    )
    acknowledged = 0
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(f"{topic}-{message.partition()}: {error.str()}")

    for number, (key, value) in enumerate(messages, 1):
        _send(producer, topic, key, value, delivered)
        if number % POLL_EVERY == 0:
            producer.poll(0)
            on_acknowledged(acknowledged)
    while len(producer):
        producer.poll(QUEUE_FULL_WAIT_S)
        on_acknowledged(acknowledged)
    if failures:
        raise PublishError(f"{len(failures)} flights were not acknowledged, the first: {failures[0]}")
    return acknowledged


def _send(
    producer: Producer,
    topic: str,
    key: bytes,
    value: bytes,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(QUEUE_FULL_WAIT_S)
        except KafkaException as error:
            raise PublishError(f"cannot send to {topic}: {error}") from error
