"""For any schema and rows: columns that are taken as they are equal those that go through the engine."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.sql.types import arrow_schema
from tests.chance import examples

SIMPLE: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (t.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (t.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (t.ByteType(), st.integers(-128, 127)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    (t.FloatType(), st.floats(width=32, allow_nan=False)),
    (t.BooleanType(), st.booleans()),
    (t.StringType(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    (t.BinaryType(), st.binary(max_size=20)),
    (t.DateType(), st.dates()),
    (t.TimestampType(), st.datetimes(timezones=st.just(dt.UTC))),
    (t.TimestampNTZType(), st.datetimes()),
    (t.DecimalType(4, 1), st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-1))),
    (t.DecimalType(9, 0), st.integers(-(10**8), 10**8).map(Decimal)),
    (t.DecimalType(18, 9), st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-9))),
    (t.DecimalType(38, 10), st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-10))),
]
Typed = tuple[t.DataType, st.SearchStrategy[Any]]


def array(of: Typed) -> Typed:
    return t.ArrayType(of[0]), st.lists(st.none() | of[1], max_size=4)


def mapping(of: Typed) -> Typed:
    pairs = st.dictionaries(st.text("abc", max_size=3), st.none() | of[1], max_size=3)
    return t.MapType(t.StringType(), of[0]), pairs.map(lambda found: list(found.items()))


def struct(fields: list[Typed]) -> Typed:
    kind = t.StructType([t.StructField(f"f{place}", each[0]) for place, each in enumerate(fields)])
    return kind, st.fixed_dictionaries({f"f{place}": st.none() | each[1] for place, each in enumerate(fields)})


TYPES: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(inner.map(array), inner.map(mapping), st.lists(inner, min_size=1, max_size=3).map(struct)),
    max_leaves=4,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[t.StructType, pa.RecordBatch]:
    kind, rows = struct(draw(st.lists(TYPES, min_size=1, max_size=4)))
    columns = t.StructType([t.StructField("value", kind), t.StructField("n", t.LongType())])
    found = draw(st.lists(st.none() | rows, max_size=8))
    given_rows = [{"value": value, "n": place} for place, value in enumerate(found)]
    batch = pa.RecordBatch.from_pylist(given_rows, arrow_schema(columns))
    start = draw(st.integers(0, len(found)))
    return columns, batch.slice(start)


@settings(max_examples=examples(40))
@given(tables())
def test_columns_taken_as_they_are_equal_those_through_the_engine(table: tuple[t.StructType, pa.RecordBatch]) -> None:
    columns, rows = table
    kind: Any = columns["value"].dataType
    names = kind.names
    native = check_select("SELECT " + ", ".join(f"value.{name}" for name in names) + " FROM records", columns)
    through = check_select(
        "SELECT " + ", ".join(f"CASE WHEN true THEN value.{name} END AS {name}" for name in names) + " FROM records",
        columns,
    )
    assert native.computed is None
    assert through.computed is not None
    assert through.schema == native.schema
    taken, computed = native.runner().run(rows), through.runner().run(rows)
    assert taken.rows.schema == computed.rows.schema == arrow_schema(native.schema)
    taken.rows.validate(full=True)
    computed.rows.validate(full=True)
    assert taken.rows.equals(computed.rows)
    assert not computed.failed


@settings(max_examples=examples(40))
@given(tables(), st.integers(0, 8))
def test_a_where_takes_rows_of_every_type(table: tuple[t.StructType, pa.RecordBatch], least: int) -> None:
    columns, rows = table
    selected = check_select(f"SELECT value.*, n FROM records WHERE n >= {least}", columns).runner().run(rows).rows
    whole = check_select("SELECT value.*, n FROM records", columns).runner().run(rows).rows
    kept = [place for place, n in enumerate(rows.column("n").to_pylist()) if n >= least]
    assert selected.equals(whole.take(pa.array(kept, pa.int32())))
    assert selected.schema == whole.schema
