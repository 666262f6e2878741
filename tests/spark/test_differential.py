"""`kafka_once` beside Spark's own Kafka connector: whatever lies in a topic, both read the same DataFrame.

A seed draws the topic and the options; a failure prints it. `DIFFERENTIAL_SEED=7` runs that seed in place of the long
run's.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.random_topics import RandomTopic, compacted_topic, random_reads, random_topic

pytestmark = pytest.mark.spark
SHORT = (2, 11, 12)
"""Together they have all codecs, log append time, transactions of each end, a cut log, and one and four partitions."""
SOAK_SEEDS = 60
REFUSALS = (PySparkException, Py4JJavaError)
"""Spark's connector checks some options by assertions of the JVM, which PySpark does not translate."""


@pytest.fixture(scope="module")
def servers(kafka: Any) -> str:
    return str(kafka.bootstrap_servers)


def read(spark: SparkSession, form: str, servers: str, options: dict[str, str]) -> DataFrame | str:
    """Return the frame, or that it is refused; each connector has words of its own for why."""
    try:
        return spark.read.format(form).option("kafka.bootstrap.servers", servers).options(**options).load()
    except REFUSALS as error:
        return f"refused: {error}"


def rows(frame: DataFrame | str) -> list[tuple[Any, ...]] | str:
    if isinstance(frame, str):
        return frame
    try:
        return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[3], row[4]))
    except REFUSALS as error:
        return f"refused: {error}"


def columns(frame: DataFrame | str) -> list[tuple[str, str]]:
    return [] if isinstance(frame, str) else frame.dtypes


def compare(spark: SparkSession, servers: str, topic: RandomTopic, options: dict[str, str]) -> int:
    """Read with both, fail where they differ, and give the number of rows."""
    theirs, ours = (read(spark, form, servers, options) for form in ("kafka", "kafka_once"))
    expected, found = rows(theirs), rows(ours)
    story = f"\noptions: {options}\ntopic: " + "\n  ".join(topic.story)
    if isinstance(expected, str) or isinstance(found, str):
        assert isinstance(expected, str) and isinstance(found, str), (  # noqa: PT018 - both, or neither
            f"one refuses: {str(expected)[:600]!r} and {str(found)[:600]!r}{story}"
        )
        return 0
    assert columns(ours) == columns(theirs), story
    missing = [row[3:6] for row in expected if row not in found][:5] if len(expected) != len(found) else []
    assert len(found) == len(expected), f"{len(found)} rows for {len(expected)}; not there: {missing}{story}"
    for mine, other in zip(found, expected, strict=True):
        assert mine == other, f"{mine[2:5]}: {_short(mine)} is not {_short(other)}{story}"
    return len(found)


def _short(row: tuple[Any, ...]) -> str:
    return repr(row)[:1_000]


def try_seed(spark: SparkSession, servers: str, seed: int, records: int, reads: int) -> int:
    print(f"DIFFERENTIAL_SEED={seed}")
    with random_topic(servers, seed, records) as topic:
        return sum(compare(spark, servers, topic, options) for options in random_reads(topic, servers, seed, reads))


@pytest.mark.parametrize("seed", SHORT)
def test_both_connectors_read_the_same(jvm_kafka_spark: SparkSession, servers: str, seed: int) -> None:
    assert try_seed(jvm_kafka_spark, servers, seed, records=200, reads=2) > 0


def test_both_read_the_same_of_a_compacted_topic(jvm_kafka_spark: SparkSession, servers: str) -> None:
    topic = compacted_topic(servers, seed=1)
    assert compare(jvm_kafka_spark, servers, topic, {"subscribe": topic.name, "minPartitions": "5"}) > 0


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_many_seeds(jvm_kafka_spark: SparkSession, servers: str) -> None:
    named = os.environ.get("DIFFERENTIAL_SEED")
    seeds = [int(named)] if named else [random.SystemRandom().randrange(1 << 32) for _ in range(SOAK_SEEDS)]
    rows_read = sum(try_seed(jvm_kafka_spark, servers, seed, records=2_000, reads=6) for seed in seeds)
    assert rows_read > 0
