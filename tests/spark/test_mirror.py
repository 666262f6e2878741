"""Direct queries from topic to topic that copy whole records."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from tests.spark.source_support import Topics, batch, stream

pytestmark = pytest.mark.spark

PARTITIONS = 2
PER_PARTITION = 600


def fill(topics: Topics, topic: str, first: int) -> None:
    """Write large batches and small ones, with keys, headers and timestamps of their own."""
    for codec, linger_ms in (("none", 50), ("zstd", 50), ("lz4", 0)):
        producer = Producer(
            {"bootstrap.servers": topics.bootstrap_servers, "compression.type": codec, "linger.ms": linger_ms}
        )
        for number in range(first, first + PER_PARTITION // 3):
            for partition in range(PARTITIONS):
                producer.produce(
                    topic,
                    f"{codec} {partition} {number} ".encode() * 10,
                    f"k{number % 9}".encode() if number % 2 else None,
                    partition,
                    headers=[("h", b"1")] if number % 3 else None,
                    timestamp=1_600_000_000_000 + number,
                )
        assert producer.flush(60) == 0


def mirror(
    spark: SparkSession, topics: Topics, source: str, checkpoint: Path, of_source: dict[str, str], **options: str
) -> None:
    servers = topics.bootstrap_servers
    rows = stream(spark, topics, source, handOver="ranges", **of_source)
    writer = rows.writeStream.format("kafka_once").option("kafka.bootstrap.servers", servers)
    writer = writer.option("appId", checkpoint.name).option("checkpointLocation", str(checkpoint)).options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()


def records(spark: SparkSession, topics: Topics, topic: str) -> list[Row]:
    """Return all that readers of committed records see, in order; without offsets, of which markers take some."""
    options = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    found = batch(spark, topics, topic, **options).orderBy("partition", "offset")
    return found.select("partition", "key", "value", "headers", "timestamp", "timestampType").collect()


@pytest.mark.parametrize(
    ("of_source", "options"),
    [
        ({"maxOffsetsPerTrigger": "1100"}, {}),
        ({}, {"atomicVisibility": "true", "kafka.compression.type": "lz4"}),
        ({}, {"deliveryGuarantee": "at-least-once"}),
    ],
    ids=["many batches", "atomic", "at-least-once"],
)
def test_the_copy_is_the_same_over_restarts(
    spark: SparkSession, topics: Topics, tmp_path: Path, of_source: dict[str, str], options: dict[str, str]
) -> None:
    source, target = topics.create(PARTITIONS), topics.create(PARTITIONS + 1)
    for first in (0, PER_PARTITION):
        fill(topics, source, first)
        mirror(spark, topics, source, tmp_path / source, of_source, topic=target, **options)
    expected = records(spark, topics, source)
    assert len(expected) == 2 * PARTITIONS * PER_PARTITION
    assert records(spark, topics, target) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the query would read what it writes, and never end"),
        ({"topic": "one-partition"}, "topic one-partition has 1 partition, numbered from 0: set the option keepPart"),
    ],
    ids=["loop", "partitions"],
)
def test_what_cannot_be_copied_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    source = topics.create(PARTITIONS)
    topics.produce(source, [b"v"], partition=1)
    if options:
        topics.create(1, options["topic"])
    with pytest.raises(StreamingQueryException, match=message):
        mirror(spark, topics, source, tmp_path / source, {}, **options)
