"""What the source's Spark tests share: topics with known records, ways to read them, and what is in a table then."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

DEADLINE_S = 60
PARTITIONS, PER_PARTITION = 3, 200
"""Of a topic that is filled."""


class Topics:
    """Topics of one test module on one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, partitions: int = 4, name: str | None = None, **config: str) -> str:
        topic = name or f"source-{uuid.uuid4().hex[:12]}"
        settings = {"retention.ms": "-1"}  # records may have old timestamps
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(DEADLINE_S)
        return topic

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(DEADLINE_S)

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        codec: str = "none",
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "compression.type": codec, "linger.ms": 5})
        failures: list[object] = []
        for index, value in enumerate(values):
            producer.produce(
                topic,
                value,
                keys[index] if keys else None,
                partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                headers=list(headers) if headers else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert failures == []


def values(prefix: str, count: int, start: int = 0) -> list[bytes]:
    return [f"{prefix}-{index}".encode() for index in range(start, start + count)]


def fill(topics: Topics, topic: str, first: int) -> None:
    """Write the next `PER_PARTITION` records to each partition, from the offset ``first`` on."""
    for index in range(PARTITIONS):
        topics.produce(topic, values(f"{index}", PER_PARTITION, first), partition=index)


def assert_each_record_once(table: Path, per_partition: int) -> None:
    """Check that a table has the records that `fill` wrote, with their partitions and offsets."""
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    found = sorted((row["partition"], row["offset"], row["value"].decode()) for row in rows)
    assert found == [(p, o, f"{p}-{o}") for p in range(PARTITIONS) for o in range(per_partition)]


def stream(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    """Return the records of a topic from the first on."""
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()


def batch(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(**{"subscribe": topic, **options}).load()


def start(
    spark: SparkSession, topics: Topics, topic: str, folder: Path, options: Mapping[str, Any], out: str = "out"
) -> StreamingQuery:
    """Copy what is there now to Parquet files in ``folder``, and go on from its checkpoint if there is one."""
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    stream = reader.options(**{"subscribe": topic, **options}).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(folder / out))


def run(
    spark: SparkSession, topics: Topics, topic: str, folder: Path, out: str = "out", **options: Any
) -> list[dict[str, Any]]:
    """Run such a query to its end, and give the progress of its batches that read something."""
    query = start(spark, topics, topic, folder, options, out)
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def copied(spark: SparkSession, folder: Path, out: str = "out") -> list[bytes]:
    rows = spark.read.parquet(str(folder / out)).select("value").collect()
    return sorted(bytes(row.value) for row in rows)
