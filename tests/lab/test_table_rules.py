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


def batches(spark: SparkSession) -> list[pa.RecordBatch]:
    found = []
    for row in ROWS:
        named = ", ".join(f"CAST({each.name} AS {each.dataType.simpleString()})" for each in QUERY)
        values = spark.sql(f"SELECT {named} FROM VALUES ({row}) AS t({', '.join(QUERY.names)})").toDF(*QUERY.names)
        typed = [values.collect()[0].asDict(recursive=True)]
        found.append(pa.RecordBatch.from_pylist(typed, to_arrow_schema(QUERY, timezone="UTC")))
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
