"""Rows that other programs find by a filter are those that they find without: all predicates, every reader there is.

Polars is compared where it is installed, DuckDB's extension for Delta where `DUCKDB_DELTA` names its file. Spark takes
longest for a predicate, and gets one of twelve.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkonce.jobs.cli.main import main
from tests.table_readers import (
    DataFusion,
    Dataset,
    DuckDB,
    EdgeTable,
    Polars,
    Predicate,
    Reader,
    Spark,
    differences,
    predicates,
    write_edge_values,
    write_partitions,
)

pytestmark = pytest.mark.timeout(1200)
SEED = 20_233
SPARKS_SHARE = 12


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> EdgeTable:
    return write_edge_values(tmp_path_factory.mktemp("edges"), SEED)


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> EdgeTable:
    return write_partitions(tmp_path_factory.mktemp("partitions"))


def of_the_log() -> list[Reader]:
    """Return the readers that go by the log, and take milliseconds for a predicate."""
    polars = [Polars()] if find_spec("polars") else []
    extension = os.environ.get("DUCKDB_DELTA")
    return [DataFusion(), Dataset(), *polars, *([DuckDB(delta=extension)] if extension else [])]


def check(reader: Reader, table: EdgeTable, asked: list[Predicate]) -> None:
    asked = [each for each in asked if not reader.skips_wrongly(each)]
    found = differences(reader, table, asked)
    print(f"RESULT reader={reader.name!r} predicates={len(asked)} differences={len(found)}")
    assert found == []


def test_values(edges: EdgeTable) -> None:
    for reader in [*of_the_log(), DuckDB()]:
        check(reader, edges, predicates(edges.kinds))


def test_partition_values(partitions: EdgeTable) -> None:
    for reader in of_the_log():
        check(reader, partitions, predicates(partitions.kinds, "partition_values"))


def test_values_in_files_that_were_merged(tmp_path: Path) -> None:
    """Not by ``to_pyarrow_dataset``, which skips files for columns whose bounds are left out (docs/delta_tables.md)."""
    table = write_edge_values(tmp_path, SEED)
    sizes = pa.table(DeltaTable(table.path).get_add_actions())["size_bytes"].to_pylist()
    assert main(["compact", str(table.path), "--target-bytes", str(sum(sizes) * 3 // len(sizes))]) == 0
    for reader in [*of_the_log(), DuckDB()]:
        if not isinstance(reader, Dataset):
            check(reader, table, predicates(table.kinds)[::3])


@pytest.mark.java
@pytest.mark.spark
def test_values_and_partition_values_in_spark(
    delta_spark: SparkSession, edges: EdgeTable, partitions: EdgeTable
) -> None:
    asked = predicates(edges.kinds)
    check(Spark(delta_spark), edges, asked[::SPARKS_SHARE])
    check(Spark(delta_spark, files=True), edges, asked[SPARKS_SHARE // 2 :: SPARKS_SHARE])
    check(Spark(delta_spark), partitions, predicates(partitions.kinds, "partition_values")[::SPARKS_SHARE])


@pytest.mark.java
@pytest.mark.spark
def test_values_in_spark_after_a_checkpoint_and_a_compaction(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = write_edge_values(tmp_path, SEED)
    sizes = pa.table(DeltaTable(table.path).get_add_actions())["size_bytes"].to_pylist()
    assert main(["compact", str(table.path), "--target-bytes", str(sum(sizes) * 3 // len(sizes))]) == 0
    DeltaTable(table.path).create_checkpoint()
    kinds = [kind for kind in table.kinds if kind.column in ("d", "s.x", "text", "day", "at", "m38_38", "m18_18")]
    check(Spark(delta_spark), table, predicates(kinds)[:: SPARKS_SHARE * 2])
