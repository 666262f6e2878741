"""The records of a cell: produced idempotently, acknowledged one by one, and read back to compare.

librdkafka on both sides, so that what the judge believes owes nothing to our own client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
REJECTED_EVERY = 3
DEADLINE_S = 120.0
_POLL_S = 0.02
_QUIET = {"log_level": 2, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
"""A lost connection is the purpose of some cells: it is mended soon, and not logged."""


class RecordsError(RuntimeError):
    """Records could not be produced or read back."""


@dataclass(frozen=True, slots=True, order=True)
class Record:
    """One record, and where it stands in the topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Make a topic.

    Raises:
        RecordsError: with the broker's reason.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET})
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(DEADLINE_S)
    except KafkaException as error:
        raise RecordsError(f"topic {topic} on {bootstrap_servers}: {error}") from error


def make(numbers: Sequence[int]) -> list[tuple[int, bytes, bytes]]:
    """Return partition, key and value of the records with these numbers; no two are alike."""
    return [(number % PARTITIONS, b"key-%d" % number, b"value of record %d" % number) for number in numbers]


def is_rejected(value: bytes) -> bool:
    """Whether the rule of the pipelines with dead letters rejects a record: every third, and some in each partition."""
    return int(value.rpartition(b" ")[2]) % REJECTED_EVERY == 0


@dataclass(slots=True)
class Sending:
    """Records on their way to a topic."""

    topic: str
    producer: Producer
    sent: int = 0
    acknowledged: list[tuple[bytes, bytes]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, bootstrap_servers: str, topic: str, records: Sequence[tuple[int, bytes, bytes]]) -> Sending:
        """Hand records to an idempotent producer."""
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        sending = cls(topic, Producer({**settings, **_QUIET}))
        for partition, key, value in records:
            sending.producer.produce(topic, value, key, partition, on_delivery=sending._delivered)
        sending.sent = len(records)
        return sending

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> list[tuple[bytes, bytes]]:
        """Wait for all acknowledgements, and return key and value of each; ``meanwhile`` is called again and again.

        Raises:
            RecordsError: if the producer gave one up, or took too long.
        """
        deadline = time.monotonic() + DEADLINE_S
        while len(self.acknowledged) + len(self.failures) < self.sent:
            if time.monotonic() > deadline:
                self.failures.append(f"not acknowledged within {DEADLINE_S:g} s")
                break
            self.producer.poll(_POLL_S)
            meanwhile()
        if self.failures:
            raise RecordsError(f"producing to {self.topic}: {self.failures[0]}")
        return self.acknowledged

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append((message.key(), message.value()))
        else:
            self.failures.append(error.str())


@dataclass(frozen=True, slots=True)
class Delivered:
    """One record of a topic that a pipeline writes, as a read_committed consumer gets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    at_ms: int = field(default=0, compare=False)
    """Its timestamp: when the pipeline had it ready to be sent."""


def read_topic(bootstrap_servers: str, topic: str) -> list[Record]:
    """Read a topic of a cell's input from its beginning to its end.

    Raises:
        RecordsError: if that takes too long, or a broker returns an error that is not retriable.
    """
    messages = _read_all(bootstrap_servers, topic, "read_uncommitted")
    return sorted(Record(each.partition(), each.offset(), each.key(), each.value()) for each in messages)


def read_delivered(bootstrap_servers: str, topic: str) -> list[Delivered]:
    """Read what is committed in a topic of a cell's output.

    Raises:
        RecordsError: as `read_topic`.
    """
    messages = _read_all(bootstrap_servers, topic, "read_committed")
    return [Delivered(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1]) for each in messages]


def _read_all(bootstrap_servers: str, topic: str, isolation: str) -> list[Message]:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "judge",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,  # where markers of transactions are the last that a log has, no record tells
        "fetch.wait.max.ms": 20,
    }
    consumer = Consumer({**settings, **_QUIET})
    try:
        partitions = range(PARTITIONS)
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=DEADLINE_S)[1] for each in partitions
        ]
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        return _read_to(consumer, topic, {each for each in partitions if ends[each] > 0})
    except KafkaException as error:
        raise RecordsError(f"reading {topic}: {error}") from error
    finally:
        consumer.close()


def _read_to(consumer: Consumer, topic: str, unfinished: set[int]) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while unfinished:
        if time.monotonic() > deadline:
            raise RecordsError(f"reading {topic}: no end of partitions {sorted(unfinished)} within {DEADLINE_S:g} s")
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(message.partition())
        elif not error.retriable():
            raise RecordsError(f"reading {topic}: {error.str()}")
    return found
