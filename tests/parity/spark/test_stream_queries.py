"""Streaming queries where only Spark shows the case: those of KafkaMicroBatchSourceSuiteBase and its V2 suite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from sparkonce.connectors.lag.state import source_lag
from tests.parity.support import QUERY_DEADLINE_S, Cluster

pytestmark = pytest.mark.spark

EARLIEST = {"startingOffsets": "earliest"}
NUMBER = "CAST(CAST(value AS STRING) AS INT) AS number"


def stream(spark: SparkSession, cluster: Cluster, format_name: str = "kafka_once", **options: Any) -> DataFrame:
    return spark.readStream.format(format_name).options(**cluster.source_options(**options)).load()


@contextmanager
def in_memory(frame: DataFrame, name: str, mode: str = "append") -> Iterator[StreamingQuery]:
    """Run a query into the table ``name`` of the session's memory."""
    query = frame.writeStream.format("memory").queryName(name).outputMode(mode).start()
    try:
        yield query
    finally:
        query.stop()


def rows(spark: SparkSession, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.table(name).collect())


def run(frame: DataFrame, folder: Path) -> list[int]:
    """Run with Trigger.AvailableNow, and give the rows read by each batch that read any."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_DEADLINE_S)
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def test_available_now(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Fifteen records, five for each batch: three batches, and the query ends by itself.

    Spark: KafkaMicroBatchSourceSuiteBase "Trigger.AvailableNow"
    """
    topic = cluster.create(5)
    cluster.send(topic, range(15), 0)
    frame = stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger=5, **EARLIEST)
    assert run(frame, tmp_path) == [5, 5, 5]


def test_the_rows_of_the_progress(spark: SparkSession, cluster: Cluster) -> None:
    """The progress counts the rows that were read, and the plan shows a source of Spark's second API.

    Spark: KafkaMicroBatchSourceSuiteBase "input row metrics"
    """
    topic = cluster.create(5)
    cluster.send(topic, [-1])
    with in_memory(stream(spark, cluster, subscribe=topic).selectExpr(NUMBER), "row_metrics") as query:
        query.processAllAvailable()
        cluster.send(topic, [1, 2, 3])
        query.processAllAvailable()
        assert sum(each["numInputRows"] for each in query.recentProgress) == 3
    assert rows(spark, "row_metrics") == [(1,), (2,), (3,)]


def test_the_second_api(spark: SparkSession, cluster: Cluster) -> None:
    """The plan of a running query reads by Spark's second API of sources, by pattern too.

    Spark: KafkaMicroBatchV2SourceSuite "V2 Source is used by default"
    """
    topic = cluster.create(5)
    with in_memory(stream(spark, cluster, subscribePattern=f"{topic}.*"), "second_api") as query:
        query.processAllAvailable()
        plan = query._jsq.explainInternal(True)
    assert "StreamingDataSourceV2" in plan or "MicroBatchScan" in plan, plan


def test_a_query_stops(spark: SparkSession, cluster: Cluster) -> None:
    """A query by pattern that waits for records ends when it is told to.

    Spark: KafkaSourceSuiteBase "cannot stop Kafka stream"
    """
    topic = cluster.create(5)
    cluster.send(topic, range(101, 106))
    with in_memory(stream(spark, cluster, subscribePattern=f"{topic}.*"), "stops") as query:
        query.processAllAvailable()
        query.stop()
        assert query.awaitTermination(QUERY_DEADLINE_S)
        assert query.exception() is None


def test_a_watermark(spark: SparkSession, cluster: Cluster) -> None:
    """The record's time is a time that windows and watermarks can be made of.

    Spark: KafkaMicroBatchSourceSuiteBase "KafkaSource with watermark"
    """
    before_s, topic = time.time(), cluster.create(1)
    cluster.send(topic, [1])
    windows = (
        stream(spark, cluster, subscribe=topic, **EARLIEST)
        .withWatermark("timestamp", "10 seconds")
        .groupBy(f.window("timestamp", "5 seconds").alias("window"))
        .agg(f.count("*").alias("count"))
        .select("window.start", "count")
    )
    with in_memory(windows, "watermark", "complete") as query:
        query.processAllAvailable()
    ((start, count),) = rows(spark, "watermark")
    assert count == 1
    assert start.timestamp() >= before_s - 5


def test_one_of_two_sources_has_nothing_new(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """A union goes on with the larger topic when the smaller is read to its end, also after a restart.

    Spark: KafkaMicroBatchSourceSuiteBase
        "SPARK-22956: currentPartitionOffsets should be set when no new data comes in"
    """
    small, large = cluster.create(1), cluster.create(1)
    cluster.send(small, range(5))
    cluster.send(large, range(100, 110))
    first, second = (
        stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger=5, source=f"source-{number}", **EARLIEST)
        for number, topic in enumerate((small, large))
    )
    union = first.selectExpr(NUMBER).union(second.selectExpr(NUMBER))
    assert run(union, tmp_path) == [10, 5]
    cluster.send(large, range(115, 120))
    assert run(union, tmp_path) == [5]


