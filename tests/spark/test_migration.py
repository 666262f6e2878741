"""docs/migrating_from_kafka.md: its code is run, there and back, on checkpoints that Spark's own connector made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkonce import EmbeddedBroker
from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "migrating_from_kafka.md").read_text()
BLOCKS = re.findall(r"^## (.+?)$|```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)


def code(title: str) -> str:
    """Return the block under a heading."""
    place = next(index for index, (heading, _) in enumerate(BLOCKS) if heading == title)
    return next(block for _, block in BLOCKS[place:] if block)


class Move:
    """One broker, one folder, and the page's code run on them, with whichever connector."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder

    def run(self, title: str, source: str = "kafka_once", sink: str | None = None, **names: object) -> None:
        text = code(title).replace('readStream.format("kafka_once")', f'readStream.format("{source}")')
        if source == "kafka":  # which knows no option of ours, and begins anew here
            text = text.replace(
                '"subscribe", "orders")', '"subscribe", "orders").option("startingOffsets", "earliest")'
            )
        if sink is not None:
            text = re.sub(r'writeStream\.format\("\w+"\)', f'writeStream.format("{sink}")', text)
        text = text.replace("localhost:9092", self.topics.bootstrap_servers).replace("/data/", f"{self.folder}/")
        exec(text, {"spark": self.spark, **names})

    def stream(self, source: str) -> DataFrame:
        servers = ("kafka.bootstrap.servers", self.topics.bootstrap_servers)
        stream = self.spark.readStream.format(source).option(*servers).option("subscribe", "orders")
        return stream.option("startingOffsets", "earliest").load()

    def found(self, read: DataFrame) -> list[str]:
        return sorted(row.value for row in read.select("value").collect())


@pytest.fixture
def move(jvm_kafka_spark: SparkSession, tmp_path: Path) -> Iterator[Move]:
    with EmbeddedBroker() as broker:
        topics = Topics(broker.bootstrap_servers)
        topics.create(2, "orders")
        yield Move(jvm_kafka_spark, topics, tmp_path)


def expected(count: int) -> list[str]:
    return sorted(value.decode() for value in values("order", count))


def test_there_and_back_with_one_checkpoint(move: Move) -> None:
    ours, theirs = move.stream("kafka_once"), move.stream("kafka")
    assert ours.schema == theirs.schema
    for source, done in (("kafka", 5), ("kafka_once", 8), ("kafka", 12)):
        if done == 12:
            move.run("The way back")
        before = {5: 0, 8: 5, 12: 8}[done]
        move.topics.produce("orders", values("order", done - before, start=before), partition=done % 2)
        move.run("Change the source", source)
        assert move.found(move.spark.read.json(str(move.folder / "orders"))) == expected(done)


def test_spark_s_kafka_sink_is_followed_by_ours(move: Move) -> None:
    move.topics.create(1, "orders-copy")
    move.topics.produce("orders", values("order", 4))
    move.run("From Spark's Kafka sink", sink="kafka", orders=move.stream("kafka"))
    move.topics.produce("orders", values("order", 3, start=4), partition=1)
    move.run("From Spark's Kafka sink", orders=move.stream("kafka_once"))
    read = move.spark.read.format("kafka_once").option("kafka.bootstrap.servers", move.topics.bootstrap_servers)
    copied = read.option("subscribe", "orders-copy").option("kafka.isolation.level", "read_committed").load()
    assert move.found(copied.selectExpr("CAST(value AS STRING) AS value")) == expected(7)


def test_delta_s_sink_is_followed_by_ours(move: Move, delta_spark: SparkSession) -> None:
    move.topics.produce("orders", values("order", 4))
    move.run("From the `delta` sink", sink="delta", orders=move.stream("kafka"))
    move.topics.produce("orders", values("order", 3, start=4), partition=1)
    move.run("From the `delta` sink", orders=move.stream("kafka_once"))
    table = delta_spark.read.format("delta").load(str(move.folder / "tables" / "orders"))
    assert move.found(table) == expected(7)
