"""Topics and records, through confluent-kafka, alike on any broker."""

from __future__ import annotations

import random

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 120
_POLL_EVERY = 1000


class LoadError(RuntimeError):
    """A topic could not be made or filled."""


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Make a topic, and wait until its partitions answer: Kafka says that it is made before they have leaders.

    Raises:
        LoadError: with the broker's reason.
    """
    admin = _admin(bootstrap_servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)
    except KafkaException as error:
        raise LoadError(f"topic {topic} on {bootstrap_servers}: {error}") from error
    records_in(bootstrap_servers, topic, partitions)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Remove a topic, so that a long run does not fill the disk.

    Raises:
        LoadError: with the broker's reason.
    """
    admin = _admin(bootstrap_servers)
    try:
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
    except KafkaException as error:
        raise LoadError(f"topic {topic} on {bootstrap_servers}: {error}") from error


def records_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Give the number of records in a topic without compaction and transactions: what its end offsets say.

    Raises:
        LoadError: if a partition does not answer in time.
    """
    client = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench", "log_level": 4})
    try:
        ends = [client.get_watermark_offsets(TopicPartition(topic, index), DEADLINE_S) for index in range(partitions)]
    except KafkaException as error:
        raise LoadError(f"topic {topic} on {bootstrap_servers}: {error}") from error
    finally:
        client.close()
    return sum(high - low for low, high in ends)


def _admin(bootstrap_servers: str) -> AdminClient:
    # Level 4 is warnings: at its end an admin client tells about an event that nobody fetched.
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})


def fill(bootstrap_servers: str, topic: str, rows: int, value_bytes: int, partitions: int) -> None:
    """Produce ``rows`` records without keys, dealt to the partitions in turn; the values' bytes are random.

    Raises:
        LoadError: if a record was not acknowledged.
    """
    # Batches as large as Kafka's tools make in the broker benchmarks, rather than librdkafka's megabyte.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "batch.size": 65536})
    dealer = random.Random(1)  # noqa: S311 - bytes that do not compress, alike in each run
    values = [dealer.randbytes(value_bytes) for _ in range(1000)]
    failures: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for row in range(rows):
        while True:
            try:
                producer.produce(topic, values[row % len(values)], partition=row % partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(1)
        if row % _POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(DEADLINE_S)
    if failures or left:
        reason = failures[0] if failures else f"{left} not acknowledged within {DEADLINE_S} s"
        raise LoadError(f"filling {topic} on {bootstrap_servers}: {reason}")
