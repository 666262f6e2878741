"""Records with values at the edges of their types, and the expressions that both engines must evaluate alike.

An expression per line of `sql_expressions.txt`; where Spark writes it differently, that follows ` @@ `.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

UTC = dt.UTC
SCHEMA = (
    "i INT, l BIGINT, s STRING, t STRING, n STRING, dbl DOUBLE, flt FLOAT, dec DECIMAL(10,2), b BOOLEAN, bin BINARY, "
    "day DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, arr ARRAY<INT>, strs ARRAY<STRING>, m MAP<STRING,INT>, "
    "st STRUCT<a:INT,b:STRING>, items ARRAY<STRUCT<sku:STRING,price:DOUBLE>>, js STRING"
)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        10,
        "abc",
        "b",
        "12",
        1.5,
        0.5,
        Decimal("1.25"),
        True,
        b"abc",
        dt.date(2020, 2, 29),
        dt.datetime(2020, 2, 29, 23, 59, 59, 999999, UTC),
        dt.datetime(2020, 2, 29, 1, 2, 3),
        [1, 2, 3],
        ["a", "b"],
        {"k": 1},
        (1, "x"),
        [("s", 1.5)],
        '{"a":1,"b":"x","c":{"d":[1,2]}}',
    ),
    (
        -7,
        -70,
        "  äÖß é ",
        "é",
        " -3 ",
        -2.5,
        -0.25,
        Decimal("-99.99"),
        False,
        "é".encode(),
        dt.date(1969, 12, 31),
        dt.datetime(1969, 12, 31, 23, 59, 59, 500000, UTC),
        dt.datetime(1960, 1, 1, 0, 0, 0, 1),
        [],
        [],
        {},
        (None, None),
        [],
        "{}",
    ),
    (None,) * 19,
    (
        0,
        0,
        "",
        "",
        "+0",
        0.0,
        0.0,
        Decimal("0.00"),
        True,
        b"",
        dt.date(1970, 1, 1),
        dt.datetime(1970, 1, 1, 0, 0, 0, 0, UTC),
        dt.datetime(1970, 1, 1),
        [None, 5],
        [None, "z", ""],
        {"a": None, "k": 2},
        (5, ""),
        [("t", None), None],
        '{"a":null}',
    ),
    (
        2147483647,
        2**62,
        "A_b%c\\d",
        "_",
        "007",
        float("nan"),
        float("nan"),
        Decimal("12345678.90"),
        None,
        b"\x00\x01",
        dt.date(9990, 12, 31),
        dt.datetime(2024, 12, 30, 12, 0, 0, 0, UTC),
        dt.datetime(2024, 12, 30, 12),
        [3, 1, 2, 1],
        ["x", "y", "x"],
        {"k": 3},
        (7, "Q"),
        [("u", 2.25), ("v", -1.0)],
        '{"a":"q\\"r","b":1.50,"c":true}',
    ),
    (
        3,
        5,
        "日本 a,b,c 👍",
        "a",
        "999999",
        1e20,
        1e10,
        Decimal("0.05"),
        False,
        "日本".encode(),
        dt.date(2021, 1, 3),
        dt.datetime(2021, 1, 3, 10, 20, 30, 123456, UTC),
        dt.datetime(2021, 1, 3, 10, 20, 30, 123000),
        [9],
        ["日本"],
        {"k": 4, "z": 5},
        (0, "日本"),
        [("日", 0.0)],
        '{"a":[1,2]}',
    ),
    (
        5,
        7,
        "aXbXc\n",
        "X",
        "1",
        2.5,
        2.5,
        Decimal("2.50"),
        True,
        b"zz",
        dt.date(2000, 12, 31),
        dt.datetime(2000, 12, 31, 0, 0, 0, 0, UTC),
        dt.datetime(2000, 12, 31),
        [0],
        ["q"],
        {"y": 1},
        (1, "y"),
        [("w", 3.0)],
        '{"a":1e3}',
    ),
]
LINES = [line for line in (Path(__file__).parent / "sql_expressions.txt").read_text().splitlines() if line]
EXPRESSIONS = [(line.split(" @@ ")[0], line.split(" @@ ")[-1]) for line in LINES]
"""Each as a SELECT of ours and as Spark has it."""


def batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows as one batch."""
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, map(_value, row, schema), strict=True)) for row in ROWS], schema
    )


def _value(value: Any, field: pa.Field) -> Any:
    """Return a value as Arrow takes it: structs by their fields' names, maps as pairs."""
    if value is None:
        return None
    if pa.types.is_map(field.type):
        return list(value.items())
    if pa.types.is_struct(field.type):
        return dict(zip((inner.name for inner in field.type), value, strict=True))
    if pa.types.is_list(field.type):
        return [_value(each, field.type.value_field) for each in value]
    return value
