"""What `delta_once` writes, beside delta-spark: tables that it makes, rows that it reads, statistics that it writes."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as t
from pyspark.sql.functions import expr, lit

from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.errors import RowsWithoutOffsetsError
from tests.unit.sink.query_by_hand import Query, delete_row, make_table, table_actions

pytestmark = [pytest.mark.java, pytest.mark.spark]

TABLE = """
    `a b` bigint, s struct<x: int, l: array<struct<z: string>>>, m map<string, struct<q: int>>,
    amount decimal(30, 4), at timestamp, local timestamp_ntz, day date, p string
"""
COUNT = 60


def of_table(number: int) -> dict[str, Any]:
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 999_000) + dt.timedelta(microseconds=number)
    return {
        "a b": number,
        "s": {"x": number, "l": [{"z": f"é{number}"}, None]} if number % 5 else None,
        "m": {"k": {"q": number}, "none": None},
        "amount": Decimal(number) / 4 - 3,
        "at": moment.replace(tzinfo=dt.UTC),
        "local": moment,
        "day": moment.date() + dt.timedelta(days=number),
        "p": ("x", None, "a/b=c %é")[number % 3],
    }


def as_dict(row: Row) -> dict[str, Any]:
    found = row.asDict(recursive=True)
    return {**found, "at": found["at"].astimezone(dt.UTC)}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_table_with_mapped_columns_and_deletion_vectors(delta_spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Over checkpoints of delta-rs's; a row that is deleted stays so."""
    schema = delta_spark.createDataFrame([], TABLE).schema
    query = Query(tmp_path, schema=schema)
    name = f"delta.`{query.table}`"
    delta_spark.sql(
        f"CREATE TABLE {name} ({TABLE}) USING delta PARTITIONED BY (p) TBLPROPERTIES ("
        f"'delta.columnMapping.mode' = '{mode}', 'delta.enableDeletionVectors' = 'true', "
        "'delta.checkpointInterval' = '3')"
    )
    each = COUNT // 3
    query.write(0, [{**of_table(1), "a b": number} for number in (1000, 1001)])
    delete_row(query.table, 1)
    for index in range(3):
        query.write(index + 1, [of_table(number) for number in range(index * each, (index + 1) * each)])
    assert list((query.table / "_delta_log").glob("*.checkpoint*.parquet"))
    frame = delta_spark.read.format("delta").load(str(query.table))
    condition = "`a b` >= 20 AND s.x < 40 AND at >= timestamp'2024-02-29 23:59:59.999025 UTC' AND p = 'a/b=c %é'"
    marked = frame.withColumn("wanted", expr(f"coalesce({condition}, false)"))
    skipped = frame.where(condition).withColumn("wanted", lit(None))
    found = [as_dict(row) for row in marked.unionByName(skipped).orderBy("`a b`").collect()]
    wanted = [number for number in range(25, 40) if number % 3 == 2 and number % 5]
    everything = [{**of_table(1), "a b": 1000}]
    everything += [of_table(number) for number in range(COUNT)]
    rows = [row for row in found if row["wanted"] is not None]
    assert [row["a b"] for row in found if row["wanted"] is None] == wanted
    assert [row["a b"] for row in rows if row["wanted"]] == wanted
    assert [{key: row[key] for key in row if key != "wanted"} for row in rows] == everything[1:] + everything[:1]
    table = DeltaTable(query.table)
    counted = QueryBuilder().register("found", table).execute("SELECT count(*) AS n FROM found").read_all()
    assert counted["n"].to_pylist() == [COUNT + 1]


