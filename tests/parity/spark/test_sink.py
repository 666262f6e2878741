"""Streams and batches into Kafka: the cases of Spark's KafkaSinkSuite that need a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from sparkonce import EmbeddedBroker
from tests.parity.support import QUERY_DEADLINE_S, Cluster, Row, numbers

pytestmark = pytest.mark.spark


def write_stream(
    spark: SparkSession, cluster: Cluster, folder: Path, columns: list[str], records: int = 10, **options: Any
) -> StreamingQuery:
    """Copy numbers from a topic of ten into another one, five for each batch."""
    source = cluster.create()
    cluster.send(source, range(1, records + 1))
    given = cluster.source_options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    frame = spark.readStream.format("kafka_once").options(**given).load().selectExpr(*columns)
    writer = frame.writeStream.format("kafka_once").option("checkpointLocation", str(folder))
    writer = writer.options(**cluster.source_options(appId=cluster.name("app"), **options))
    query = writer.outputMode("append").trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_DEADLINE_S)
    return query


def test_the_topic_of_each_row(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Rows say where they belong.

    Spark: KafkaSinkStreamingSuiteBase "streaming - write to kafka with topic field"
    """
    topic = cluster.create()
    write_stream(spark, cluster, tmp_path, [f"'{topic}' AS topic", "value"])
    assert sorted(numbers(cluster.batch(subscribe=topic))) == list(range(1, 11))


