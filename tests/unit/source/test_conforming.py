"""Columns of an older schema as those of a newer one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from sparkonce.connectors.values.conforming import common, conformed
from sparkonce.connectors.values.ddl import parse_schema

OLDER = parse_schema("gone INT, l ARRAY<STRUCT<x: INT, gone: INT>>, m MAP<STRING, STRUCT<x: FLOAT>>, s STRUCT<x: INT>")
NEWER = parse_schema(
    "new INT, l ARRAY<STRUCT<x: BIGINT, new: INT>>, m MAP<STRING, STRUCT<x: DOUBLE>>, s STRUCT<x: STRING>"
)
ROWS = [
    {"l": [{"x": 1}, None], "m": [("a", {"x": 0.5})], "s": {"x": 1}},
    None,
    {"l": None, "m": None, "s": None},
    {"l": [], "m": [("b", None), ("c", {"x": None})], "s": {"x": None}},
]


def test_what_both_have() -> None:
    assert common(OLDER, NEWER).simpleString() == (
        "struct<l:array<struct<x:int>>,m:map<string,struct<x:float>>,s:struct<x:int>>"
    )


def test_new_fields_are_null_and_numbers_get_their_wider_type_also_in_a_slice() -> None:
    given = pa.array([*ROWS, *ROWS], to_arrow_type(common(OLDER, NEWER), timezone="UTC"))
    kind = to_arrow_type(NEWER, timezone="UTC")
    for start in (0, 1, 3):
        found = conformed(given.slice(start, 4), kind)
        found.validate(full=True)
        assert found.type == kind
        expected = [ROWS[(start + at) % 4] for at in range(4)]
        assert found.to_pylist() == pa.array([_widened(row) for row in expected], kind).to_pylist()


def _widened(row: Any) -> dict | None:
    return None if row is None else {**row, "s": row["s"] and {"x": row["s"]["x"] and str(row["s"]["x"])}}