STATISTICS = """
    b tinyint, l bigint, f float, d double, m decimal(30, 4), short string, ascii string, accents string, high string,
    pairs string, bin binary, flag boolean, day date, at timestamp, local timestamp_ntz, ls array<int>,
    mp map<string, int>, st struct<x: int, y: struct<z: string>>, nothing struct<x: int>, none int, big bigint,
    nan double, zero double, endless double
"""
MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
FIRST: dict[str, Any] = {
    "b": -128,
    "l": 2,
    "f": 0.1,
    "d": 0.1,
    "m": Decimal("12.5000"),
    "short": "",
    "ascii": "a" * 40,
    "accents": "é" * 40,
    "high": "a" * 32 + "\U0010ffff" * 3,
    "pairs": "a" + "\U0001f600" * 40,
    "bin": b"x",
    "flag": True,
    "day": dt.date(1, 1, 1),
    "at": MOMENT.replace(tzinfo=dt.UTC),
    "local": MOMENT,
    "ls": [1, None],
    "mp": {"a": 1},
    "st": {"x": 1, "y": {"z": "q"}},
    "nothing": None,
    "none": None,
    "big": 2**63 - 1,
    "nan": math.nan,
    "zero": -0.0,
    "endless": math.inf,
}
SECOND = {
    **dict.fromkeys(FIRST),
    "b": 127,
    "l": -(2**63),
    "m": Decimal("-0.0001"),
    "short": "b",
    "ascii": "b" * 40,
    "nan": 1.0,
    "zero": 0.0,
    "endless": 1.0,
}
OTHERWISE = {"flag"}
"""Where delta-spark has no bounds."""
MILLISECONDS = ("at", "local")


def statistics(table: Path) -> dict[str, Any]:
    (add,) = pa.table(DeltaTable(table).get_add_actions()).to_pylist()
    log = sorted((table / "_delta_log").glob("*.json"))
    lines = (json.loads(line) for path in log for line in path.read_text().splitlines() if line.strip())
    (found,) = (json.loads(each["add"]["stats"], parse_float=Decimal) for each in lines if "add" in each)
    assert found["numRecords"] == add["num_records"]
    return dict(found)


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Take away what is meant to differ: each is explained in docs/delta_tables.md."""
    for bounds in (found["minValues"], found["maxValues"]):
        for name in OTHERWISE:
            bounds.pop(name, None)
        bounds.pop("nothing", None)  # an empty object, which says nothing
        for name in MILLISECONDS:  # delta-spark cuts to milliseconds, and its readers allow for it
            bounds[name] = bounds[name][: len("1969-12-31T23:59:59.999")]
        bounds["f"] = float(pa.scalar(float(bounds["f"]), pa.float32()).as_py())
        if "zero" in bounds:
            bounds["zero"] = abs(bounds["zero"])  # ours widens both bounds to both signs
    return found


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"delta.dataSkippingNumIndexedCols": "19"},
        {"delta.dataSkippingStatsColumns": "b,f,at,local,st.y,zero,ascii"},
    ],
    ids=["first 32", "first 19", "chosen"],
)
def test_statistics_are_delta_sparks(delta_spark: SparkSession, tmp_path: Path, configuration: dict[str, str]) -> None:
    """The same rows written by both: the same JSON, but for what `comparable` takes away. With a NaN, ours has none."""
    schema = delta_spark.createDataFrame([], STATISTICS).schema
    query, theirs = Query(tmp_path, schema=schema), tmp_path / "theirs"
    ntz = ["timestampNtz"]
    make_table(query.table, *table_actions(schema, features=ntz, reader_features=ntz, configuration=configuration))
    rows = [{**FIRST, "nan": None}, SECOND]
    frame = delta_spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("delta").options(**configuration).save(str(theirs))
    query.write(0, rows)
    ours, wanted = statistics(query.table), statistics(theirs)
    assert ours["maxValues"]["at"] == "1969-12-31T23:59:59.999999Z"
    assert comparable(ours) == comparable(wanted)


def test_delta_spark_skips_files_by_our_statistics_and_loses_no_row(delta_spark: SparkSession, tmp_path: Path) -> None:
    """Delta's DataSkippingDeltaTests, the kinds of predicates: every row that matches is found among many files."""
    schema = t.StructType([t.StructField("n", t.IntegerType()), *delta_spark.createDataFrame([], STATISTICS).schema])
    query = Query(tmp_path, schema=schema, targetFileBytes="1")
    rows = [{**(FIRST if number % 2 else SECOND), "n": number, "l": number} for number in range(12)]
    for batch_id, row in enumerate(rows):
        query.write(batch_id, [row])
    frame = delta_spark.read.format("delta").load(str(query.table))
    conditions = {
        "l >= 3 AND l < 6": [3, 4, 5],
        "b = -128": [1, 3, 5, 7, 9, 11],
        "f = cast(0.1 as float)": [1, 3, 5, 7, 9, 11],
        f"ascii = '{'a' * 40}'": [1, 3, 5, 7, 9, 11],
        f"ascii > '{'a' * 40}'": [0, 2, 4, 6, 8, 10],
        f"accents >= '{'é' * 40}'": [1, 3, 5, 7, 9, 11],
        "pairs = concat('a', repeat('\U0001f600', 40))": [1, 3, 5, 7, 9, 11],
        "at = timestamp'1969-12-31 23:59:59.999999 UTC'": [1, 3, 5, 7, 9, 11],
        "local >= timestamp_ntz'1969-12-31 23:59:59.999999'": [1, 3, 5, 7, 9, 11],
        "day < date'1900-01-01'": [1, 3, 5, 7, 9, 11],
        "m < 0": [0, 2, 4, 6, 8, 10],
        "isnan(nan)": [1, 3, 5, 7, 9, 11],
        "nan > 1": [1, 3, 5, 7, 9, 11],
        "zero <= 0": list(range(12)),
        "endless > 1e300": [1, 3, 5, 7, 9, 11],
        "none is null and st.y.z = 'q'": [1, 3, 5, 7, 9, 11],
        "st is null": [0, 2, 4, 6, 8, 10],
        "none is not null": [],
        "flag": [1, 3, 5, 7, 9, 11],
    }
    found = {text: [] for text in conditions}
    numbered = [f"SELECT {index} AS c, n FROM found WHERE {text}" for index, text in enumerate(conditions)]
    frame.createOrReplaceTempView("found")
    for each in delta_spark.sql(" UNION ALL ".join(numbered)).collect():
        found[list(conditions)[each.c]].append(each.n)
    assert {text: sorted(numbers) for text, numbers in found.items()} == conditions


