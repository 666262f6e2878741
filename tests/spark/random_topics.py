"""Topics whose content, and ways of reading them, are drawn from a seed: all that a reader of Kafka may meet.

A topic gets records of several producers with every codec, headers, nulls, empty and large values, transactions that
commit, abort or stay open, offsets that are gone at its beginning, and gaps that compaction leaves.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame
from pyspark.sql.functions import from_json

from sparkonce.connectors.values.ddl import parse_schema
from tests.json_documents import SCHEMA, documents

DEADLINE_S = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_MESSAGE_BYTES = 4 << 20
HOUR_MS = 3_600_000
HEADER_NAMES = ("", "trace", "ключ", "a b", "h" * 300)
OPEN = "open"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
CONDITIONS = ("offset % 3 = 1", "partition < 2 AND offset >= 5")
JSON_CONDITIONS = ("value IS NOT NULL", "offset % 2 = 0")
"""What keeps the same rows in Spark's SQL and in the sink's."""


@dataclass
class RandomTopic:
    """A topic that was filled; ``story`` says how, for a failure's message."""

    name: str
    partitions: int
    begin_ms: int
    span_ms: int = 10 * HOUR_MS
    """Its records have timestamps from ``begin_ms`` on, that grow by and large."""
    story: list[str] = field(default_factory=list)


class Filler:
    """Fills one topic; transactions that stay open do so until the stack is closed."""

    def __init__(self, servers: str, seed: int, records: int, stack: ExitStack) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self._records = records
        self._stack = stack
        self._admin = AdminClient({"bootstrap.servers": servers})

    def make(self) -> RandomTopic:
        pick = self._random
        began_ms = _now_ms()
        topic = RandomTopic(f"random-{uuid.uuid4().hex[:12]}", pick.randint(1, 4), began_ms - 20 * HOUR_MS)
        log_append_time = pick.random() < 0.3
        settings = {
            "message.timestamp.type": "LogAppendTime" if log_append_time else "CreateTime",
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            "compression.type": pick.choice(("producer", "producer", *CODECS[1:])),
        }
        create(self._admin, topic.name, topic.partitions, settings)
        topic.story.append(f"{topic.partitions} partitions, {settings}")
        left = self._records
        while left > 0:
            count = min(pick.randint(1, max(self._records // 4, 2)), left)
            left -= count
            at_ms = topic.begin_ms + topic.span_ms * (self._records - left) // self._records
            self._burst(topic, count, at_ms, pick.choice((None, None, "commit", "abort")))
        if pick.random() < 0.4:
            self._burst(topic, pick.randint(1, 20), topic.begin_ms + topic.span_ms, OPEN)
            self._burst(topic, pick.randint(1, 20), topic.begin_ms + topic.span_ms, None)
        if pick.random() < 0.3:
            self._cut(topic)
        if log_append_time:
            topic.begin_ms, topic.span_ms = began_ms, _now_ms() - began_ms
        return topic

    def _burst(self, topic: RandomTopic, count: int, at_ms: int, end: str | None) -> None:
        """Have one producer write some records, in a transaction if ``end`` says how it ends."""
        pick = self._random
        codec = pick.choice(CODECS)
        producer = self._producer(codec, end)
        if end:
            producer.begin_transaction()
        failures: list[object] = []
        for _ in range(count):
            producer.produce(
                topic.name,
                self._bytes(large=True),
                self._bytes(large=False),
                pick.randrange(topic.partitions),
                timestamp=at_ms - pick.randrange(2 * HOUR_MS),
                headers=self._headers(),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert failures == []
        if end == "commit":
            producer.commit_transaction(DEADLINE_S)
        elif end == "abort":
            producer.abort_transaction(DEADLINE_S)
        elif end == OPEN:
            self._stack.callback(producer.abort_transaction, DEADLINE_S)
        topic.story.append(f"{count} records, {codec}" + (f", transaction: {end}" if end else ""))

    def _producer(self, codec: str, end: str | None) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "compression.type": codec,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "batch.num.messages": self._random.choice((1, 7, 10_000)),
            "linger.ms": 2,
            "enable.idempotence": bool(end) or self._random.random() < 0.5,
        }
        if end:
            settings["transactional.id"] = f"random-{uuid.uuid4().hex}"
        producer = Producer(settings)
        if end:
            producer.init_transactions(DEADLINE_S)
        return producer

    def _bytes(self, *, large: bool) -> bytes | None:
        pick = self._random
        kind = pick.random()
        if kind < 0.1:
            return None
        if kind < 0.2:
            return b""
        if large and kind > 0.99:
            return pick.randbytes(pick.randint(100_000, 1_200_000))
        return pick.choice((b"same", b"x" * pick.randint(1, 400), pick.randbytes(pick.randint(1, 200))))

    def _headers(self) -> list[tuple[str, bytes | None]] | None:
        pick = self._random
        if pick.random() < 0.6:
            return None
        return [
            (pick.choice(HEADER_NAMES), pick.choice((None, b"", b"1", pick.randbytes(40))))
            for _ in range(pick.randint(0, 3))
        ]

    def _cut(self, topic: RandomTopic) -> None:
        """Delete the first records of a partition, as retention does."""
        partition = self._random.randrange(topic.partitions)
        offset = self._random.randint(0, 10)
        wanted = TopicPartition(topic.name, partition, offset)
        if bounds(self._servers, topic.name, partition)[1] > offset:
            for each in self._admin.delete_records([wanted]).values():
                each.result(DEADLINE_S)
            topic.story.append(f"partition {partition} begins at {offset}")


@contextmanager
def random_topic(servers: str, seed: int, records: int) -> Iterator[RandomTopic]:
    """Make and fill a topic; its open transactions end with the block."""
    with ExitStack() as stack:
        yield Filler(servers, seed, records, stack).make()


def compacted_topic(servers: str, seed: int) -> RandomTopic:
    """Return a topic of one partition with gaps inside of batches and between them.

    The broker's cleaner must have a short ``log.cleaner.backoff.ms``. The last records roll the segment by their
    timestamps, since what is written to is never compacted.
    """
    pick = random.Random(seed)
    topic = RandomTopic(f"compacted-{uuid.uuid4().hex[:12]}", 1, _now_ms() - 20 * HOUR_MS)
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.001",
        "min.compaction.lag.ms": "0",
    }
    create(AdminClient({"bootstrap.servers": servers}), topic.name, 1, settings)
    for index in range(6):
        codec = pick.choice(CODECS)
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "batch.num.messages": 25})
        count = pick.randint(20, 60)
        for _ in range(count):
            value = pick.choice((None, pick.randbytes(pick.randint(0, 90))))
            producer.produce(topic.name, value, b"%d" % pick.randrange(30), timestamp=topic.begin_ms + index * HOUR_MS)
        assert producer.flush(DEADLINE_S) == 0
        topic.story.append(f"{count} records, {codec}")
    whole = bounds(servers, topic.name, 0)[1]
    deadline = time.monotonic() + DEADLINE_S
    while len(offsets_of(servers, topic.name, 0)) > whole - 60:
        assert time.monotonic() < deadline, f"nothing of the {whole} records of {topic.name} was compacted"
    return topic


