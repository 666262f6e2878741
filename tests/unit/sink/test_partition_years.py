"""Dates and times as partition values: the years 1 to 9999 are written, others refused; compaction meets Spark's."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.values.partition_values import DATES, TIMES, outside, texts, unwritable
from sparkonce.jobs.cli.main import main
from tests.cases import each_case
from tests.partition_edges import DAYS, FAR_DAYS, FAR_TIMES_US, TIMES_US
from tests.unit.sink.query_by_hand import Query, make_table, table_actions

UTC_TIME, LOCAL_TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
EPOCH = dt.datetime(1970, 1, 1)


def test_times_are_written_as_pythons_own_are() -> None:
    times = [EPOCH + dt.timedelta(microseconds=us) for us in TIMES_US]
    days = [(EPOCH + dt.timedelta(days=day)).date() for day in DAYS]
    assert texts(pa.array(TIMES_US, LOCAL_TIME)) == [each.isoformat(" ", "microseconds") for each in times]
    assert texts(pa.array(TIMES_US, UTC_TIME)) == [f"{each.isoformat(timespec='microseconds')}Z" for each in times]
    assert texts(pa.array(DAYS, pa.date32())) == [each.isoformat() for each in days]
    assert texts(pa.array(["x", "", None])) == ["x", None, None]
    assert texts(pa.array([True, False, None])) == ["true", "false", None]


@each_case(
    "day, text",
    [
        (DATES[0] - 1, "0000-12-31"),
        (DATES[0] - 800, "-0002-10-24"),
        (DATES[1] + 1, "+10000-01-01"),
        (106_751_991, "+294247-01-10"),
    ],
)
def test_dates_that_python_does_not_have_are_written_as_spark_writes_them(day: int, text: str) -> None:
    assert texts(pa.array([day, None], pa.int32()).cast(pa.date32())) == [text, None]


def test_years_that_partitions_have_are_told_from_others() -> None:
    for kind, near, far, bounds in (
        (pa.date32(), DAYS, FAR_DAYS, DATES),
        (UTC_TIME, TIMES_US, FAR_TIMES_US, TIMES),
        (LOCAL_TIME, TIMES_US, FAR_TIMES_US, TIMES),
    ):
        numbers = pa.int32() if pa.types.is_date(kind) else pa.int64()
        values = [*near, None, *far, bounds[0] - 1, bounds[0], bounds[1], bounds[1] + 1]
        column = pa.array(values, numbers).cast(kind)
        wrong = [row for row, each in enumerate(values) if each is not None and not bounds[0] <= each <= bounds[1]]
        assert outside(column).tolist() == wrong
        assert outside(column.slice(len(near))).tolist() == [row - len(near) for row in wrong]
        assert not outside(column.slice(0, len(near) + 1)).size
    assert unwritable(pa.RecordBatch.from_pydict({"P": pa.array([DATES[1] + 1], pa.int32()).cast(pa.date32())}), ["p"])
    assert not outside(pa.array(["9999999"])).size


@each_case("kind, values", [(t.DateType(), DAYS), (t.TimestampType(), TIMES_US), (t.TimestampNTZType(), TIMES_US)])
def test_each_year_that_is_written_is_read_by_delta_rs(
    tmp_path_factory: pytest.TempPathFactory, kind: t.DataType, values: list[int]
) -> None:
    query = partitioned(tmp_path_factory.mktemp("years"), kind)
    query.write(0, [{"p": python_value(kind, each), "v": number} for number, each in enumerate(values)])
    table = DeltaTable(query.table)
    for rows in (
        table.to_pyarrow_table(),
        pa.table(QueryBuilder().register("t", table).execute("SELECT p, v FROM t").read_all()),
    ):
        number = pa.int32() if isinstance(kind, t.DateType) else pa.int64()
        found = dict(zip(rows["v"].to_pylist(), rows["p"].cast(number).to_pylist(), strict=True))
        assert found == dict(enumerate(values))


@each_case(
    "kind, far", [(t.DateType(), FAR_DAYS), (t.TimestampType(), FAR_TIMES_US), (t.TimestampNTZType(), FAR_TIMES_US)]
)
def test_other_years_are_refused_by_column_value_and_row(
    tmp_path_factory: pytest.TempPathFactory, kind: t.DataType, far: list[int]
) -> None:
    for value in far:
        query = partitioned(tmp_path_factory.mktemp("far"), kind)
        query.log(0, 10)
        with pytest.raises(
            SchemaError, match=r"column p is [-+]?\d{4,6}-.*years 1 to 9999.*row 2 of 2.* Correct what writes it"
        ):
            query.tasks_with([[batch(kind, [0, value])]])
        assert query.files() == 0


def test_a_table_that_is_not_partitioned_has_all_years(tmp_path: Path) -> None:
    kind = t.DateType()
    query = Query(tmp_path, schema=t.StructType([t.StructField("p", kind), t.StructField("v", t.LongType())]))
    query.log(0, 10)
    query.commit(0, query.tasks_with([[batch(kind, [0, *FAR_DAYS])]]))
    (file,) = query.table.glob("*.parquet")
    assert pq.read_table(file)["p"].cast(pa.int32()).to_pylist() == [0, *FAR_DAYS]


@each_case(
    "kind, text, merges",
    [
        ("date", "+10000-01-01", True),
        ("date", "-0001-01-01", True),
        ("date", "0000-01-01", True),
        ("timestamp", "+10000-01-01 00:00:00", False),
        ("date", "+294247-01-10", None),
    ],
)
def test_a_table_with_partitions_that_spark_wrote_is_compacted_as_far_as_delta_rs_can(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    text: str,
    merges: bool | None,
) -> None:
    """For None, delta-rs cannot open it; for False, it cannot choose files by partition."""
    path = tmp_path_factory.mktemp("spark") / "table"
    near = "2024-05-06" if kind == "date" else "2024-05-06 00:00:00"
    adds = []
    for number, value in enumerate([text, text, near, near]):
        name = f"{number}.parquet"
        adds.append(
            {
                "add": {
                    "path": name,
                    "partitionValues": {"p": value},
                    "size": 0,
                    "modificationTime": 0,
                    "dataChange": True,
                }
            }
        )
    p = t.StructField("p", t.DateType() if kind == "date" else t.TimestampType())
    make_table(
        path,
        *table_actions(t.StructType([p, t.StructField("v", t.LongType())]), partition_columns=["p"]),
        *written(path, adds),
    )
    assert main(["compact", "--dry-run", str(path)]) == (1 if merges is None else 0)
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    if merges is None:
        assert text in told.err
        return
    assert text[:11] in told.out
    assert main(["compact", str(path)]) == (0 if merges else 1)
    assert len(DeltaTable(path).file_uris()) == (2 if merges else 4)
    told = capsys.readouterr()
    assert merges or (text in told.err and "merge them with delta-spark (OPTIMIZE)" in told.err)
    assert json.dumps(sorted(each["v"] for each in rows_of(path))) == "[0, 1, 2, 3]"


def partitioned(root: Path, kind: t.DataType) -> Query:
    schema = t.StructType([t.StructField("p", kind), t.StructField("v", t.LongType())])
    return Query(root, schema=schema, partitionBy="p")


def python_value(kind: t.DataType, number: int) -> Any:
    if isinstance(kind, t.DateType):
        return (EPOCH + dt.timedelta(days=number)).date()
    time = EPOCH + dt.timedelta(microseconds=number)
    return time if isinstance(kind, t.TimestampNTZType) else time.replace(tzinfo=dt.UTC)


def batch(kind: t.DataType, numbers: list[int]) -> pa.RecordBatch:
    arrow = (
        pa.date32()
        if isinstance(kind, t.DateType)
        else LOCAL_TIME
        if isinstance(kind, t.TimestampNTZType)
        else UTC_TIME
    )
    column = pa.array(numbers, pa.int32() if isinstance(kind, t.DateType) else pa.int64()).cast(arrow)
    return pa.RecordBatch.from_pydict({"p": column, "v": pa.array(range(len(numbers)), pa.int64())})


def written(path: Path, adds: list[dict[str, dict[str, Any]]]) -> list[dict[str, dict[str, Any]]]:
    path.mkdir(parents=True)
    for number, action in enumerate(adds):
        pq.write_table(pa.table({"v": pa.array([number], pa.int64())}), path / action["add"]["path"])
        action["add"]["size"] = (path / action["add"]["path"]).stat().st_size
    return adds


def rows_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(
        QueryBuilder().register("t", DeltaTable(path)).execute("SELECT v FROM t").read_all()
    ).to_pylist()
    return found