COORDINATES = "partition int, offset bigint"


def test_a_shallow_clone_is_refused_until_it_has_the_offsets(
    delta_spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clone has a deletion vector and V2 checkpoints, too, which the audit reads all the same."""
    query = Query(tmp_path, schema=delta_spark.createDataFrame([], COORDINATES).schema)
    rows = [{"partition": 0, "offset": offset} for offset in range(30)]
    query.write(0, rows[:10])
    query.write(1, rows[10:20])
    clone = tmp_path / "clone"
    delta_spark.sql(
        f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{query.table}` TBLPROPERTIES ("
        "'delta.enableDeletionVectors' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')"
    )
    twin = Query(tmp_path, "twin", schema=query.schema, path=str(clone))
    twin.log(1, 20)
    with pytest.raises(RowsWithoutOffsetsError, match=f"CLONE of version 2 of {query.table}"):
        twin.write(2, rows[20:])
    assert main(["offsets", "copy", str(clone), "--apply"]) == 0
    twin.write(2, rows[20:])
    delta_spark.sql(f"DELETE FROM delta.`{clone}` WHERE offset = 22")
    delta_spark.range(1).selectExpr("0 AS partition", "23L AS offset").write.format("delta").mode("append").save(
        str(clone)
    )
    assert list((clone / "_delta_log").glob("*.checkpoint.*.json"))
    capsys.readouterr()
    assert main(["audit", str(clone), "--coordinates", "partition,offset", "--expect-all-rows", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (counted,) = [each["rows"] for each in told["partitions"]]
    assert (counted["missingAt"], counted["duplicatedAt"]) == ([[22, 23]], [[23, 24]])
    warnings = {"cloned": 1, "moved-on-purpose": 1, "rows-removed": 1}
    assert told["counts"] == warnings | {"missing": 1, "duplicated": 1}