def offsets_of(servers: str, topic: str, partition: int) -> list[int]:
    """Return the offsets of all records of a partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{topic}-{partition} ended with no end"
            if message.error() is None:
                found.append(message.offset())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


def bounds(servers: str, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset of a partition and the one that comes next."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bounds"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_S)
        return low, high
    finally:
        consumer.close()


def create(admin: AdminClient, name: str, partitions: int, settings: dict[str, str]) -> None:
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)


def random_reads(topic: RandomTopic, servers: str, seed: int, count: int) -> list[dict[str, str]]:
    """Return options for reading the topic, in Spark's names: all of it first."""
    pick = random.Random(seed)
    ends = [bounds(servers, topic.name, partition) for partition in range(topic.partitions)]
    whole = {"subscribe": topic.name, "includeHeaders": "true"}
    return [whole, *(_read(pick, topic, ends) for _ in range(count - 1))]


@dataclass(frozen=True)
class RandomStream:
    """A stream to read by Spark's connector, by ours through Spark, and by ours without: options, and what comes after.

    What `after_spark` and the option ``columns`` do is the same, as are `condition` and the sink's option ``sql``.
    """

    options: dict[str, str]
    columns: tuple[str, ...]
    schema: str | None = None
    """The fields of JSON values; None for values as they are."""
    condition: str | None = None
    """Which rows are kept."""

    @property
    def for_spark(self) -> dict[str, str]:
        return {**self.options, "includeHeaders": str("headers" in self.columns).lower()}

    @property
    def for_us(self) -> dict[str, str]:
        decoded = {} if self.schema is None else {"valueFormat": "json", "valueSchema": self.schema}
        return {**self.options, "columns": ",".join(self.columns), **decoded}

    @property
    def sink(self) -> dict[str, str]:
        """The options of the sink that reads the ranges."""
        return {} if self.condition is None else {"sql": f"SELECT * FROM records WHERE {self.condition}"}

    def after_spark(self, rows: DataFrame) -> DataFrame:
        """Do to the rows of Spark's connector what our options do."""
        if self.schema is not None:
            rows = rows.withColumn("value", from_json(rows["value"].cast("string"), self.schema))
        return rows.select(*self.columns)

    def after_both(self, rows: DataFrame) -> DataFrame:
        return rows if self.condition is None else rows.where(self.condition)


