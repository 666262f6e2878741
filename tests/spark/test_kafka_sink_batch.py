"""`df.write.format("kafka_once")`: every column arrives, and what cannot work is refused before a row is sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.source_support import Topics, batch

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka_sink.md").read_text()
USE_IT = PAGE.partition("\n## Use it\n")[2].partition("\n## ")[0]
COLUMNS = (
    "key string, value string, topic string, partition int, headers array<struct<key string, value binary>>, x int"
)


def write(frame: DataFrame, topics: Topics, mode: str = "append", **options: str) -> None:
    given = {"kafka.bootstrap.servers": topics.bootstrap_servers, **options}
    frame.write.format("kafka_once").mode(mode).options(**given).save()


def found(spark: SparkSession, topics: Topics, topic: str) -> list[tuple[Any, ...]]:
    rows = batch(spark, topics, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    return [
        (
            row.partition,
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            [(each.key, each.value and bytes(each.value)) for each in row.headers or []],
        )
        for row in rows
    ]


def test_every_column_arrives_where_it_belongs(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.create(2), topics.create(2)
    frame = spark.createDataFrame(
        [
            ("k", "a", first, 1, [("h", b"1"), ("h", None)], 7),
            ("k", None, first, 1, [], 7),
            (None, "c", second, 0, None, 7),
        ],
        COLUMNS,
    ).coalesce(1)
    write(frame, topics)
    assert found(spark, topics, first) == [
        (1, b"k", b"a", [("h", b"1"), ("h", None)]),
        (1, b"k", None, []),
    ]
    assert found(spark, topics, second) == [(0, None, b"c", [])]


def test_options_beat_columns_and_many_tasks_write_every_row(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(3)
    frame = spark.range(0, 20_000, 1, 4).selectExpr(
        "CAST(id % 100 AS STRING) AS key",
        "encode(CAST(id AS STRING), 'UTF-8') AS value",
        "'elsewhere' AS topic",
        "array(struct('h' AS key, CAST('v' AS BINARY) AS value)) AS headers",
    )
    settings = {"kafka.compression.type": "zstd", "kafka.batch.size": "10000", "kafka.request.timeout.ms": "20000"}
    write(frame, topics, topic=topic, includeHeaders="false", **settings)
    written = batch(spark, topics, topic, includeHeaders="true")
    assert written.selectExpr("count(*)", "count(DISTINCT value)", "count(headers)").first() == (20_000, 20_000, 0)
    assert written.select("key", "partition").distinct().count() == 100  # one key, one partition


def test_what_cannot_work_is_refused_in_words_that_reach_the_user(spark: SparkSession, topics: Topics) -> None:
    frame = spark.range(1).selectExpr("'v' AS value")
    for mode, options, message in (
        ("overwrite", {"topic": "t"}, "mode overwrite would have to empty the topic"),
        ("append", {"topic": "t", "deliveryGuarantee": "exactly-once"}, "is for writeStream"),
    ):
        with pytest.raises(PySparkException) as caught:
            write(frame, topics, mode, **options)
        assert message in str(caught.value)


@pytest.mark.lab  # the tests above write the same
def test_the_examples_of_the_page(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    names = {name: topics.create(2) for name in ("flights", "flights-upper", "numbers")}
    topics.produce(names["flights"], [b"a", b"b"], keys=[b"1", None])
    for example in re.findall(r"```python\n(.*?)```", USE_IT, re.DOTALL):
        text = example.replace("localhost:9092", topics.bootstrap_servers).replace("/tmp/", f"{tmp_path}/")
        for name, topic in names.items():
            text = text.replace(f'"{name}"', f'"{topic}"')
        exec(text, {"spark": spark})  # what the page says
    upper = found(spark, topics, names["flights-upper"])
    assert {(key, value) for _, key, value, _ in upper} == {(b"1", b"A"), (None, b"B")}
    assert len(upper) == 2
    numbers = found(spark, topics, names["numbers"])
    assert sorted(numbers) == sorted((n % 2, b"%d" % n, b'{"id":%d}' % n, []) for n in range(100))