def test_the_topic_of_the_option(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """The option says so for all rows.

    Spark: KafkaSinkStreamingSuiteBase "streaming - write w/o topic field, with topic option"
    """
    topic = cluster.create()
    write_stream(spark, cluster, tmp_path, ["value"], topic=topic)
    assert sorted(numbers(cluster.batch(subscribe=topic))) == list(range(1, 11))


def test_the_option_beats_the_column(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Rows that say another topic go to the option's.

    Spark: KafkaSinkStreamingSuiteBase "streaming - topic field and topic option"
    """
    topic = cluster.create()
    write_stream(spark, cluster, tmp_path, ["'foo' AS topic", "value"], topic=topic)
    assert sorted(numbers(cluster.batch(subscribe=topic))) == list(range(1, 11))
    assert cluster.partitions("foo") == 0


def test_a_topic_that_nobody_creates(spark: SparkSession, tmp_path: Path) -> None:
    """On a broker that creates no topics, writing to one that is not there ends the query, and names it.

    Spark: KafkaSinkStreamingSuiteBase "streaming - write to non-existing topic"
    """
    with EmbeddedBroker(config={"auto.create.topics.enable": "false"}) as broker:
        cluster = Cluster(broker.bootstrap_servers)
        options: dict[str, Any] = {"kafka.max.block.ms": 500, "deliveryGuarantee": "at-least-once"}
        with pytest.raises(PySparkException, match="no-such-topic"):
            write_stream(spark, cluster, tmp_path, ["value"], topic="no-such-topic", **options)


def test_the_rows_of_the_progress(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """The progress counts the rows that were written.

    Spark: KafkaSinkMicroBatchStreamingSuite "streaming - sink progress is produced"
    """
    query = write_stream(spark, cluster, tmp_path, ["value"], records=3, topic=cluster.create())
    assert [each["sink"]["numOutputRows"] for each in query.recentProgress if each["numInputRows"]] == [3]


def save(frame: DataFrame, cluster: Cluster, mode: str = "append", **options: Any) -> None:
    frame.write.format("kafka_once").mode(mode).options(**cluster.source_options(**options)).save()


def headers_of(row: Row) -> list[tuple[str, bytes]] | None:
    return row["headers"] and [(each["key"], each["value"]) for each in row["headers"]]


def test_a_batch_with_headers(spark: SparkSession, cluster: Cluster) -> None:
    """Headers arrive in order, several of one name too; none is null.

    Spark: KafkaSinkBatchSuiteBase "batch - write to kafka"
    """
    topic = cluster.create()
    expected = {
        1: [("a", b"b")],
        2: [("c", b"d"), ("e", b"f")],
        3: [("g", b"h"), ("g", b"i")],
        4: None,
        5: [("j", b"k"), ("j", b"l"), ("m", b"n")],
    }
    rows = [(topic, str(number), headers) for number, headers in expected.items()]
    columns = "topic string, value string, headers array<struct<key string, value binary>>"
    save(spark.createDataFrame(rows, columns).coalesce(1), cluster, topic=topic)
    read = cluster.batch(subscribe=topic, includeHeaders="true")
    assert {int(row["value"]): headers_of(row) for row in read} == expected


def test_who_decides_on_the_partition(spark: SparkSession, cluster: Cluster) -> None:
    """The column decides, else the key; a null partition is none. A partitioner's class cannot be run here: refused.

    Spark: KafkaSinkBatchSuiteBase "batch - partition column and partitioner priorities"
    """
    by_key, by_column, by_null = (cluster.create(4) for _ in range(3))
    frame = spark.range(5).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value").coalesce(1)

    def partitions(topic: str) -> dict[bytes, int]:
        return {row["key"]: row["partition"] for row in cluster.batch(subscribe=topic)}

    save(frame, cluster, topic=by_key)
    placed = partitions(by_key)
    assert len(set(placed.values())) > 1
    save(frame.withColumn("partition", f.lit(2)), cluster, topic=by_column)
    assert set(partitions(by_column).values()) == {2}
    save(frame.withColumn("partition", f.lit(None).cast("int")), cluster, topic=by_null)
    assert partitions(by_null) == placed
    with pytest.raises(PySparkException, match=r"partitioner\.class"):
        save(frame, cluster, topic=by_key, **{"kafka.partitioner.class": "org.example.ToTheFirst"})


def test_a_null_topic(spark: SparkSession, cluster: Cluster) -> None:
    """A row without a topic, where no option gives one, ends the query.

    Spark: KafkaSinkBatchSuiteBase "batch - null topic field value, and no topic option"
    """
    frame = spark.createDataFrame([(None, "1")], "topic string, value string")
    with pytest.raises(PySparkException, match=r"(?s)topic.*null|null.*topic"):
        save(frame, cluster)


def test_the_plan_is_analysed_once(spark: SparkSession, cluster: Cluster) -> None:
    """Rows made by expressions over all columns are written.

    Spark: KafkaSinkBatchSuiteBase "SPARK-20496: batch - enforce analyzed plans"
    """
    topic = cluster.create()
    save(spark.range(1, 1000, 1, 1).select(f.to_json(f.struct("*")).alias("value")), cluster, topic=topic)
    assert len(cluster.batch(subscribe=topic)) == 999


@pytest.mark.parametrize("mode", ["ignore", "overwrite"])
def test_modes_that_cannot_be(spark: SparkSession, cluster: Cluster, mode: str) -> None:
    """A topic can be appended to, and no more.

    Spark: KafkaSinkBatchSuiteV1 "batch - unsupported save modes"
    Spark: KafkaSinkBatchSuiteV2 "batch - unsupported save modes"
    """
    topic = cluster.create()
    frame = spark.createDataFrame([(topic, "1")], "topic string, value string")
    with pytest.raises(PySparkException, match=f"(?i){mode}"):
        save(frame, cluster, mode)
    assert cluster.batch(subscribe=topic) == []


def test_much_through_a_small_buffer(spark: SparkSession, cluster: Cluster) -> None:
    """A thousand large values go through the smallest buffer: the writer waits for room.

    Spark: KafkaSinkBatchSuiteV2 "generic - write big data with small producer buffer"
    """
    topic = cluster.create()
    values = spark.range(0, 1000, 1, 1).selectExpr("CAST(repeat('x', 15000) AS BINARY) AS value")
    save(values, cluster, topic=topic, **{"kafka.buffer.memory": "16384"})
    assert cluster.end(topic) == 1000
