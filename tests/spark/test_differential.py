"""`kafka_once` beside Spark's own Kafka connector: whatever lies in a topic, both read the same DataFrame.

Streams go into a Delta table by three ways: Spark's connector, ours through Spark, and ours with handOver=ranges. The
tables must be equal. A seed draws the topic and the options; a failure prints it. `DIFFERENTIAL_SEED=7` runs that seed
in place of the long run's.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.json_documents import plain, without_java
from tests.spark.random_topics import (
    RandomStream,
    RandomTopic,
    compacted_topic,
    json_topic,
    random_json_stream,
    random_reads,
    random_streams,
    random_topic,
)
from tests.spark.sink_support import start

pytestmark = pytest.mark.spark
SHORT = (
    (2, 2),
    (11, 1),
    pytest.param(12, 1, marks=pytest.mark.lab),
    pytest.param(11, 2, marks=pytest.mark.lab),
    pytest.param(12, 2, marks=pytest.mark.lab),
)
"""Seeds and how many reads of each topic, the first of all there is.

Together they have all codecs, log append time, transactions of each end, a cut log, and one and four partitions.
"""
SHORT_STREAMS = (7, pytest.param(8, marks=pytest.mark.lab))
"""Together: committed and other reads, transactions of each end, limits, pieces, conditions."""
SOAK_SEEDS = 60
STREAM_DEADLINE_S = 200
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


@pytest.mark.parametrize(("seed", "reads"), SHORT)
def test_both_connectors_read_the_same(jvm_kafka_spark: SparkSession, servers: str, seed: int, reads: int) -> None:
    assert try_seed(jvm_kafka_spark, servers, seed, records=200, reads=reads) > 0


def test_both_read_the_same_of_a_compacted_topic(jvm_kafka_spark: SparkSession, servers: str) -> None:
    topic = compacted_topic(servers, seed=1)
    assert compare(jvm_kafka_spark, servers, topic, {"subscribe": topic.name, "minPartitions": "5"}) > 0


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_many_seeds(jvm_kafka_spark: SparkSession, servers: str) -> None:
    rows_read = sum(try_seed(jvm_kafka_spark, servers, seed, records=2_000, reads=6) for seed in soak_seeds())
    assert rows_read > 0


def soak_seeds() -> list[int]:
    named = os.environ.get("DIFFERENTIAL_SEED")
    return [int(named)] if named else [random.SystemRandom().randrange(1 << 32) for _ in range(SOAK_SEEDS)]


def written(
    spark: SparkSession, servers: str, stream: RandomStream, way: str, folder: Path
) -> list[dict[str, Any]] | str:
    """Write what a stream reads into a table, and return its rows in the order of offsets, or that it is refused."""
    options = stream.for_spark if way == "spark" else {**stream.for_us, "handOver": way}
    try:
        reader = spark.readStream.format("kafka" if way == "spark" else "kafka_once").options(**options)
        rows = reader.option("kafka.bootstrap.servers", servers).load()
        rows = stream.after_spark(rows) if way == "spark" else rows
        sink = stream.sink if way == "ranges" else {}
        rows = rows if way == "ranges" else stream.after_both(rows)
        assert start(rows, folder / "table", folder / "checkpoint", **sink).awaitTermination(STREAM_DEADLINE_S)
    except REFUSALS as error:
        return f"refused: {error}"
    if not DeltaTable.is_deltatable(str(folder / "table")):
        return []
    found = DeltaTable(folder / "table").to_pyarrow_table()
    table = found.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()
    columns = {name: plain(table[name].combine_chunks()) for name in sorted(table.column_names)}
    return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]


def compare_ways(spark: SparkSession, servers: str, topic: RandomTopic, stream: RandomStream, folder: Path) -> int:
    """Write by all three ways, fail where the tables differ, and give the number of rows."""
    found = {way: written(spark, servers, stream, way, folder / way) for way in ("spark", "rows", "ranges")}
    story = f"\n{stream}\ntopic: " + "\n  ".join(topic.story)
    expected = found["spark"]
    for way in ("rows", "ranges"):
        ours = found[way]
        if isinstance(expected, str) or isinstance(ours, str):
            assert isinstance(expected, str) and isinstance(ours, str), (  # noqa: PT018 - both, or neither
                f"one refuses: {str(expected)[:600]!r} and, {way}, {str(ours)[:600]!r}{story}"
            )
            continue
        assert len(ours) == len(expected), f"{way}: {len(ours)} rows for {len(expected)}{story}"
        for mine, other in zip(ours, expected, strict=True):
            assert without_java(repr(mine)) == without_java(repr(other)), f"{way}{story}"
    return 0 if isinstance(expected, str) else len(expected)


def try_streams(spark: SparkSession, servers: str, seed: int, records: int, count: int, folder: Path) -> int:
    print(f"DIFFERENTIAL_SEED={seed}")
    with random_topic(servers, seed, records) as topic:
        streams = random_streams(topic, servers, seed, count)
        rows = sum(compare_ways(spark, servers, topic, each, folder / str(at)) for at, each in enumerate(streams))
    topic = json_topic(servers, seed, records)
    return rows + compare_ways(spark, servers, topic, random_json_stream(topic, seed), folder / "json")


@pytest.mark.parametrize("seed", SHORT_STREAMS)
def test_all_three_ways_write_the_same(jvm_kafka_spark: SparkSession, servers: str, seed: int, tmp_path: Path) -> None:
    assert try_streams(jvm_kafka_spark, servers, seed, records=200, count=1, folder=tmp_path) > 0


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_many_seeds_of_streams(jvm_kafka_spark: SparkSession, servers: str, tmp_path: Path) -> None:
    for seed in soak_seeds():
        assert try_streams(jvm_kafka_spark, servers, seed, records=1_000, count=3, folder=tmp_path / str(seed)) >= 0
        shutil.rmtree(tmp_path / str(seed))
