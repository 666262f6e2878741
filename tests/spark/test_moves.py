"""docs/moves.md: every block is run, and the rows are compared after each move."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lab.store.s3 import S3Store, open_s3
from sparkonce import EmbeddedBroker
from tests.spark.recovery_page import Block, World, parts
from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "moves.md"
PARTS = parts(PAGE.read_text())
DEFINITIONS = "The query on this page"


class Mover(World):
    """The page's query on two brokers, the second of which is `new-kafka:9092`, and perhaps an S3 store."""

    new: Topics
    store: S3Store | None = None

    def __post_init__(self) -> None:
        self.names["spark"] = self.spark
        (self.folder / "data" / "tables").mkdir(parents=True)

    def _meanings(self) -> dict[str, str]:
        meant = {
            "/data/": f"{self.folder}/data/",
            "new-kafka:9092": self.new.bootstrap_servers,
            "localhost:9092": self.topics.bootstrap_servers,
        }
        if self.store is not None:
            options = ", ".join(f'"{name}": "{value}"' for name, value in self.store.query_options.items())
            meant |= {
                "localhost:9000": self.store.address.removeprefix("http://"),
                '"storage.AWS_REGION": "us-east-1"': options,  # the session's workers have no credentials of their own
            }
        return meant

    def send(self, partition: int, count: int, topics: Topics | None = None) -> None:
        """Put records of their own into a partition of `orders`."""
        begin = len(self.values)
        (topics or self.topics).produce("orders", values("order", count, start=begin), partition=partition)
        self.values += [value.decode() for value in values("order", count, start=begin)]

    def follow_steps(self, title: str, *steps: Block) -> None:
        """Do what a section says: all of it, or some of its blocks."""
        part = PARTS[title]
        self.follow(part if not steps else type(part)(title, None, steps))

    def check(self, table: str = "orders", **options: object) -> None:
        """See that a table has each record that was sent once."""
        where = table if table.startswith("s3:") else str(self.folder / "data" / "tables" / table)
        rows = DeltaTable(where, **options).to_pyarrow_table()["value"].to_pylist()  # type: ignore[arg-type]
        assert sorted(rows) == sorted(self.values)


@pytest.fixture
def mover(spark: SparkSession, tmp_path: Path) -> Iterator[Mover]:
    with EmbeddedBroker() as broker, EmbeddedBroker() as second:
        topics, new = Topics(broker.bootstrap_servers), Topics(second.bootstrap_servers)
        topics.create(2, "orders")
        new.create(2, "orders")
        mover = Mover(spark, topics, tmp_path)
        mover.new = new
        mover.send(0, 4)
        mover.send(1, 2)
        yield mover