@pytest.mark.parametrize("reuse", [pytest.param(False, marks=pytest.mark.lab), True])
def test_a_self_join(spark: SparkSession, cluster: Cluster, reuse: bool) -> None:
    """A stream joined with itself reads each record for each side, or once for both where Spark reuses the exchange.

    Spark: KafkaMicroBatchSourceSuiteBase
        "ensure stream-stream self-join generates only one offset in log and correct metrics"
    """
    topic, name = cluster.create(2), f"self_join_{reuse}".lower()
    values = stream(spark, cluster, subscribe=topic).selectExpr(
        "CAST(CAST(value AS STRING) AS INT) AS value", "CAST(CAST(value AS STRING) AS INT) % 5 AS key"
    )
    before = spark.conf.get("spark.sql.exchange.reuse")
    spark.conf.set("spark.sql.exchange.reuse", str(reuse).lower())
    try:
        with in_memory(values.join(values, "key"), name) as query:
            query.processAllAvailable()
            cluster.send(topic, [1, 2])
            query.processAllAvailable()
            cluster.send(topic, [6, 3])
            query.processAllAvailable()
            assert len(query.lastProgress["sources"]) == 1
            assert sum(each["numInputRows"] for each in query.recentProgress) == (4 if reuse else 8)
    finally:
        spark.conf.set("spark.sql.exchange.reuse", before)
    assert rows(spark, name) == [(1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)]


def progress_of(query: StreamingQuery) -> list[dict[str, float]]:
    """Return what our listener makes of each progress: Spark gives Python sources no place for metrics of their own."""
    return [source_lag(0, each["sources"][0]).metrics for each in query.recentProgress if each["numInputRows"]]


def metrics_of(spark: SparkSession, cluster: Cluster, name: str, **options: Any) -> list[dict[str, float]]:
    topic = cluster.create(2)
    cluster.send(topic, range(1, 6), 0)
    cluster.send(topic, range(6, 11), 1)
    with in_memory(stream(spark, cluster, subscribe=topic, **options, **EARLIEST).selectExpr(NUMBER), name) as query:
        query.processAllAvailable()
        found = progress_of(query)
    assert rows(spark, name) == [(number,) for number in range(1, 11)]
    return found


def test_lag_while_a_limit_holds_records_back(spark: SparkSession, cluster: Cluster) -> None:
    """Two of five records of each partition: the first batch is three behind. The names are those of Spark's connector.

    Spark: KafkaMicroBatchV2SourceSuite "test custom metrics - with rate limit"
    """
    found = metrics_of(spark, cluster, "lag_with_limit", maxOffsetsPerTrigger=5)
    assert found[0] == {"minOffsetsBehindLatest": 3, "maxOffsetsBehindLatest": 3, "avgOffsetsBehindLatest": 3.0}
    assert found[-1] == {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0}


def test_no_lag_without_a_limit(spark: SparkSession, cluster: Cluster) -> None:
    """A batch of all that is there leaves nothing behind.

    Spark: KafkaMicroBatchV2SourceSuite "test custom metrics - no rate limit"
    """
    for found in metrics_of(spark, cluster, "lag_without_limit"):
        assert found == {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0}


ASYNC = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "1000"}


def test_progress_that_is_tracked_beside_the_batches(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Our source serves a query whose progress is tracked asynchronously; a second run reads what the first has not.

    Spark allows this with its own Kafka sink, and with no Python sink: ours reads the offsets before it writes.

    Spark: KafkaMicroBatchSourceSuiteBase "async progress tracking"
    """
    topic, found = cluster.create(5), []

    def once() -> None:
        frame = stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger=5, **EARLIEST).selectExpr(NUMBER)
        writer = frame.writeStream.format("noop").options(**ASYNC).option("checkpointLocation", str(tmp_path / "c"))
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        found.append(sum(each["numInputRows"] for each in query.recentProgress))

    cluster.send(topic, range(15), 0)
    once()
    cluster.send(topic, range(15, 30), 0)
    once()
    assert found[0] == 15
    assert 15 <= found[1] <= 30, "what was not tracked yet may come again"
    frame = stream(spark, cluster, subscribe=topic, **EARLIEST)
    writer = frame.writeStream.format("kafka_once").options(**ASYNC, appId=cluster.name("async"))
    writer = writer.options(**cluster.source_options(topic=cluster.create(5)))
    with pytest.raises(PySparkException, match=r"(?i)sink"):
        writer.option("checkpointLocation", str(tmp_path / "d")).start().processAllAvailable()


def test_a_query_moves_over_with_its_state(jvm_kafka_spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """A checkpoint of Spark's own connector, with the state of dropDuplicates over all columns, is carried on.

    Spark has a checkpoint of its version 2.4.3 for this; here its connector of today writes one.

    Spark: KafkaMicroBatchV2SourceSuite "default config of includeHeader doesn't break existing query from Spark 2.4"
    """
    topic = cluster.create(5)

    def once(format_name: str) -> list[int]:
        frame = stream(jvm_kafka_spark, cluster, format_name, subscribePattern=topic, **EARLIEST)
        counts = frame.dropDuplicates().selectExpr(NUMBER)
        writer = counts.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(QUERY_DEADLINE_S)
        return sorted(row.number for row in jvm_kafka_spark.read.parquet(str(tmp_path / "out")).collect())

    cluster.send(topic, range(15))
    assert once("kafka") == list(range(15))
    cluster.send(topic, range(30, 35), headers=[("a", b"b"), ("c", b"d")])
    assert once("kafka_once") == [*range(15), *range(30, 35)]
