"""`df.write.format("delta_once")` in Spark: modes, jobs that fail at each step, and jobs that come again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from lab.crash_plans import arm, fired

pytestmark = pytest.mark.spark


def write(frame: DataFrame, table: Path, mode: str | None = "append", **options: str) -> None:
    writer = frame.write.format("delta_once").options(**options)
    (writer if mode is None else writer.mode(mode)).save(str(table))


def rows(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


def data_files(table: Path) -> int:
    return sum("_delta_log" not in path.parts for path in table.rglob("*.parquet"))


def numbers(spark: SparkSession, start: int, end: int, tasks: int = 2) -> DataFrame:
    return spark.range(start, end, 1, tasks).selectExpr("id", "id % 2 AS rest")


def test_append_and_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(numbers(spark, 0, 10), table, partitionBy="rest")
    write(numbers(spark, 10, 15), table)
    assert rows(table) == list(range(15))
    assert DeltaTable(table).metadata().partition_columns == ["rest"]
    write(numbers(spark, 3, 5), table, "overwrite")
    assert rows(table) == [3, 4]
    assert DeltaTable(table).version() == 3


@pytest.mark.parametrize("mode", [None, "ignore"])
def test_spark_rejects_the_other_modes(spark: SparkSession, tmp_path: Path, mode: str | None) -> None:
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        write(numbers(spark, 0, 1), tmp_path / "table", mode)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("point", "is_there"),
    [("sink.writing", False), ("sink.before_commit", False), ("sink.after_commit", True)],
)
def test_a_job_that_fails_is_repeated_with_its_key(
    spark: SparkSession, tmp_path: Path, crash_folder: Path, point: str, is_there: bool
) -> None:
    table = tmp_path / "table"
    write(numbers(spark, 0, 5), table)
    plan = arm(crash_folder, f"batch-{point}", f"{point}=raise")
    with pytest.raises(PySparkException, match="injected failure"):  # in its only task: Spark kills the others
        write(numbers(spark, 5, 10, tasks=1), table, idempotencyKey="k")
    assert fired(plan)
    assert rows(table) == list(range(10 if is_there else 5))
    assert is_there or data_files(table) == 2
    for _ in range(2):
        write(numbers(spark, 5, 10, tasks=1), table, idempotencyKey="k")
        assert rows(table) == list(range(10))
    assert DeltaTable(table).version() == 2


def test_a_task_that_fails_leaves_no_row(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 7 in batch["id"].to_pylist():
                raise ValueError("row 7 is wrong")
            yield batch

    frame: Any = numbers(spark, 0, 10)
    with pytest.raises(PySparkException, match="row 7 is wrong"):
        write(frame.mapInArrow(failing, frame.schema), table)
    assert rows(table) == []


def test_a_stream_into_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(numbers(spark, 0, 5), table)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    query = stream.selectExpr("value + 100 AS id", "value % 2 AS rest").writeStream.format("delta_once")
    query = query.option("appId", "a").option("checkpointLocation", str(tmp_path / "c")).trigger(once=True)
    query.start(str(table)).awaitTermination()
    assert rows(table) == [*range(5), 100, 101, 102]
