"""The source's option handOver=ranges: the sink reads the records, and nothing may be in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparkonce import OptionError, write_stream
from tests.spark.sink_support import run
from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark

PARTITIONS = 3
PER_PARTITION = 200


@pytest.fixture(scope="module")
def topics(kafka: Any) -> Topics:
    return Topics(kafka.bootstrap_servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    name = topics.create(PARTITIONS)
    fill(topics, name, 0)
    return name


def fill(topics: Topics, topic: str, first: int) -> None:
    for index in range(PARTITIONS):
        topics.produce(topic, values(f"{index}", PER_PARTITION, first), partition=index)


def stream(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("handOver", "ranges")
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load()


def assert_each_record_once(table: Path, per_partition: int) -> None:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    found = sorted((row["partition"], row["offset"], row["value"].decode()) for row in rows)
    assert found == [(p, o, f"{p}-{o}") for p in range(PARTITIONS) for o in range(per_partition)]


def test_records_arrive_once_over_restarts(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    run(stream(spark, topics, topic, maxOffsetsPerTrigger=250, minPartitions=5), table, checkpoint)
    assert_each_record_once(table, PER_PARTITION)
    fill(topics, topic, PER_PARTITION)
    run(stream(spark, topics, topic).repartition(2), table, checkpoint)
    assert_each_record_once(table, 2 * PER_PARTITION)


@pytest.mark.parametrize(
    ("between", "message"),
    [
        (lambda rows: rows.filter(f.col("kafka_once_range").contains('"partition":1')), "tasks were told to read"),
        (lambda rows: rows.union(rows), "tasks were told to read"),
        (lambda rows: rows.withColumn("more", f.lit(1)), "it gets kafka_once_range, more"),
        (lambda rows: rows.select(f.lit(1).alias("one")), "planned with handOver=ranges"),
        (lambda rows: rows.dropDuplicates(), "keeps state"),
    ],
    ids=["filter", "union", "withColumn", "select", "dropDuplicates"],
)
def test_operators_in_between_are_refused(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    between: Callable[[DataFrame], DataFrame],
    message: str,
) -> None:
    with pytest.raises(StreamingQueryException, match=message):
        run(between(stream(spark, topics, topic)), tmp_path / "table", tmp_path / "checkpoint")
    is_table = DeltaTable.is_deltatable(str(tmp_path / "table"))
    assert not is_table or DeltaTable(tmp_path / "table").file_uris() == []


@pytest.mark.parametrize(
    ("between", "named"),
    [
        (lambda rows: rows.filter("kafka_once_range is not null"), "filter"),
        (lambda rows: rows.selectExpr("kafka_once_range", "1 as one"), "select or withColumn"),
        (lambda rows: rows.selectExpr("1 as one"), "select or withColumn"),
        (lambda rows: rows.union(rows).repartition(3), "repartition, union"),
        (lambda rows: rows.groupBy().count(), "groupBy"),
        (lambda rows: rows.dropDuplicates(), "dropDuplicates"),
        (lambda rows: rows.join(rows.sparkSession.range(2)), "join"),
        (lambda rows: rows.sample(0.5).limit(3), "limit, sample"),
    ],
)
def test_write_stream_names_the_operators(
    spark: SparkSession, topics: Topics, topic: str, between: Callable[[DataFrame], DataFrame], named: str
) -> None:
    rows = between(stream(spark, topics, topic))
    options = {"appId": "app", "checkpointLocation": "/nowhere"}
    with pytest.raises(OptionError, match=f"between it and the sink there is: {named}"):
        write_stream(rows).start("/nowhere/table", **options)


def test_records_are_copied_to_a_topic_with_keys_and_headers(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(1), topics.create(1)
    headers = [("h", b"1")]
    topics.produce(source, values("v", 50), keys=values("k", 50), headers=headers)
    rows = stream(spark, topics, source, columns="key,value,headers")
    writer = rows.writeStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    writer = writer.option("topic", target).option("appId", target)
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    found = copied.option("subscribe", target).option("includeHeaders", "true").load().collect()
    expected = list(zip(values("k", 50), values("v", 50), [headers] * 50, strict=True))
    assert [(bytes(row.key), bytes(row.value), [(h.key, bytes(h.value)) for h in row.headers]) for row in found] == [
        *expected
    ]


def test_sql_makes_the_rows_and_what_fails_is_a_dead_letter(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    documents = [b'{"n": %d, "text": "%d"}' % (n, n) for n in range(100)]
    topics.produce(topic, [*documents, b'{"n": 100, "text": "many"}', b"no json", None])
    json = {"valueFormat": "json", "valueSchema": "n INT, text STRING", "includeDeadLetters": True}
    rows = stream(spark, topics, topic, columns="value,offset", **json)
    sql = "SELECT value.n * 2 AS twice, CAST(value.text AS BIGINT) AS number FROM records WHERE value.n % 10 = 0"
    run(rows, tmp_path / "table", tmp_path / "checkpoint", sql=sql, deadLetters=f"table:{tmp_path / 'dead'}")
    table = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert sorted((row["twice"], row["number"]) for row in table) == [(20 * n, 10 * n) for n in range(10)]
    dead = DeltaTable(tmp_path / "dead").to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in dead] == [
        (100, b'{"n": 100, "text": "many"}'),
        (101, b"no json"),
        (102, None),
    ]
    assert "many" in dead[0]["reason"]


def test_sql_needs_a_source_that_hands_over_ranges(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    rows = stream(spark, topics, topic, handOver="rows")
    with pytest.raises(StreamingQueryException, match="option sql is for a source with handOver=ranges"):
        run(rows, tmp_path / "table", tmp_path / "checkpoint", sql="SELECT value FROM records")
