"""Dates and times at the edges of what partitions can have, in days and microseconds since 1970; and who reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkonce.connectors.values.partition_values import DATES, TIMES

_DAY_US = 86_400_000_000


def _between(first: int, last: int, count: int) -> list[int]:
    rng = random.Random(9999)
    return [rng.randint(first, last) for _ in range(count)]


DAYS = [*DATES, DATES[0] + 1, DATES[1] - 1, -1, 0, 1, -141_427, -141_428, 59, 11_016, *_between(*DATES, 20)]
"""Among them the end of the Julian calendar, leap days, and some at random."""
TIMES_US = [
    *TIMES,
    TIMES[0] + 1,
    TIMES[1] - 999_999,
    -1,
    0,
    1,
    500_000,
    -9_223_372_036_854_776,
    9_223_372_036_854_776,
    *_between(*TIMES, 20),
]
"""Among them those where nanoseconds in 64 bits end."""
FAR_DAYS = [DATES[0] - 1, DATES[0] - 367, DATES[1] + 1, -106_751_992, 106_751_991]
"""The last ones are the first and last day of Spark's timestamps."""
FAR_TIMES_US = [TIMES[0] - 1, TIMES[0] - 800 * _DAY_US, TIMES[1] + 1, -(2**63), 2**63 - 1]


def readings(
    spark: SparkSession, place: Path, days: Sequence[int], times: Sequence[int]
) -> dict[str, list[tuple[int, ...]]]:
    """Write rows by ``delta_once``, partitioned by date, time and local time, and return what each reader has."""
    us, count = pa.array(times, pa.int64()), len(times)
    columns = [pa.array(days[:count], pa.int32()).cast(pa.date32())]
    columns += [us.cast(pa.timestamp("us", "UTC")), us.cast(pa.timestamp("us")), pa.array(range(count), pa.int64())]
    schema = "d DATE, t TIMESTAMP, l TIMESTAMP_NTZ, v BIGINT"
    rows = spark.createDataFrame(pa.Table.from_arrays(columns, ["d", "t", "l", "v"]), schema).coalesce(1)
    rows.write.format("delta_once").mode("append").options(path=str(place), partitionBy="d,t,l").save()
    local = "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01', l)"
    by_spark = spark.read.format("delta").load(str(place)).selectExpr("v", "unix_date(d)", "unix_micros(t)", local)
    table = DeltaTable(place)
    with duckdb.connect() as connection:
        connection.register("rows", table.to_pyarrow_dataset())
        by_duckdb = connection.sql("SELECT v, d, t, l FROM rows").to_arrow_table()
    return {
        "Spark": sorted(map(tuple, by_spark.collect())),
        "delta-rs": _numbers(table.to_pyarrow_table()),
        "DuckDB": _numbers(by_duckdb),
    }


def _numbers(rows: pa.Table) -> list[tuple[int, ...]]:
    columns = [rows["v"], rows["d"].cast(pa.int32()), rows["t"].cast(pa.int64()), rows["l"].cast(pa.int64())]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))
