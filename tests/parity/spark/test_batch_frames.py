"""A batch DataFrame that is used again: those cases of Spark's KafkaRelationSuiteBase that need a session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.parity.support import Cluster, offsets_json

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, cluster: Cluster, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka_once").options(**cluster.source_options(subscribe=topic, **options))
    return reader.load().selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row.number for row in rows.collect())


def three(cluster: Cluster) -> str:
    topic = cluster.create(3)
    cluster.send(topic, range(10), 0)
    cluster.send(topic, range(10, 20), 1)
    cluster.send(topic, [20], 2)
    return topic


def test_the_latest_is_that_of_the_action(spark: SparkSession, cluster: Cluster) -> None:
    """A DataFrame up to the latest offset shows what is there each time it is asked.

    Spark: KafkaRelationSuiteBase "explicit earliest to latest offsets"
    """
    topic = three(cluster)
    rows = frame(spark, cluster, topic, startingOffsets="earliest", endingOffsets="latest")
    assert numbers(rows) == list(range(21))
    cluster.send(topic, range(21, 30), 2)
    assert numbers(rows) == list(range(30))


def test_numbers_stay_and_the_latest_moves(spark: SparkSession, cluster: Cluster) -> None:
    """A partition that ends at a number stays as it is, one that ends at -1 grows.

    Spark: KafkaRelationSuiteBase "explicit offsets"
    """
    topic = three(cluster)
    bounds = {
        "startingOffsets": offsets_json(topic, {0: -2, 1: -2, 2: 0}),
        "endingOffsets": offsets_json(topic, {0: -1, 1: -1, 2: 1}),
    }
    rows = frame(spark, cluster, topic, **bounds)
    assert numbers(rows) == list(range(21))
    cluster.send(topic, range(31, 40), 2)
    assert numbers(rows) == list(range(21))
    cluster.send(topic, range(21, 31), 1)
    assert numbers(rows) == list(range(31))


def test_a_frame_beside_itself(spark: SparkSession, cluster: Cluster) -> None:
    """Read twice in one query, a topic gives its rows twice.

    Spark: KafkaRelationSuiteBase "reuse same dataframe in query"
    """
    topic = cluster.create(1)
    cluster.send(topic, range(11), 0)
    rows = frame(spark, cluster, topic, startingOffsets="earliest", endingOffsets="latest")
    assert numbers(rows.union(rows)) == sorted([*range(11), *range(11)])


def test_the_earliest_is_that_of_the_action(spark: SparkSession, cluster: Cluster) -> None:
    """A DataFrame from the earliest offset begins where the log does, each time it is asked.

    Spark: KafkaRelationSuiteBase "test late binding start offsets"
    """
    topic = cluster.create(1)
    cluster.send(topic, range(10), 0)
    rows = frame(spark, cluster, topic, startingOffsets="earliest", endingOffsets="latest")
    assert numbers(rows) == list(range(10))
    cluster.forget_records(topic, {0: 10})
    cluster.send(topic, range(10, 20), 0)
    assert numbers(rows) == list(range(10, 20))


def test_pieces_of_the_latest(spark: SparkSession, cluster: Cluster) -> None:
    """Cut into six tasks at least, and used again, a DataFrame and its RDD show what has come in since.

    Spark: KafkaRelationSuiteBase "SPARK-30656: minPartitions"
    """
    topic = three(cluster)
    rows = frame(spark, cluster, topic, minPartitions=6)
    rdd = rows.rdd
    assert rdd.getNumPartitions() >= 6
    assert sorted(row.number for row in rdd.collect()) == list(range(21))
    cluster.send(topic, range(21, 31))
    assert sorted(row.number for row in rdd.collect()) == list(range(31))
    assert sorted(row.number for row in rows.rdd.collect()) == list(range(31))


def test_the_second_api(spark: SparkSession, cluster: Cluster) -> None:
    """The plan reads by Spark's second API of sources.

    Spark: KafkaRelationSuiteV2 "V2 Source is used when set through SQLConf"
    """
    rows = frame(spark, cluster, cluster.create())
    plan = rows._jdf.queryExecution().toString()
    assert "RelationV2" in plan
