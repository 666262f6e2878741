"""The larger form of two comparisons with other programs: NOT NULL inside structs, and values of partitions."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce.connectors.delta_sink.schema import SchemaError, fit
from sparkonce.connectors.values.partition_values import DATES, TIMES
from tests.partition_edges import DAYS, TIMES_US, readings
from tests.required_fields import delta_takes, nullable, random_rows

pytestmark = [pytest.mark.java, pytest.mark.spark]

TABLES, ROWS = 20, 3
VALUES = 400


def test_rows_are_refused_where_delta_refuses_them(delta_spark: SparkSession, tmp_path: Path) -> None:
    refused = 0
    for seed in range(1_000, 1_000 + TABLES):
        for number, (table, row) in enumerate(random_rows(seed, ROWS)):
            query = nullable(table)
            assert isinstance(query, t.StructType)
            batch = pa.RecordBatch.from_pylist([row], to_arrow_schema(query, timezone="UTC"))
            try:
                fit(query, table, []).write_schema.align(batch)
                ours = True
            except SchemaError:
                ours = False
            theirs = delta_takes(delta_spark, tmp_path / f"{seed}-{number}", table, row)
            assert ours == theirs, (seed, table.simpleString(), row)
            refused += not theirs
    assert 0 < refused < TABLES * ROWS


def test_every_reader_has_the_partition_values_that_are_written(delta_spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(41)
    days = [*DAYS, *(rng.randint(*DATES) for _ in range(VALUES))]
    times = [*TIMES_US, *(rng.randint(*TIMES) for _ in range(VALUES))]
    count = min(len(days), len(times))
    expected = [*zip(range(count), days, times, times, strict=False)]
    for reader, found in readings(delta_spark, tmp_path / "table", days, times[:count]).items():
        assert found == expected, reader
