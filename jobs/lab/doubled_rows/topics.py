"""Topics as their readers see them, with librdkafka: what is believed of either sink owes nothing to our own client."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

READ_LIMIT_S = 120.0
_POLL_S = 0.05
_MESSAGES = 1000


class ReadingError(RuntimeError):
    """A topic could not be read to its end, or did not come to hold what was waited for."""


@dataclass(frozen=True, slots=True)
class Found:
    """A record, and where it lies."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def read_committed(bootstrap_servers: str, topic: str, partitions: int) -> list[Found]:
    """Read what ``read_committed`` readers can see of a topic, to its last stable offset.

    Raises:
        ReadingError: if that takes too long, or the broker returns an error that is not retriable.
    """
    found: list[Found] = []
    ended: set[int] = set()

    def take(message: Message) -> bool:
        if message.error() is None:
            found.append(_found(message))
        else:
            ended.add(message.partition())
        return len(ended) == partitions

    _read(bootstrap_servers, topic, partitions, "read_committed", take, READ_LIMIT_S)
    return sorted(found, key=lambda record: (record.partition, record.offset))


def await_uncommitted(
    bootstrap_servers: str, topic: str, partitions: int, wanted: Callable[[bytes], bool], limit_s: float
) -> None:
    """Wait until a topic holds a record whose value is ``wanted``, be its transaction open or not.

    Raises:
        ReadingError: if there is none in time.
    """

    def take(message: Message) -> bool:
        return message.error() is None and wanted(message.value())

    _read(bootstrap_servers, topic, partitions, "read_uncommitted", take, limit_s)


def _read(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    isolation: str,
    take: Callable[[Message], bool],
    limit_s: float,
) -> None:
    """Hand messages to ``take``, and the ends of partitions too, until it says that it has enough."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "judge",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "fetch.wait.max.ms": 50,
    }
    deadline = time.monotonic() + limit_s
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while time.monotonic() < deadline:
            for message in consumer.consume(_MESSAGES, _POLL_S):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise ReadingError(f"reading {topic}: {error.str()}")
                if (error is None or error.code() == KafkaError._PARTITION_EOF) and take(message):
                    return
    raise ReadingError(f"reading {topic}, {isolation}: not through within {limit_s:g} s")


def _found(message: Message) -> Found:
    return Found(message.partition(), message.offset(), message.key(), message.value())
