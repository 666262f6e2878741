"""DDL from samples: each type, how they are merged, and that what is printed is read as it was meant."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.jobs.cli.peek.inference import MAX_FIELDS, Unknown, ddl, merged, type_of
from tests.cases import each_case


@each_case(
    ("samples", "expected"),
    [
        (["1"], "BIGINT"),
        (["1", "2.5"], "DOUBLE"),
        (["9223372036854775807"], "BIGINT"),
        (["9223372036854775808"], "DECIMAL(38,0)"),
        (["9223372036854775808", "1"], "DECIMAL(38,0)"),
        (["1" * 39], "STRING"),
        (["true", "null"], "BOOLEAN"),
        (["true", "1"], "STRING"),
        (["null"], "STRING"),
        (['"x"', "1"], "STRING"),
        (["[]"], "ARRAY<STRING>"),
        (["[1, null]", "[2.5]"], "ARRAY<DOUBLE>"),
        (["[[1]]", "[]"], "ARRAY<ARRAY<BIGINT>>"),
        (["[1]", "{}"], "STRING"),
        (["{}"], "STRING"),
        (['{"a": 1}', '{"b": "x", "a": null}'], "STRUCT<a: BIGINT, b: STRING>"),
        (['{"": 1}'], "STRING"),
        (['{"a`b": 1, "select": 2, "\\u00e9": 3}'], "STRUCT<`a``b`: BIGINT, select: BIGINT, `é`: BIGINT>"),
        ([json.dumps({f"k{number}": number for number in range(MAX_FIELDS + 1)})], "MAP<STRING, BIGINT>"),
    ],
)
def test_types(samples: list[str], expected: str) -> None:
    found = ddl([{"v": json.loads(each)} for each in samples])
    assert found == f"v {expected}"
    assert parse_schema(found).names == ["v"]


def test_depth_ends() -> None:
    value: Any = 1
    for _ in range(100):
        value = {"a": value}
    assert parse_schema(ddl([value])).names == ["a"]


def test_nothing() -> None:
    assert ddl([]) == ddl([{}]) == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=3), JSON, min_size=1, max_size=3), min_size=1, max_size=4))
def test_any_objects_make_a_schema_that_is_read(samples: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for each in samples for name in each))
    assert parse_schema(ddl(samples)).names == names


@given(JSON, JSON, JSON)
def test_the_order_of_samples_does_not_matter(one: Any, two: Any, three: Any) -> None:
    a, b, c = type_of(one), type_of(two), type_of(three)
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, a) == merged(a, Unknown()) == a
