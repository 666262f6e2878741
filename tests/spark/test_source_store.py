"""`kafka_once` into `delta_once`: a deleted checkpoint costs nothing, for the offsets are in the table.

Of partitions that the table knows, test_sink_end_to_end.py shows it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark


def copy(spark: SparkSession, topics: Topics, topic: str, folder: Path, starting: str) -> None:
    stream = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("offsetStore", f"delta:{folder / 'table'}")
        .option("appId", "copy")
        .load()
    )
    writer = stream.writeStream.format("delta_once").option("appId", "copy")
    query = (
        writer.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()


def stored(folder: Path) -> list[bytes]:
    return sorted(DeltaTable(str(folder / "table")).to_pyarrow_table(columns=["value"])["value"].to_pylist())


def test_partitions_that_the_table_does_not_know_lose_nothing_to_latest(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Partition 1 got its first records while the query and its checkpoint were away."""
    topic = topics.create(2)
    topics.produce(topic, values("a", 5))
    copy(spark, topics, topic, tmp_path, "earliest")
    shutil.rmtree(tmp_path / "checkpoint")
    topics.produce(topic, values("b", 5), partition=1)
    copy(spark, topics, topic, tmp_path, "latest")
    assert stored(tmp_path) == sorted(values("a", 5) + values("b", 5))
