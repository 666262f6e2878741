"""`spark.read.format("kafka_once")`: every record as it was produced, any window of offsets, and errors that help."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkonce import explain
from tests.spark.source_support import Topics, batch, values

pytestmark = pytest.mark.spark


def found(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> list[tuple[int, int, bytes | None]]:
    rows = batch(spark, topics, topic, **options).select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, row.value and bytes(row.value)) for row in rows)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_is_what_was_produced(spark: SparkSession, topics: Topics, codec: str) -> None:
    topic = topics.create(2)
    topics.produce(
        topic,
        [b"a" * 100, None, b""],
        keys=[b"k", None, b""],
        headers=[("h", b"1"), ("h", None)],
        codec=codec,
    )
    topics.produce(topic, [b"plain"], partition=1, codec=codec)
    frame = batch(spark, topics, topic, includeHeaders="true").orderBy("partition", "offset")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    rows = frame.collect()
    assert [(row.key, row.value) for row in rows] == [(b"k", b"a" * 100), (None, None), (b"", b""), (None, b"plain")]
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        (topic, *at) for at in [(0, 0), (0, 1), (0, 2), (1, 0)]
    ]
    assert all(row.timestampType == 0 and row.timestamp is not None for row in rows)
    assert [[(each.key, each.value) for each in row.headers or []] for row in rows] == [
        [("h", b"1"), ("h", None)]
    ] * 3 + [[]]
    assert rows[3].headers is None


def test_the_schema_is_that_of_spark_s_connector(spark: SparkSession, topics: Topics) -> None:
    assert batch(spark, topics, topics.create()).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )


def test_an_empty_topic_has_no_rows(spark: SparkSession, topics: Topics) -> None:
    assert batch(spark, topics, topics.create()).count() == 0


def test_many_records_in_many_tasks(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.produce(topic, values("r", 20_000), partition=partition)
    frame = batch(spark, topics, topic, minPartitions="5")
    assert frame.rdd.getNumPartitions() == 6
    assert frame.select("partition", "offset").distinct().count() == 40_000


def test_offsets_in_json_bound_each_partition(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.produce(topic, values("r", 10), partition=partition)
    got = found(
        spark,
        topics,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":7,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":-1,"1":2}}}}',
    )
    assert got == [(0, 7, b"r-7"), (0, 8, b"r-8"), (0, 9, b"r-9"), (1, 0, b"r-0"), (1, 1, b"r-1")]


def test_assigned_partitions_only(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.produce(topic, [b"r"], partition=partition)
    reader = spark.read.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    rows = reader.option("assign", f'{{"{topic}":[0,2]}}').load().select("partition").collect()
    assert sorted(row.partition for row in rows) == [0, 2]


def test_several_topics(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.create(1), topics.create(1)
    topics.produce(first, [b"1"])
    topics.produce(second, [b"2"])
    rows = batch(spark, topics, f"{first},{second}").collect()
    assert {(row.topic, bytes(row.value)) for row in rows} == {(first, b"1"), (second, b"2")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"assign": '{"t":[0]}'}, "only one of the following options can be specified"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets instead"),
        ({"subscribe": "absent"}, "topic 'absent' does not exist"),
        (
            {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.socket.connection.setup.timeout.ms": "300"},
            "no answer from Kafka at 127.0.0.1:1",
        ),
        ({"startingOffsets": '{"absent":{"0":1}}'}, "must name all partitions"),
    ],
)
def test_errors_name_the_thing_and_the_way_out(
    spark: SparkSession, topics: Topics, options: dict[str, str], message: str
) -> None:
    topic = topics.create(1)
    with pytest.raises(PySparkException) as caught:
        batch(spark, topics, topic, **options).collect()
    said = explain(caught.value)
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_start_behind_the_end_is_an_error(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("r", 5))
    bounds = {"startingOffsets": f'{{"{topic}":{{"0":4}}}}', "endingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    with pytest.raises(PySparkException, match="specified start offset 4 is greater than the end offset 2"):
        batch(spark, topics, topic, **bounds).collect()


def test_offsets_beyond_the_log_are_lost_data_or_skipped(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("r", 5))
    beyond = f'{{"{topic}":{{"0":9}}}}'
    with pytest.raises(PySparkException, match=r"endingOffsets for .* was 9, but its log holds offsets 0 to 5"):
        batch(spark, topics, topic, endingOffsets=beyond).collect()
    assert batch(spark, topics, topic, endingOffsets=beyond, failOnDataLoss="false").count() == 5
