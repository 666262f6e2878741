"""The records of a cell: produced idempotently, acknowledged one by one, and read back to compare.

librdkafka on both sides, so that what the judge believes owes nothing to our own client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
REJECTED_EVERY = 3
DEADLINE_S = 120.0
_POLL_S = 0.02
_MESSAGES = 1000
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
        """Hand records to a new idempotent producer."""
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        sending = cls(topic, Producer({**settings, **_QUIET}))
        sending.send(records)
        return sending

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Hand records to the producer, without waiting."""
        for partition, key, value in records:
            self.producer.produce(self.topic, value, key, partition, on_delivery=self._delivered)
        self.sent += len(records)
        self.producer.poll(0)

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


def read_topic(
    bootstrap_servers: str, topic: str, partitions: int = PARTITIONS, isolation: str = "read_uncommitted"
) -> list[Record]:
    """Read a topic from its beginning to its end, which is the last stable offset for ``read_committed``.

    Raises:
        RecordsError: if that takes too long, or a broker returns an error that is not retriable.
    """
    found = _read_all(bootstrap_servers, topic, partitions, isolation)
    return sorted(Record(each.partition(), each.offset(), each.key(), each.value()) for each in found)


def read_delivered(bootstrap_servers: str, topic: str) -> list[Delivered]:
    """Read what is committed in a topic of a cell's output.

    Raises:
        RecordsError: as `read_topic`.
    """
    found = _read_all(bootstrap_servers, topic, PARTITIONS, "read_committed")
    return [Delivered(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1]) for each in found]


def await_uncommitted(
    bootstrap_servers: str, topic: str, partitions: int, wanted: Callable[[bytes], bool], limit_s: float
) -> None:
    """Wait until a topic holds a record whose value is ``wanted``, be its transaction open or not.

    Raises:
        RecordsError: if there is none in time.
    """
    for message in _messages(bootstrap_servers, topic, partitions, "read_uncommitted", limit_s):
        if message.error() is None and wanted(message.value()):
            return


def _read_all(bootstrap_servers: str, topic: str, partitions: int, isolation: str) -> list[Message]:
    found: list[Message] = []
    unfinished = set(range(partitions))
    for message in _messages(bootstrap_servers, topic, partitions, isolation, DEADLINE_S):
        if message.error() is None:
            found.append(message)
        else:
            unfinished.discard(message.partition())
            if not unfinished:
                break
    return found


def reader(bootstrap_servers: str, isolation: str) -> Consumer:
    """Return a consumer without a group, which says where partitions end: behind markers no record does."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "judge",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
    }
    return Consumer({**settings, **_QUIET})


def _messages(bootstrap_servers: str, topic: str, partitions: int, isolation: str, limit_s: float) -> Iterator[Message]:
    """Yield the messages of a topic from its beginning, and the ends of its partitions, until the caller has enough.

    Raises:
        RecordsError: if that takes too long, or a broker returns an error that is not retriable.
    """
    deadline = time.monotonic() + limit_s
    with closing(reader(bootstrap_servers, isolation)) as consumer:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        while time.monotonic() < deadline:
            for message in consumer.consume(_MESSAGES, _POLL_S):
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    yield message
                elif not error.retriable():
                    raise RecordsError(f"reading {topic}: {error.str()}")
    raise RecordsError(f"reading {topic}, {isolation}: not through within {limit_s:g} s")
