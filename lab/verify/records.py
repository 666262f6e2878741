"""The records of a cell: produced idempotently, acknowledged one by one, and read back to compare.

librdkafka is used on both sides, so that the judge does not depend on our own client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from lab.bench import load
from lab.bench.load import DEADLINE_S, QUIET, LoadError
from lab.verify import evolving

PARTITIONS = 2
REJECTED_EVERY = 3
DOCUMENT_FIELD = "number"
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, order=True)
class TopicRecord:
    """One record, with its partition and offset."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Create a topic.

    Raises:
        LoadError: with the broker's reason.
    """
    load.create_topic(bootstrap_servers, topic, PARTITIONS)


TOPIC_NUMBERS = 1_000
"""The records of a topic have numbers from here on times the topic's index."""


def topic_index(key: bytes) -> int:
    """Return the index of the topic to which a record with this key was sent."""
    return int(key.rpartition(b"-")[2]) // TOPIC_NUMBERS


def make(numbers: Sequence[int]) -> list[tuple[int, bytes, bytes]]:
    """Return partition, key and value of the records with these numbers; all are unique."""
    return [(number % PARTITIONS, b"key-%d" % number, b"value of record %d" % number) for number in numbers]


def make_documents(numbers: Sequence[int]) -> list[tuple[int, bytes, bytes]]:
    """Return the same records as JSON, except that rejected ones (`is_rejected`) do not parse."""
    return [
        (partition, key, value if is_rejected(value) else document(number))
        for number, (partition, key, value) in zip(numbers, make(numbers), strict=True)
    ]


def make_evolving(numbers: Sequence[int], *, ambiguous: bool) -> list[tuple[int, bytes, bytes]]:
    """Return the same records as Avro, except that rejected ones (`is_rejected`) do not parse.

    With ``ambiguous``, one is included whose outcome depends on the schema's version.
    """
    return [
        (partition, key, value if is_rejected(value) else evolving.value(number, ambiguous=ambiguous))
        for number, (partition, key, value) in zip(numbers, make(numbers), strict=True)
    ]


def document(number: int | None) -> bytes:
    """Return the JSON of a record; its one field is `DOCUMENT_FIELD`."""
    return b'{"%s":%s}' % (DOCUMENT_FIELD.encode(), b"null" if number is None else b"%d" % number)


def is_rejected(value: bytes) -> bool:
    """Whether the pipelines with dead letters reject a record: every third, and some in each partition.

    A value without a number is no record of ours, and is rejected, too. One that begins with the byte 0 is Avro.
    """
    if value[:1] == b"\0":
        return False
    number = re.search(rb"\d+", value)
    return number is None or int(number[0]) % REJECTED_EVERY == 0


@dataclass(slots=True)
class Sending:
    """Records in flight to a topic."""

    topic: str
    producer: Producer
    sent: int = 0
    acknowledged: list[tuple[bytes, bytes]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, bootstrap_servers: str, topic: str, records: Sequence[tuple[int, bytes, bytes]]) -> Sending:
        """Pass records to a new idempotent producer."""
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        sending = cls(topic, Producer({**settings, **QUIET}))
        sending.send(records)
        return sending

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Pass records to the producer, without waiting."""
        for partition, key, value in records:
            self.producer.produce(self.topic, value, key, partition, on_delivery=self._delivered)
        self.sent += len(records)
        self.producer.poll(0)

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> list[tuple[bytes, bytes]]:
        """Wait for all acknowledgements, and return key and value of each; ``meanwhile`` is called repeatedly.

        Raises:
            LoadError: if the producer gave a record up, or took too long.
        """
        deadline = time.monotonic() + DEADLINE_S
        while len(self.acknowledged) + len(self.failures) < self.sent:
            if time.monotonic() > deadline:
                self.failures.append(f"not acknowledged within {DEADLINE_S:g} s")
                break
            self.producer.poll(_POLL_S)
            meanwhile()
        if self.failures:
            raise LoadError(f"producing to {self.topic}: {self.failures[0]}")
        return self.acknowledged

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append((message.key(), message.value()))
        else:
            self.failures.append(error.str())


@dataclass(frozen=True, slots=True)
class Delivered:
    """One record of an output topic, as a read_committed consumer gets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    at_ms: int = field(default=0, compare=False)
    """Its timestamp: when the pipeline passed it to the producer."""


def read_topic(
    bootstrap_servers: str, topic: str, partitions: int = PARTITIONS, isolation: str = "read_uncommitted"
) -> list[TopicRecord]:
    """Read a topic from its beginning to its end, which is the last stable offset for ``read_committed``.

    Raises:
        LoadError: if that takes too long, or a broker returns an error that is not retriable.
    """
    found = load.read_to_end(bootstrap_servers, topic, partitions, isolation)
    return sorted(TopicRecord(each.partition(), each.offset(), each.key(), each.value()) for each in found)


def read_delivered(bootstrap_servers: str, topic: str) -> list[Delivered]:
    """Read the committed records of a cell's output topic.

    Raises:
        LoadError: as `read_topic`.
    """
    found = load.read_to_end(bootstrap_servers, topic, PARTITIONS, "read_committed")
    return [Delivered(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1]) for each in found]


def await_uncommitted(
    bootstrap_servers: str, topic: str, partitions: int, wanted: Callable[[bytes], bool], limit_s: float
) -> None:
    """Wait until a topic has a record whose value is ``wanted``, committed or not.

    Raises:
        LoadError: if there is none in time.
    """
    for message in load.messages(bootstrap_servers, topic, partitions, "read_uncommitted", limit_s):
        if message.error() is None and wanted(message.value()):
            return
