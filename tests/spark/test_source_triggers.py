"""Triggers and the queries on top of `spark.readStream.format("kafka_once")`, as far as only Spark shows them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.source_support import Topics, copied, values

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()


def test_least_records_and_a_trigger_that_does_not_heed_them(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)

    def write(**trigger: Any) -> StreamingQuery:
        writer = stream(spark, topics, topic, minOffsetsPerTrigger="5").writeStream.format("parquet").trigger(**trigger)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))

    query = write(processingTime="0 seconds")
    try:
        for count, expected in ((1, 1), (3, 1), (4, 8), (1, 8)):
            topics.produce(topic, values("a", count))
            query.processAllAvailable()
            assert len(copied(spark, tmp_path)) == expected
    finally:
        query.stop()
    query = write(once=True)
    assert query.awaitTermination(60)
    assert len(copied(spark, tmp_path)) == 9


def test_a_union_of_a_stream_with_itself_and_state_on_top(spark: SparkSession, topics: Topics) -> None:
    topic, table = topics.create(2), f"counts_{uuid.uuid4().hex}"
    source = stream(spark, topics, topic, minPartitions="4").selectExpr("CAST(value AS STRING) AS word")
    counts = source.union(source).groupBy("word").count()
    query = counts.writeStream.format("memory").queryName(table).outputMode("complete").start()
    try:
        for expected in (2, 4):
            topics.produce(topic, [b"a", b"b"], partition=1)
            query.processAllAvailable()
            assert {row["word"]: row["count"] for row in spark.table(table).collect()} == {"a": expected, "b": expected}
    finally:
        query.stop()
