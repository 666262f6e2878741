"""Checkpoints restored from a copy: a batch is recognized by its contents, so no row is lost or duplicated.

Each history here is one that a comparison of batch numbers and Kafka offsets alone takes for replays.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import timestamp_seconds, window

from lab.crash_plans import arm, disarm
from sparkonce.jobs.cli.main import main
from tests.spark.sink_support import NumbersSource, numbers, run

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


class World:
    """One query's table and checkpoint, and a copy of the checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, crash_folder: Path) -> None:
        spark.dataSource.register(NumbersSource)
        self.spark, self.folder, self.crash_folder = spark, folder, crash_folder
        self.table, self.checkpoint, self.copied = folder / "table", folder / "checkpoint", folder / "copy"
        (folder / "files").mkdir()

    def write(self, frame: DataFrame) -> None:
        run(frame, self.table, self.checkpoint)

    def crash(self, frame: DataFrame, batch_id: int, point: str = "sink.begun") -> None:
        arm(self.crash_folder, "set-back", f"{point}@{batch_id}=raise")
        try:
            with pytest.raises(StreamingQueryException, match="injected failure"):
                self.write(frame)
        finally:
            disarm(self.crash_folder, "set-back")
            (self.crash_folder / "set-back.fired").unlink()

    def refused(self, frame: DataFrame) -> str:
        with pytest.raises(StreamingQueryException) as stopped:
            self.write(frame)
        return str(stopped.value)

    def copy(self) -> None:
        shutil.copytree(self.checkpoint, self.copied)

    def set_back(self) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.copied, self.checkpoint)

    def rows(self) -> list[tuple[object, ...]]:
        table = DeltaTable(str(self.table)).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())

    def file(self, name: str) -> None:
        (self.folder / "files" / name).write_text(name)

    def files(self, a_batch: int = 1) -> DataFrame:
        reader = self.spark.readStream.format("text").option("maxFilesPerTrigger", str(a_batch))
        return reader.load(str(self.folder / "files"))

    def windows(self, end: int) -> DataFrame:
        """Windows of ten records, as many records a batch."""
        records = numbers(self.spark, end=end, perBatch=10, partitions=1)
        times = records.select(timestamp_seconds("offset").alias("at")).withWatermark("at", "0 seconds")
        counts = times.groupBy(window("at", "10 seconds")).count()
        return counts.selectExpr("unix_seconds(window.start) AS start", "count")


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, crash_folder: Path) -> Iterator[World]:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, "1")  # as many stores of state, each of which costs files and a task in every batch
    yield World(spark, tmp_path, crash_folder)
    spark.conf.set(name, before)


@pytest.fixture(params=["hdfs", pytest.param("rocksdb", marks=pytest.mark.lab)])
def _state(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(PROVIDER, PROVIDERS["hdfs"])
    spark.conf.set(PROVIDER, PROVIDERS[request.param])
    yield
    spark.conf.set(PROVIDER, before)


@pytest.mark.usefixtures("_state")
def test_windows_are_not_passed_over_with_a_number(world: World) -> None:
    """A batch that only moves the watermark has the number of another one, and no range that could tell."""
    world.write(world.windows(10))
    world.copy()
    world.write(world.windows(20))
    world.crash(world.windows(30), 5)
    before = world.rows()
    world.set_back()
    error = world.refused(world.windows(30))
    assert re.search(
        r"OffsetMismatchError: batch 2 of query \S+ \(appId app\) is not past the last batch of this query in the "
        r"table, 4, and another batch was written under this number: .*, its watermark or its time differ\. So the "
        r"checkpoint is older than the table.*; or revert the table to where this checkpoint is, batch 1, rows "
        r"and offsets in one commit: sparkonce offsets rewind <path of this table> --to-version 2 --restore; or write "
        r"to a new table",
        error,
    ), error
    assert world.rows() == before
    # The way out: the table goes back to where the copy is.
    assert main(["offsets", "rewind", str(world.table), "--to-version", "2", "--restore", "--apply"]) == 0
    world.write(world.windows(40))
    assert world.rows() == [(start, 10) for start in (0, 10, 20)]


@pytest.mark.usefixtures("_state")
def test_a_batch_that_is_there_takes_the_state_along(world: World) -> None:
    """Spark has not noted the batch, so it comes again, and its rows are read though nobody writes them."""
    world.write(world.windows(10))
    world.crash(world.windows(20), 2, "sink.after_commit")
    world.write(world.windows(40))
    assert world.rows() == [(start, 10) for start in (0, 10, 20)]


@pytest.fixture
def _keeps_one_batch(spark: SparkSession) -> Iterator[None]:
    """Spark removes the entry that says where the batch before began."""
    name = "spark.sql.streaming.minBatchesToRetain"
    kept = spark.conf.get(name)
    assert kept is not None
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, kept)


@pytest.mark.usefixtures("_keeps_one_batch")
def test_a_query_goes_on_whose_checkpoint_keeps_one_batch(world: World) -> None:
    for end in (20, 40):
        world.write(world.windows(end))
    assert world.rows() == [(start, 10) for start in (0, 10, 20)]


@pytest.mark.usefixtures("_keeps_one_batch")
def test_the_batch_before_is_another_one_in_a_checkpoint_that_keeps_one(world: World) -> None:
    """The copy went on elsewhere, so that only the time of its last batch differs."""
    for name in ("f1", "f2"):
        world.file(name)
        world.write(world.files())
    world.copy()
    world.file("f3")
    world.write(world.files())
    world.set_back()
    (world.folder / "files/f3").unlink()
    world.file("f4")
    run(world.files(), world.folder / "elsewhere", world.checkpoint, beginsLate="true")
    world.file("f5")
    error = world.refused(world.files())
    assert "batch 2, the last one there, is not the one in the checkpoint" in error, error
    assert world.rows() == [("f1",), ("f2",), ("f3",)]


def test_files_are_not_passed_over_with_a_number(world: World) -> None:
    """The offset of Spark's file source is a number, too, whatever the files."""
    world.file("f1")
    world.write(world.files())
    world.copy()
    world.file("f2")
    world.file("f3")
    world.write(world.files())
    world.set_back()
    world.write(world.files())  # as before: the batches of these numbers, and there
    world.set_back()
    world.file("f4")
    error = world.refused(world.files(a_batch=2))
    assert re.search(
        r"batch 1 of .* last batch of this query in the table, 2, and another batch was written under this number: the "
        r"offsets of its sources \(of a file source: the files\) differ\..* This query reads no kafka_once, so only "
        r"its checkpoint has its offsets.* sparkonce offsets rewind <path of this table> --to-version 1 --restore",
        error,
    ), error
    assert world.rows() == [("f1",), ("f2",), ("f3",)]
    world.set_back()
    world.write(world.files())
    assert world.rows() == [("f1",), ("f2",), ("f3",), ("f4",)]
