"""Expressions evaluated by Spark and by ours, each row for itself: equal values and types, or failing rows in both."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession

from sparkonce.connectors.sql.failures import INFINITE
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.sql.types import same_kinds
from sparkonce.options import OptionError
from tests.spark.sql_pairs import Pair, schema

AT_ONCE = 100
"""Expressions in one query of Spark."""
FAILS = "fails"


_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.subexpressionElimination.enabled": "false",  # it takes what fails out of TryEval
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # most of these expressions are evaluated once
    "spark.sql.codegen.wholeStage": "false",
}


@contextmanager
def with_settings(spark: SparkSession) -> Iterator[None]:
    """Have UTC as the session's zone, Spark's default for errors, and expressions that fail row by row."""
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


@dataclass(frozen=True)
class Difference:
    """A row for which the two differ."""

    pair: Pair
    row: dict[str, Any]
    ours: Any
    spark: Any

    def __str__(self) -> str:
        return f"{self.pair.ours}: here {self.ours!r}, Spark {self.spark!r}, of {self.row}"


def spark_rows(spark: SparkSession, rows: pa.RecordBatch, path: Path) -> DataFrame:
    """Return the rows as Spark reads them: through a file, since Python has no days after 9999."""
    pq.write_table(pa.Table.from_batches([rows]), path)
    return spark.read.schema(schema()).parquet(str(path)).coalesce(1)


def differences(frame: DataFrame, rows: pa.RecordBatch, pairs: Sequence[Pair]) -> Iterator[Difference]:
    """Return the rows for which an expression differs, one for each expression and kind of difference."""
    for first in range(0, len(pairs), AT_ONCE):
        some = pairs[first : first + AT_ONCE]
        results = _by_spark(frame, [pair.spark for pair in some])
        for pair, expected in zip(some, results, strict=True):
            yield from _different(pair, rows, expected)


def _by_spark(frame: DataFrame, texts: Sequence[str]) -> list[pa.StructArray]:
    """Return an array of structs for each expression: null where it fails."""
    session: Any = frame.sparkSession
    parser = session._jsparkSession.sessionState().sqlParser()
    jvm = session._jvm.org.apache.spark.sql

    def guarded(text: str) -> Column:
        # CASE makes the value one that may be null, or Arrow does not take the null of a row that fails.
        expression = parser.parseExpression(f"named_struct('v', CASE WHEN n >= 0 THEN {text} END)")
        return Column(jvm.classic.ExpressionUtils.column(jvm.catalyst.expressions.TryEval(expression)))

    columns = [guarded(text).alias(f"x{place}") for place, text in enumerate(texts)]
    table = frame.select(*columns).toArrow().combine_chunks()
    return [column.chunk(0) for column in table.columns]


def _different(pair: Pair, rows: pa.RecordBatch, expected: pa.StructArray) -> Iterator[Difference]:
    selected = check_select(f"SELECT n, {pair.ours} AS x FROM records", schema()).runner().run(rows)
    found = selected.rows.column("x")
    if not same_kinds(found.type, expected.field(0).type):
        yield Difference(pair, {}, found.type, expected.field(0).type)
        return
    ours: list[Any] = [FAILS] * rows.num_rows
    for row, value in zip(selected.rows.column("n").to_pylist(), _plain(found), strict=True):
        ours[row] = value
    assert sum(each == FAILS for each in ours) == len(selected.failed)
    fails = expected.is_null().to_pylist()
    spark = [FAILS if failed else value for failed, value in zip(fails, _plain(expected.field(0)), strict=True)]
    infinite = {row for row, reason in selected.failed if reason == INFINITE}
    seen: set[tuple[bool, bool]] = set()
    for row, (one, other) in enumerate(zip(ours, spark, strict=True)):
        kind = one == FAILS, other == FAILS
        if one != other and kind not in seen and row not in infinite:
            seen.add(kind)
            if one != FAILS or not _is_stricter(pair):
                yield Difference(pair, _read(pair, rows, row), one, other)
            elif not any(one == other and one not in (None, FAILS) for one, other in zip(ours, spark, strict=True)):
                yield Difference(pair, {}, FAILS, "not one row that is the same in both and not null")


def _is_stricter(pair: Pair) -> bool:
    """Return whether the check knows that rows fail that Spark accepts: then TRY is refused."""
    if pair.stricter:
        return True
    try:
        check_select(f"SELECT TRY({pair.ours}) AS x FROM records", schema())
    except OptionError as error:
        return "TRY would be null where Spark has a value" in str(error)
    return False


def _read(pair: Pair, rows: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return the values that an expression reads."""
    names = [name for name in rows.schema.names if name in pair.ours]
    return {name: _plain(rows.column(name).slice(row, 1))[0] for name in names}


def _plain(array: pa.Array) -> list[Any]:
    """Return values that are equal exactly if they are the same: bits of floats, bytes of text, numbers of times."""
    kind = array.type
    if pa.types.is_floating(kind):
        return [None if value is None else _bits(value) for value in array.to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return array.view(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).to_pylist()
    if pa.types.is_string(kind):
        return array.view(pa.binary()).to_pylist()
    if pa.types.is_struct(kind):
        fields = [_plain(array.field(place)) for place in range(kind.num_fields)]
        return [
            list(values) if valid else None
            for valid, *values in zip(array.is_valid().to_pylist(), *fields, strict=True)
        ]
    if pa.types.is_map(kind):
        return _lists(array, list(zip(_plain(array.keys), _plain(array.items), strict=True)))
    if pa.types.is_list(kind):
        return _lists(array, _plain(array.values))
    return array.to_pylist()


def _lists(array: Any, values: list[Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    bounds = pairwise(offsets)
    return [
        values[start:end] if valid else None
        for valid, (start, end) in zip(array.is_valid().to_pylist(), bounds, strict=True)
    ]


def _bits(value: float) -> str:
    return "NaN" if value != value else struct.pack(">d", value).hex()