@pytest.fixture
def store(mover: Mover, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    with open_s3() as store:
        mover.store = store
        for name, value in store.storage_options.items():
            if name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ALLOW_HTTP"):
                monkeypatch.setenv(name, value)
        yield store


def test_from_a_local_disk_to_s3(mover: Mover, store: S3Store) -> None:
    mover.follow_steps(DEFINITIONS)
    before = list(mover.values)
    mover.send(1, 3)
    copy, compare, start = PARTS["From a local disk to S3"].steps
    mover.run_python(copy.text)
    local = str(mover.folder / "data" / "tables" / "orders")
    printed = [mover.run_bash(line).replace(local, "TABLE") for line in compare.text.splitlines()]
    shown, of_copy, audited, audit_of_copy = (text.replace("s3://bucket/tables/orders", "TABLE") for text in printed)
    assert (shown, audited) == (of_copy, audit_of_copy)
    assert "orders-1" in audited
    mover.run_python(start.text)
    mover.check("s3://bucket/tables/orders", storage_options=dict(store.storage_options))
    mover.values = before
    mover.check()
    with pytest.raises(AssertionError, match="this place is not empty"):
        mover.run_python(copy.text)


def test_a_query_with_state_keeps_its_checkpoint_when_its_table_moves(
    spark: SparkSession, tmp_path: Path, mover: Mover, store: S3Store
) -> None:
    def distinct(table: str, **storage: str) -> None:
        source = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", mover.topics.bootstrap_servers)
        rows = source.option("subscribe", "orders").option("startingOffsets", "earliest").options(**storage).load()
        rows = rows.selectExpr("CAST(value AS STRING) AS value").dropDuplicates(["value"])
        sink = rows.writeStream.format("delta_once").options(appId="orders", **storage).trigger(availableNow=True)
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start(table).awaitTermination()

    distinct(str(mover.folder / "data" / "tables" / "orders"))
    mover.topics.produce("orders", [value.encode() for value in mover.values])  # duplicates, which only the state knows
    mover.send(0, 2)
    mover.run_python(PARTS["From a local disk to S3"].steps[0].text)
    distinct("s3://bucket/tables/orders", **store.query_options)
    mover.check("s3://bucket/tables/orders", storage_options=dict(store.storage_options))


@pytest.mark.lab  # as with a lost checkpoint: tests/spark/test_sink_end_to_end.py
def test_to_another_spark_cluster(mover: Mover) -> None:
    mover.follow_steps(DEFINITIONS)
    mover.send(0, 3)
    mover.follow_steps("To another Spark cluster")
    mover.check()


def test_to_other_brokers_with_an_empty_topic(mover: Mover) -> None:
    mover.follow_steps(DEFINITIONS)
    mover.send(1, 1)
    drain, show, start, _ = PARTS["To other Kafka brokers"].steps
    mover.run_python(drain.text)
    partitions = [line.split() for line in mover.run_bash(show.text).splitlines() if re.match(r"    \d", line)]
    assert [(number, lag) for number, _, _, _, lag, *_ in partitions] == [("0", "0"), ("1", "0")]
    mover.send(0, 2, mover.new)
    mover.run_python(start.text)
    mover.check()


def test_to_other_brokers_with_a_mirrored_topic(mover: Mover) -> None:
    mover.follow_steps(DEFINITIONS)
    mover.send(1, 1)
    for partition, numbers in ((0, range(4)), (1, (4, 5, 6))):
        mover.new.produce("orders", [f"order-{number}".encode() for number in numbers], partition=partition)
    drain, _, start, set_offsets = PARTS["To other Kafka brokers"].steps
    mover.run_python(drain.text)
    mover.run_bash(set_offsets.text)
    mover.send(0, 2, mover.new)
    mover.run_python(start.text)
    mover.check()


THERE, BACK = "From Spark's Kafka source and Delta's sink", "Back to Spark's Kafka source and Delta's sink"


def test_from_spark_s_own_pipeline_and_back(
    mover: Mover, jvm_kafka_spark: SparkSession, delta_spark: SparkSession
) -> None:
    """Spark's query ends after its last batch, or is killed before or after the commit of that: each is copied."""
    folder = mover.folder
    mover.run_python(PARTS[DEFINITIONS].steps[0].text)
    theirs, set_offsets, ours = PARTS[THERE].steps
    mover.run_python(theirs.text)
    mover.send(1, 1)
    shutil.copytree(folder / "data/tables/jvm", folder / "before")
    mover.run_python(theirs.text)
    mover.send(0, 1)
    for killed in ("after its last batch", "before the commit", "after the commit"):
        mover.folder = folder / killed.replace(" ", "-")
        table, checkpoint = mover.folder / "data/tables/jvm", mover.folder / "data/checkpoints/jvm"
        shutil.copytree(folder / "data", mover.folder / "data")
        if killed != "after its last batch":  # Spark notes the end of a batch after the commit
            (checkpoint / "commits/1").unlink()
        if killed == "before the commit":
            shutil.rmtree(table)
            shutil.copytree(folder / "before", table)
        assert "shop" not in (said := mover.run_bash(set_offsets.text))
        assert f"batch {0 if killed == 'before the commit' else 1} of query" in said, killed
        mover.run_python(ours.text)
        mover.check("jvm")
    mover.send(0, 1)
    mover.send(1, 2)
    mover.run_python(ours.text)
    show, printed, back = PARTS[BACK].steps
    mover.follow_steps(BACK, show, printed)
    mover.send(1, 2)
    mover.run_python(back.text)
    mover.check("jvm")
    mover.send(0, 2)
    again = set_offsets.text.replace("checkpoints/jvm", "checkpoints/jvm-3")
    assert "are in the table already" in mover.run_bash(again)
    mover.run_python(ours.text.replace("jvm-2", "jvm-4"))
    mover.check("jvm")
