"""A table's own SQL and the declared lengths of texts: each row is taken or refused, and stored, as delta-spark does.

Ours is judged without a commit, by what becomes of the rows (`WriteSchema.align`); delta-spark inserts each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce.connectors.delta_sink.features import TableFacts, refusals
from sparkonce.connectors.delta_sink.rules import rules_of
from sparkonce.connectors.delta_sink.schema import SchemaError, TableCheck, fit, rule_names
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import TableLog

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = "v BIGINT, i INT, t STRING, d DATE, f DOUBLE, m DECIMAL(10,2), b BOOLEAN, s STRUCT<x: INT>"
KINDS = [
    t.LongType(),
    t.IntegerType(),
    t.StringType(),
    t.DateType(),
    t.DoubleType(),
    t.DecimalType(10, 2),
    t.BooleanType(),
    t.StructType([t.StructField("x", t.IntegerType())]),
]
QUERY = t.StructType([t.StructField(name, kind) for name, kind in zip("vitdfmbs", KINDS, strict=True)])
ROWS = [
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "1, 1, 'a', DATE'2024-02-29', 0.1, 0.10, true, named_struct('x', 1)",
    "-1, -7, '', DATE'1969-12-31', double('NaN'), -0.01, false, named_struct('x', NULL)",
    "9223372036854775807, 2147483647, '12', DATE'0001-01-01', -0.0, 99999999.99, NULL, NULL",
]
CONDITIONS = [
    "v > 0",
    "v + 1 > 0",
    "i % 2 = 1 OR t IS NULL",
    "t IN ('a', '12')",
    "length(t) BETWEEN 1 AND 2",
    "t LIKE '_%'",
    "t <> ''",
    "CAST(t AS INT) > 0",
    "d >= '1970-01-01'",
    "year(d) > 1900",
    "f > 0.05",
    "isnan(f) OR f = 0",
    "m >= 0.1",
    "b",
    "NOT b",
    "s.x > 0",
    "s.x IS NULL OR s.x = 1",
    "coalesce(v, 0) >= 0",
    "CASE WHEN v IS NULL THEN true ELSE v > 0 END",
]
GENERATED = {
    "g1 BIGINT": "v * 2",
    "g2 INT": "year(d)",
    "g3 STRING": "upper(t)",
    "g4 INT": "length(t)",
    "g5 STRING": "substring(t, 1, 1)",
    "g6 DATE": "date_add(d, 1)",
}
DEFAULTS = {
    "d1 BIGINT": "2 + 3",
    "d2 STRING": "'it''s'",
    "d3 DATE": "DATE'2024-02-29'",
    "d4 DECIMAL(5,2)": "1.5",
    "d5 BOOLEAN": "true",
    "d6 STRING": "NULL",
    "d7 DOUBLE": "0.1",
    "d8 STRING": "upper('a')",
    "d9 BOOLEAN": "TIMESTAMP'2024-02-29 12:00:00Z' > TIMESTAMP'2024-02-29 12:00:00+01:00'",
}
REFUSALS = ("DELTA_", "ARITHMETIC_OVERFLOW", "CAST_INVALID_INPUT")
TEXTS = [
    "",
    "a",
    "abc",
    "abcd",
    "abc ",
    "abc    ",
    " a",
    "   ",
    "    ",
    "éèç",
    "éèçà",
    "𠮷𠮷𠮷",
    "𠮷𠮷𠮷 ",
    "abc\t",
    "ab  d",
]


def created(spark: SparkSession, path: Path, columns: str, properties: str = "") -> str:
    name = f"rules_{path.name}"
    spark.sql(f"CREATE OR REPLACE TABLE {name} ({columns}) USING delta LOCATION '{path}' {properties}")
    return name


def shape(path: Path, query: t.StructType) -> TableCheck:
    facts = TableFacts.of(TableLog(Location.parse(str(path))).state())
    assert refusals(facts) == []
    found = fit(query, facts.schema, facts.partition_columns, mapped=facts.is_mapped, rules=facts.rules)
    return TableCheck(found.write_schema, rule_names(facts))


def ours(check: TableCheck, batch: pa.RecordBatch) -> list[dict[str, Any]] | None:
    """Return a row as it would be stored; None if it is refused, or is a dead letter where there are any."""
    broken = check.broken(batch)
    try:
        stored = list(check.schema.align(batch).to_pylist())
    except SchemaError:
        assert broken.keys() == {0}
        return None
    assert broken == {}
    return stored


def theirs(spark: SparkSession, statement: str) -> bool:
    """Whether delta-spark takes it."""
    try:
        spark.sql(statement)
    except PySparkException:
        return False
    except Py4JJavaError as error:
        if not any(kind in str(error) for kind in REFUSALS):
            raise
        return False
    return True


def batches(spark: SparkSession, query: t.StructType = QUERY, rows: Sequence[str] = ROWS) -> list[pa.RecordBatch]:
    found = []
    for row in rows:
        named = ", ".join(f"CAST({each.name} AS {each.dataType.simpleString()})" for each in query)
        values = spark.sql(f"SELECT {named} FROM VALUES ({row}) AS t({', '.join(query.names)})").toDF(*query.names)
        (table,) = values.toArrow().to_batches()
        found.append(table.cast(to_arrow_schema(query, timezone="UTC")))
    return found


def test_conditions_hold_where_delta_spark_says_so(delta_spark: SparkSession, tmp_path: Path) -> None:
    given, taken = batches(delta_spark), 0
    for number, condition in enumerate(CONDITIONS):
        path = tmp_path / f"c{number}"
        name = created(delta_spark, path, COLUMNS)
        delta_spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT c CHECK ({condition})")
        schema = shape(path, QUERY)
        for row, batch in zip(ROWS, given, strict=True):
            kept = ours(schema, batch) is not None
            assert kept == theirs(delta_spark, f"INSERT INTO {name} VALUES ({row})"), (condition, row)
            taken += kept
        delta_spark.sql(f"DROP TABLE {name}")
    assert 0 < taken < len(CONDITIONS) * len(ROWS)
    print(f"RESULT conditions={len(CONDITIONS)} rows={len(ROWS)} taken={taken}")


WORDS = (
    "add all alter and anti any array as asc at authorization between both by case cast check collate column commit "
    "constraint create cross cube current current_date current_time current_timestamp current_user date day default "
    "delete desc describe distinct div do drop else end escape except exists explain extract false fetch filter "
    "first following for foreign from full function grant group grouping having hour if ilike in inner insert "
    "intersect interval into is join key lambda last lateral leading left like limit local map match merge month "
    "natural not null nulls of offset on only or order outer over overlaps partition pivot position preceding "
    "primary qualify range rank references rename replace returning revoke right rlike rollup row rows schema "
    "second select semi set show some start summarize symmetric table tablesample then time timestamp to trailing "
    "true try union unique unknown unpivot update user using values view when where window with year zone"
)
"""Words that mean something in the SQL of Spark or of the engine."""
OVER_WORDS = ["{} > 0", "v < 0 OR {} IS NOT NULL", "coalesce({}, v) + v > 1", "{} IN (1, 2) AND v > 0"]


def test_columns_named_as_keywords_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    read = 0
    for word in WORDS.split():
        table = t.StructType([t.StructField(word, t.LongType()), t.StructField("v", t.LongType())])
        rows = pa.RecordBatch.from_pydict({word: [1, -1, None], "v": [1, 2, 2]}, to_arrow_schema(table))
        for condition in (each.format(word) for each in OVER_WORDS):
            values = f"SELECT coalesce(({condition}), false) AS kept FROM VALUES (1L, 1L), (-1L, 2L), (NULL, 2L)"
            try:
                expected = [row.kept for row in spark.sql(f"{values} AS t(`{word}`, v)").collect()]
            except PySparkException:
                continue
            found = rules_of(table.json(), (("delta.constraints.c", condition),))
            if not found.by_spark:
                read += 1
                assert [number not in found.checks[0].broken(rows) for number in range(3)] == expected, condition
    assert read > 350
    print(f"RESULT words={len(WORDS.split())} evaluated={read}")


TIMES = "z TIMESTAMP, y TIMESTAMP, s STRUCT<z: TIMESTAMP>, v INT"
TIMED = t.StructType(
    [
        *(t.StructField(name, t.TimestampType()) for name in "zy"),
        t.StructField("s", t.StructType([t.StructField("z", t.TimestampType())])),
        t.StructField("v", t.IntegerType()),
    ]
)
TIMED_ROWS = [
    "NULL, NULL, NULL, 0",
    "TIMESTAMP'2024-03-10 07:30:00Z', TIMESTAMP'2024-03-10 06:30:00.000001Z', named_struct('z', NULL), 1",
    "TIMESTAMP'1969-12-31 23:59:59.999999Z', TIMESTAMP'2024-11-03 05:30:00Z', "
    "named_struct('z', TIMESTAMP'1969-12-31 23:59:59.999999Z'), -1",
]
ON_TIMES = [
    "z > TIMESTAMP'2024-03-10 02:30:00-05:00' AND v > 0",
    "z <= '2024-03-10T07:30:00Z'",
    "z BETWEEN y AND TIMESTAMP'9999-12-31 00:00:00+14:00' OR z IS NULL",
    "s.z IS NOT DISTINCT FROM z",
    "NOT (y IN (TIMESTAMP'2024-11-03 05:30:00Z', NULL)) OR s IS NULL",
    "unix_micros(z) < 0 OR coalesce(y, z, TIMESTAMP'2024-01-01 00:00:00Z') < TIMESTAMP'2024-05-01 00:00:00Z'",
]


def test_conditions_on_times_hold_in_every_zone_where_delta_spark_says_so(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    zone, taken = delta_spark.conf.get("spark.sql.session.timeZone"), 0
    assert zone is not None
    given = batches(delta_spark, TIMED, TIMED_ROWS)
    for number, condition in enumerate(ON_TIMES):
        path = tmp_path / f"z{number}"
        name = created(delta_spark, path, f"{TIMES}, g TIMESTAMP GENERATED ALWAYS AS (z)")
        delta_spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT c CHECK ({condition})")
        check = shape(path, TIMED)
        delta_spark.conf.set("spark.sql.session.timeZone", ("America/New_York", "Asia/Kolkata")[number % 2])
        for row, batch in zip(TIMED_ROWS, given, strict=True):
            kept = ours(check, batch) is not None
            assert kept == theirs(delta_spark, f"INSERT INTO {name} (z, y, s, v) VALUES ({row})"), (condition, row)
            taken += kept
        delta_spark.conf.set("spark.sql.session.timeZone", zone)
        delta_spark.sql(f"DROP TABLE {name}")
    assert 0 < taken < len(ON_TIMES) * len(TIMED_ROWS)


def test_generated_columns_are_computed_as_by_delta_spark(delta_spark: SparkSession, tmp_path: Path) -> None:
    columns = ", ".join(f"{column} GENERATED ALWAYS AS ({text})" for column, text in GENERATED.items())
    path = tmp_path / "generated"
    name = created(delta_spark, path, f"{COLUMNS}, {columns}")
    schema, found = shape(path, QUERY), []
    names = ", ".join(QUERY.names)
    for row, batch in zip(ROWS, batches(delta_spark), strict=True):
        stored = ours(schema, batch)
        assert (stored is not None) == theirs(delta_spark, f"INSERT INTO {name} ({names}) VALUES ({row})"), row
        found += stored or []
    assert 0 < len(found) < len(ROWS)
    assert same(found, delta_spark.table(name).collect())
    delta_spark.sql(f"DROP TABLE {name}")


def test_defaults_are_those_of_delta_spark(delta_spark: SparkSession, tmp_path: Path) -> None:
    columns = ", ".join(f"{column} DEFAULT {text}" for column, text in DEFAULTS.items())
    properties = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    path = tmp_path / "defaults"
    name = created(delta_spark, path, f"v BIGINT, {columns}", properties)
    query = t.StructType(QUERY.fields[:1])
    stored = ours(shape(path, query), pa.RecordBatch.from_pylist([{"v": 1}]))
    assert stored is not None
    delta_spark.sql(f"INSERT INTO {name} (v) VALUES (1)")
    assert same(stored, delta_spark.table(name).collect())
    delta_spark.sql(f"DROP TABLE {name}")


def test_texts_are_stored_as_by_delta_spark(delta_spark: SparkSession, tmp_path: Path) -> None:
    for kind in ("CHAR(3)", "VARCHAR(3)"):
        path = tmp_path / kind[:-3].lower()
        name = created(delta_spark, path, f"s {kind}")
        query, found = t.StructType([t.StructField("s", t.StringType())]), []
        schema = shape(path, query)
        for text in TEXTS:
            stored = ours(schema, pa.RecordBatch.from_pylist([{"s": text}], pa.schema([("s", pa.string())])))
            assert (stored is not None) == theirs(delta_spark, f"INSERT INTO {name} VALUES ('{text}')"), (kind, text)
            found += stored or []
        table = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
        assert sorted(row["s"] for row in found) == sorted(pa.table(table)["s"].to_pylist())
        delta_spark.sql(f"DROP TABLE {name}")


def same(found: Sequence[dict[str, Any]], rows: Sequence[Any]) -> bool:
    """Whether Spark has the same rows."""
    return sorted(map(repr, found)) == sorted(repr(row.asDict(recursive=True)) for row in rows)
