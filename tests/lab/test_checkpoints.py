"""Checkpoints of ours, where everything older is deleted, are tables that every reader reads as before.

delta-spark makes a table of each kind; each of its versions is read by every reader, gets a checkpoint, loses what is
older, and is read again. delta-spark then goes on with the newest, and with the whole table, and both stay the same.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sparkonce.offset_store.log.checkpoints import write_checkpoint
from sparkonce.offset_store.log.cleanup import clean_up
from sparkonce.offset_store.log.storage import LOG_FOLDER
from tests.lab.checkpoint_tables import (
    ALTERED,
    RECIPES,
    Recipe,
    copy_at,
    keep_only,
    log_of,
    readings,
    spark_rows,
    state_at,
    version_of_name,
)

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]
SPARKS_SHARE = 4
"""delta-spark takes longest, and reads one version of so many."""


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda each: each.name)
def test_a_table_is_the_same_after_our_checkpoint_alone(
    delta_spark: SparkSession, tmp_path: Path, recipe: Recipe
) -> None:
    table = tmp_path / "table"
    recipe.make(delta_spark, table)
    last = log_of(table).listing().commits[-1]
    refused = set()
    for version in range(1, last + 1):
        copy = tmp_path / f"copy-{version}"
        copy_at(table, version, copy)
        before = readings(copy)
        refused |= {name for name, found in before.items() if isinstance(found, str)}
        checkpoint(table, copy, version)
        keep_only(copy, version)
        for reader, found in readings(copy).items():
            # delta-rs does not read deletion vectors by delta-spark's checkpoints without statistics; by ours it may.
            assert found == before[reader] or isinstance(before[reader], str), (version, reader)
        if (last - version) % SPARKS_SHARE == 0:
            rows = spark_rows(delta_spark, table, row_ids=recipe.row_ids, version=version)
            assert spark_rows(delta_spark, copy, row_ids=recipe.row_ids) == rows, version
    detail = (
        "SELECT numFiles, sizeInBytes, properties, minReaderVersion, tableFeatures, partitionColumns, clusteringColumns"
    )
    for path in (table, copy):
        delta_spark.sql(f"DESCRIBE DETAIL delta.`{path}`").createOrReplaceTempView(path.name.replace("-", "_"))
    assert delta_spark.sql(f"{detail} FROM table").collect() == delta_spark.sql(f"{detail} FROM copy_{last}").collect()
    history = delta_spark.sql(f"DESCRIBE HISTORY delta.`{copy}`").collect()
    assert [row.version for row in history] == [last]
    goes_on(delta_spark, table, copy, recipe)
    print(f"RESULT table={recipe.name!r} versions={last} refused={sorted(refused)}")


def checkpoint(table: Path, copy: Path, version: int) -> None:
    log = log_of(copy)
    for each in (copy / LOG_FOLDER).glob(f"*{version:020d}.checkpoint*"):
        each.unlink()  # delta-spark's own of this very version
    written = write_checkpoint(log, state_at(table, version), log.listing(), removed_before_ms=0)
    assert written is not None
    hint = json.loads((copy / LOG_FOLDER / "_last_checkpoint").read_text())
    file = pq.ParquetFile(copy / LOG_FOLDER / f"{version:020d}.checkpoint.parquet")
    assert (hint["version"], hint["size"]) == (version, file.metadata.num_rows)


def goes_on(spark: SparkSession, table: Path, copy: Path, recipe: Recipe) -> None:
    for statement in ALTERED:
        for path in (table, copy):
            spark.sql(
                statement.replace("{t} USING", f"delta.`{path}` t USING")
                .replace("{t}.id", "t.id")
                .replace("{t}", f"delta.`{path}`")
            )
        assert spark_rows(spark, copy) == spark_rows(spark, table), statement
    for n in range(2):  # past the next checkpoint of its own
        for path in (table, copy):
            spark.sql(f"DELETE FROM delta.`{path}` WHERE id = {5 * n}")
        assert spark_rows(spark, copy) == spark_rows(spark, table)
    written = list(log_of(copy).listing().checkpoints)
    assert len(written) > 1, written


@pytest.mark.parametrize("name", ["plain", "V2 json", "parts"])
def test_clean_up_leaves_what_later_versions_are_made_of(delta_spark: SparkSession, tmp_path: Path, name: str) -> None:
    (recipe,) = [each for each in RECIPES if each.name == name]
    table = tmp_path / "table"
    recipe.make(delta_spark, table)
    last = log_of(table).listing().commits[-1]
    now_ms = int(time.time() * 1000)
    for expired, oldest in [(2, 0), (3, 3), (5, 3), (last, last // 3 * 3)]:
        copy = shutil.copytree(table, tmp_path / f"copy-{expired}")
        age(copy, expired, now_ms)
        clean_up(log_of(copy), state_at(table, last), now_ms=now_ms)
        left = log_of(copy).listing()
        assert (left.commits[0], left.commits[-1]) == (oldest, last)
        assert (oldest or 3) == min(left.checkpoints)
        for version in (expired + 1, None) if expired < last else (None,):  # older ones delta-spark refuses by age
            rows = spark_rows(delta_spark, table, version=version)
            assert spark_rows(delta_spark, copy, version=version) == rows, (expired, version)


def age(path: Path, expired: int, now_ms: int) -> None:
    """Make files of versions up to one, and all sidecars, 40 days old."""
    for each in (path / LOG_FOLDER).rglob("*"):
        version = version_of_name(each.name)
        if each.is_file() and (each.parent.name == "_sidecars" or (version is not None and version <= expired)):
            os.utime(each, (now_ms / 1000 - 40 * 86_400,) * 2)
