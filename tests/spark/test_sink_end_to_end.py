"""From a broker to a table: `kafka_once` into `delta_once`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

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
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load().selectExpr("partition", "offset", "cast(value as string) as value")


def assert_each_record_once(table: Path, per_partition: int) -> None:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    found = sorted((row["partition"], row["offset"], row["value"]) for row in rows)
    assert found == [(p, o, f"{p}-{o}") for p in range(PARTITIONS) for o in range(per_partition)]


def test_records_arrive_once_over_restarts_and_a_lost_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    run(stream(spark, topics, topic, maxOffsetsPerTrigger=250), table, checkpoint)
    assert_each_record_once(table, PER_PARTITION)
    fill(topics, topic, PER_PARTITION)
    run(stream(spark, topics, topic), table, checkpoint)
    assert_each_record_once(table, 2 * PER_PARTITION)
    fill(topics, topic, 2 * PER_PARTITION)
    shutil.rmtree(checkpoint)
    run(stream(spark, topics, topic, offsetStore=f"delta:{table}", appId="app"), table, checkpoint)
    assert_each_record_once(table, 3 * PER_PARTITION)


def test_a_lost_checkpoint_without_the_stored_offsets_stops(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    run(stream(spark, topics, topic), table, checkpoint)
    fill(topics, topic, PER_PARTITION)
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match=f"overlap .*stored {PER_PARTITION}, batch start 0"):
        run(stream(spark, topics, topic), table, checkpoint)
    assert_each_record_once(table, PER_PARTITION)
