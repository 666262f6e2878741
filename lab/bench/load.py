"""Topics and records, through confluent-kafka, equal on any broker; and the records' contents.

Values are random bytes, words that compress, or documents with typed fields. A pool of values is made once and used
over and over, equal in each run: large enough that a Parquet writer finds few repetitions, and making them
costs the producer nothing.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

DEADLINE_S = 120
QUIET = {"log_level": 2, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
"""For clients whose brokers are killed: reconnect soon, and do not log lost connections."""
_POLL_EVERY = 1000
_POLL_S = 0.02
_ASK_AGAIN_S = 0.01
DISTINCT_VALUES = 10_007
"""A prime: every partition gets all of them."""
DOCUMENT_SCHEMA = (
    "id BIGINT, device STRING, site STRING, at TIMESTAMP, day DATE, temperature DOUBLE, humidity DOUBLE, "
    "count INT, valid BOOLEAN, note STRING"
)
"""The schema of `documents`: ten columns of seven types."""
_WORDS = ("arrival", "departure", "delayed", "gate", "runway", "boarding", "carrier", "origin", "distance", "cancelled")
KEPT_SITE = "gate"
"""A tenth of the documents have it."""
_BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)


class LoadError(RuntimeError):
    """A topic could not be created, filled or read."""


def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    replication_factor: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Create a topic, and wait until its partitions answer: Kafka reports it as created before they have leaders.

    Raises:
        LoadError: with the broker's reason.
    """
    admin = admin_of(bootstrap_servers)
    try:
        wanted = NewTopic(topic, partitions, replication_factor, config=dict(settings or {}))
        admin.create_topics([wanted])[topic].result(DEADLINE_S)
    except KafkaException as error:
        raise LoadError(f"topic {topic} on {bootstrap_servers}: {error}") from error
    records_in(bootstrap_servers, topic, partitions)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic, so that a long run does not fill the disk.

    Raises:
        LoadError: with the broker's reason.
    """
    admin = admin_of(bootstrap_servers)
    try:
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
    except KafkaException as error:
        raise LoadError(f"topic {topic} on {bootstrap_servers}: {error}") from error


def records_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Return the sum of a topic's end offsets, from one request: the records of a new topic, markers included.

    Partitions without an answer yet, because they have no leader or the broker recovers, are asked again.

    Raises:
        LoadError: if a partition does not answer in time.
    """
    admin = admin_of(bootstrap_servers)
    wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            found = admin.list_offsets(wanted, request_timeout=DEADLINE_S)
            return sum(future.result(DEADLINE_S).offset for future in found.values())
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise LoadError(f"topic {topic} on {bootstrap_servers}: {error}") from error
            time.sleep(_ASK_AGAIN_S)


def committed_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Count the records of a topic that a ``read_committed`` reader sees, by reading them.

    Raises:
        LoadError: if that takes too long, or fails.
    """
    return sum(1 for _ in read_to_end(bootstrap_servers, topic, partitions, "read_committed"))


def read_to_end(bootstrap_servers: str, topic: str, partitions: int, isolation: str) -> Iterator[Message]:
    """Yield the records of a topic from its beginning to its end: the last stable offset for ``read_committed``.

    Raises:
        LoadError: if that takes too long, or fails.
    """
    unfinished = set(range(partitions))
    for message in messages(bootstrap_servers, topic, partitions, isolation, DEADLINE_S):
        if message.error() is None:
            yield message
            continue
        unfinished.discard(message.partition())
        if not unfinished:
            return


def messages(bootstrap_servers: str, topic: str, partitions: int, isolation: str, limit_s: float) -> Iterator[Message]:
    """Yield the records of a topic from its beginning, and the ends of partitions, until the caller stops.

    Raises:
        LoadError: if that takes too long, or a broker returns an error that is not retriable.
    """
    deadline = time.monotonic() + limit_s
    with closing(reader(bootstrap_servers, isolation)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while time.monotonic() < deadline:
            for message in consumer.consume(_POLL_EVERY, _POLL_S):
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    yield message
                elif not error.retriable():
                    raise LoadError(f"reading {topic} on {bootstrap_servers}: {error.str()}")
    raise LoadError(f"reading {topic} on {bootstrap_servers}, {isolation}: not through within {limit_s:g} s")


def reader(bootstrap_servers: str, isolation: str) -> Consumer:
    """Return a consumer without a group that reports the ends of partitions: a log may end in markers, not in a record.

    A lost broker is not logged, and reconnected soon.
    """
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            **QUIET,
        }
    )


def admin_of(bootstrap_servers: str) -> AdminClient:
    """Return an admin client that logs almost nothing."""
    # Level 2 is critical: at its end an admin client logs an event that was not fetched, and before that a lost
    # broker.
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


def fill(
    bootstrap_servers: str, topic: str, rows: int, values: Sequence[bytes], partitions: int, compression: str = "none"
) -> None:
    """Produce ``rows`` records without keys, round-robin over the topic's first ``partitions`` and over the values.

    Raises:
        LoadError: if a record was not acknowledged.
    """
    # Batches as large as Kafka's tools make in the broker benchmarks, rather than librdkafka's megabyte.
    settings = {"linger.ms": 20, "batch.size": 65536, "compression.type": compression}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
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


def random_bytes(size: int) -> Sequence[bytes]:
    """Return values of ``size`` bytes that do not compress."""
    dealer = random.Random(1)  # noqa: S311 - alike in each run
    return [dealer.randbytes(size) for _ in range(DISTINCT_VALUES)]


def words(size: int) -> Sequence[bytes]:
    """Return values of ``size`` bytes of text, which compress to about a third."""
    dealer = random.Random(2)  # noqa: S311 - alike in each run
    made = (
        f"{dealer.randrange(10**9):09d} {' '.join(dealer.choices(_WORDS, k=size // 4))}" for _ in range(DISTINCT_VALUES)
    )
    return [text.encode()[:size] for text in made]


def documents() -> Sequence[bytes]:
    """Return JSON objects with every field of `DOCUMENT_SCHEMA`, about 230 bytes each."""
    dealer = random.Random(3)  # noqa: S311 - alike in each run
    return [json.dumps(_document(dealer), separators=(",", ":")).encode() for _ in range(DISTINCT_VALUES)]


def kept_of(rows: int) -> int:
    """Return how many of the first ``rows`` records of `documents` are of the site `KEPT_SITE`."""
    kept: list[bool] = [json.loads(document)["site"] == KEPT_SITE for document in documents()]
    rounds, rest = divmod(rows, len(kept))
    return rounds * sum(kept) + sum(kept[:rest])


def _document(dealer: random.Random) -> dict[str, object]:
    at = _BEGINNING + timedelta(milliseconds=dealer.randrange(10**10))
    return {
        "id": dealer.randrange(10**12),
        "device": f"device-{dealer.randrange(10**6):06d}",
        "site": dealer.choice(_WORDS),
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "day": at.date().isoformat(),
        "temperature": round(dealer.uniform(-20, 40), 2),
        "humidity": round(dealer.uniform(0, 100), 1),
        "count": dealer.randrange(10**4),
        "valid": dealer.random() < 0.9,
        "note": " ".join(dealer.choices(_WORDS, k=4)),
    }