def random_streams(topic: RandomTopic, servers: str, seed: int, count: int) -> list[RandomStream]:
    """Return streams over the topic: the first with all columns."""
    pick = random.Random(seed)
    streams = []
    for at, read in enumerate(random_reads(topic, servers, seed, count + 1)[1:]):
        options = {name: text for name, text in read.items() if not name.startswith("ending")}
        del options["includeHeaders"]
        if pick.random() < 0.6:
            options["maxOffsetsPerTrigger"] = str(pick.randint(30, 500))
        columns = [each for each in COLUMNS if at == 0 or each in ("partition", "offset") or pick.random() < 0.5]
        condition = pick.choice((None, *CONDITIONS))
        streams.append(RandomStream(options, tuple(columns), condition=condition))
    return streams


def json_topic(servers: str, seed: int, records: int) -> RandomTopic:
    """Return a topic of two partitions with JSON values: right, malformed, hostile, and none at all."""
    pick = random.Random(seed)
    topic = RandomTopic(f"json-{uuid.uuid4().hex[:12]}", 2, _now_ms())
    create(AdminClient({"bootstrap.servers": servers}), topic.name, topic.partitions, {})
    producer = Producer({"bootstrap.servers": servers, "compression.type": pick.choice(CODECS)})
    for value in documents(seed, records):
        producer.produce(topic.name, None if pick.random() < 0.05 else value, partition=pick.randrange(2))
    assert producer.flush(DEADLINE_S) == 0
    topic.story.append(f"{records} documents of seed {seed}")
    return topic


def random_json_stream(topic: RandomTopic, seed: int) -> RandomStream:
    """Return a stream that decodes some of the fields that the documents are made for."""
    pick = random.Random(seed)
    fields = [f"`{each.name}` {each.dataType.simpleString()}" for each in parse_schema(SCHEMA) if each.name[0] != "_"]
    schema = ", ".join(field for field in fields if pick.random() < 0.6) or fields[0]
    options = {
        "subscribe": topic.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(pick.randint(90, 900)),
    }
    condition = pick.choice((None, *JSON_CONDITIONS))
    return RandomStream(options, ("value", "partition", "offset"), schema, condition)


def _read(pick: random.Random, topic: RandomTopic, ends: list[tuple[int, int]]) -> dict[str, str]:
    options = {
        "includeHeaders": pick.choice(("true", "false")),
        "kafka.isolation.level": pick.choice(("read_committed", "read_uncommitted")),
    }
    if pick.random() < 0.3:
        assigned = sorted(pick.sample(range(topic.partitions), pick.randint(1, topic.partitions)))
        options["assign"] = json.dumps({topic.name: assigned})
    else:
        assigned = list(range(topic.partitions))
        options["subscribe"] = topic.name
    if pick.random() < 0.4:
        options["minPartitions"] = str(pick.randint(1, 12))
    if pick.random() < 0.2:
        options["maxRecordsPerPartition"] = str(pick.randint(20, 200))

    def each(give: Callable[[int], int]) -> str:
        return json.dumps({topic.name: {str(partition): give(partition) for partition in assigned}})

    def moment() -> int:
        return topic.begin_ms + int((pick.random() * 1.25 - 0.125) * topic.span_ms)

    # With read_committed an offset behind the last stable one is data loss, and how much is known to nobody here.
    cut = {partition: low + (high - low) * 2 // 5 for partition, (low, high) in enumerate(ends)}
    starts: list[dict[str, str]] = [
        {"startingOffsets": "earliest"},
        {
            "startingOffsets": each(
                lambda partition: pick.choice((-2, pick.randint(ends[partition][0], cut[partition])))
            )
        },
        {"startingTimestamp": str(moment())},
        {"startingOffsetsByTimestamp": each(lambda _: moment())},
    ]
    options |= pick.choice(starts)
    if any("imestamp" in name for name in options) and pick.random() < 0.7:
        options["startingOffsetsByTimestampStrategy"] = "latest"
    stops: list[dict[str, str]] = [
        {},
        {"endingOffsets": "latest"},
        {"endingOffsets": each(lambda partition: pick.choice((-1, cut[partition])))},
        {"endingTimestamp": str(moment())},
        {"endingOffsetsByTimestamp": each(lambda _: moment())},
    ]
    return options | pick.choice(stops)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
