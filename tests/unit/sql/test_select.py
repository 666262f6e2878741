"""What a SELECT returns: columns without the engine, and expressions with it."""

from __future__ import annotations

import builtins
import datetime as dt
import os
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.sql.types import arrow_schema
from sparkonce.options import OptionError
from tests.cases import each_case

from .tables import RECORDS, VALUE, batch, record, run, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT offset FROM records", [(0,), (1,)]),
        ("select `offset` as o, Value.ID from RECORDS;", [(0, 0), (1, 1)]),
        ("SELECT r.offset, r.value.name n FROM records AS r -- all of it", [(0, "n0"), (1, "n1")]),
        ('SELECT value.nested.deep.x AS `a "b"`, /* and */ topic FROM records', [(0, "events"), (1, "events")]),
    ],
)
def test_columns_fields_and_renames_need_no_engine(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert check_select(text, RECORDS).computed is None
    assert values(text, 2) == expected


def test_names_are_those_of_the_select() -> None:
    assert check_select("SELECT Value.ID, topic AS `A b`, records.KEY FROM records", RECORDS).schema.names == [
        "ID",
        "A b",
        "KEY",
    ]
    assert check_select("SELECT value.*, offset FROM records", RECORDS).schema.names == [*VALUE.names, "offset"]
    assert check_select("SELECT * FROM records", RECORDS).schema == RECORDS


def test_columns_are_not_copied() -> None:
    rows = batch(3)
    selected = run("SELECT value.amount AS a, topic FROM records", rows).rows
    before = rows.column("value").field("amount").buffers()[1]
    assert selected.column("a").buffers()[1].address == before.address
    assert selected.column("topic").buffers()[2].address == rows.column("topic").buffers()[2].address


def test_a_field_of_a_struct_that_is_null_is_null() -> None:
    rows = batch([record(0), {**record(1), "value": None}, record(2)])
    assert values("SELECT value.id, value.nested.deep.x AS x FROM records", rows) == [(0, 0), (None, None), (2, 2)]
    assert values("SELECT value.id, value.nested.deep.x + 1 AS x FROM records", rows) == [(0, 1), (None, None), (2, 3)]
    assert values("SELECT value.id FROM records", rows.slice(1, 2)) == [(None,), (2,)]


def test_no_engine_is_loaded_for_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    actual = builtins.__import__

    def without_engine(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "duckdb":
            raise ModuleNotFoundError(name)
        return actual(name, *arguments, **more)

    monkeypatch.setattr("sparkonce.connectors.sql.engine._engines", {})
    monkeypatch.setattr(builtins, "__import__", without_engine)
    assert values("SELECT value.id AS id FROM records", 2) == [(0,), (1,)]
    with pytest.raises(OptionError, match=r"pip install 'sparkonce\[sql\]'"):
        check_select("SELECT value.id AS id FROM records WHERE value.id > 77", RECORDS)


def test_where_and_expressions() -> None:
    text = """
        SELECT value.id AS id, upper(value.name) AS name, value.amount * value.quantity AS total,
               CASE WHEN value.ok THEN 'yes' ELSE 'no' END AS ok, CAST(key AS STRING) AS key,
               date_trunc('day', value.at) AS day, value.counts['a'] AS a
        FROM records WHERE value.quantity >= 3 AND topic LIKE 'ev%'
    """
    midnight = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert values(text) == [
        (3, "N3", 13.5, "no", "k3", midnight, 3),
        (4, "N4", 24.0, "yes", "k4", midnight, 4),
    ]


def test_a_plain_column_beside_a_where_is_taken_from_the_batch() -> None:
    select = check_select("SELECT value.*, key FROM records WHERE offset = 2", RECORDS)
    assert select.computed is not None
    assert [name for _, path in select.computed.inputs for name in path.names] == ["offset"]
    rows = select.runner().run(batch(4)).rows
    assert rows.num_rows == 1
    assert rows.column("nested").to_pylist() == [{"deep": {"x": 2}}]


def test_unnest_makes_a_row_of_each_element() -> None:
    assert values("SELECT offset, unnest(value.tags) AS tag FROM records") == [
        (1, "t0"),
        (2, "t0"),
        (2, "t1"),
        (4, "t0"),
    ]
    assert values("SELECT explode(value.items).price * 2 AS p, value.id FROM records WHERE offset > 1") == [
        (0.0, 2),
        (2.0, 2),
        (0.0, 4),
    ]
    assert values("SELECT unnest(filter(value.items, i -> i.price > 0)).sku AS sku FROM records") == [("s1",)]


def test_lambdas_see_columns_and_hide_them() -> None:
    assert values("SELECT transform(value.items, offset -> offset.price + value.id) AS p FROM records", 3) == [
        ([],),
        ([1.0],),
        ([2.0, 3.0],),
    ]
    text = "SELECT transform(value.tags, t -> transform(value.tags, u -> concat(t, u, c0))) AS p FROM records"
    with pytest.raises(OptionError, match="unknown column c0"):
        check_select(text, RECORDS)
    assert values(text.replace(", c0", ", CAST(offset AS STRING)"), 3)[2] == ([["t0t02", "t0t12"], ["t1t02", "t1t12"]],)


def test_a_column_may_have_the_name_of_anything() -> None:
    columns = (
        StructType().add("row", LongType()).add("select", LongType()).add("c0", StringType()).add('a"b', LongType())
    )
    columns = columns.add("records", StructType().add("rows", LongType()))
    row = {"row": 1, "select": 2, "c0": "x", 'a"b': 4, "records": {"rows": 5}}
    rows = batch([row], columns)
    text = (
        'SELECT row + 1 AS `row`, `select` + 1 AS p1, `c0` || c0 AS x0, `a"b` + 1 AS f0, records.rows + 1 AS v '
        "FROM records"
    )
    assert values(text, rows, columns) == [(2, 3, "xx", 5, 6)]


def test_array_and_offset_may_be_names_too() -> None:
    columns = StructType().add("value", StructType().add("array", LongType()).add("offset", LongType()))
    rows = batch([{"value": {"array": 1, "offset": 2}}], columns)
    text = "SELECT value.array AS a, value.offset + 1 AS array, array(1, 2) AS offset, 'array(' AS text FROM records"
    assert values(text, rows, columns) == [(1, 3, [1, 2], "array(")]
    assert check_select(text, columns).schema.names == ["a", "array", "offset", "text"]


def test_the_schema_is_as_declared_for_any_batch() -> None:
    text = (
        "SELECT value.*, key, value.id + 1 AS a, [value.name] AS b, {'x': value.price, 'y': [offset]} AS c, "
        "value.counts AS d, value.local + INTERVAL 1 DAY AS e, "
        "CAST(value.id AS DECIMAL(20, 1)) AS f, "
        "value.day AS g, value.items AS h, CAST(NULL AS DATE) AS i, CAST(topic AS BINARY) AS j, "
        "transform(value.items, x -> x) AS k "
        "FROM records"
    )
    nulls = [dict.fromkeys(RECORDS.names)] * 3
    for where in ("", " WHERE offset IS NULL OR offset >= 0", " WHERE offset < 0"):
        select = check_select(text + where, RECORDS)
        for rows in (batch(0), batch(5), batch(nulls), batch(5).slice(3, 2), batch(5).slice(2, 0)):
            selected = select.runner().run(rows)
            assert selected.rows.schema == arrow_schema(select.schema)
            selected.rows.validate(full=True)


def test_types_are_sparks() -> None:
    text = (
        "SELECT offset + 1 AS a, length(topic) AS b, value.price * 2 AS c, value.ok AND true AS d, "
        "value.score + 1 AS e, value.small + 1 AS f, CAST(value.local AS TIMESTAMP) AS g, "
        "value.local + INTERVAL 1 HOUR AS h, value.day + 1 AS i, ceil(value.amount) AS j FROM records"
    )
    shown = check_select(text, RECORDS).schema.simpleString()
    assert shown == (
        "struct<a:bigint,b:int,c:decimal(12,2),d:boolean,e:double,f:int,g:timestamp,h:timestamp_ntz,i:date,j:bigint>"
    )


def test_a_checked_select_travels_to_the_tasks() -> None:
    select = pickle.loads(pickle.dumps(check_select("SELECT offset + 1 AS o FROM records WHERE offset > 1", RECORDS)))
    assert select.runner().run(batch(4)).rows.to_pydict() == {"o": [3, 4]}
    assert select.text.startswith("SELECT")


def test_the_engine_is_kept_for_the_next_task_but_not_over_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    select = check_select("SELECT offset + 1 AS o FROM records", RECORDS)
    kept = select.runner()._engine
    assert select.runner()._engine is kept
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert select.runner()._engine is not kept
    assert select.runner().run(batch(2)).rows.num_rows == 2


def test_rows_of_several_chunks_come_in_order() -> None:
    text = "SELECT offset, offset * 2 AS double, topic FROM records WHERE offset % 3 = 0"
    columns = StructType().add("offset", LongType()).add("topic", StringType())
    rows = pa.record_batch({"offset": pa.array(range(10_000)), "topic": pa.array(["t"] * 10_000)})
    selected = run(text, rows.cast(arrow_schema(columns)), columns).rows
    assert selected.column("offset").to_pylist() == list(range(0, 10_000, 3))
    assert selected.column("double").to_pylist() == list(range(0, 20_000, 6))


@each_case(
    ("expression", "expected"),
    [
        (r"'it\'s an offset in an array'", "it's an offset in an array"),
        (r"'\\' || 'offset'", r"\offset"),
        (r"r'\d of \'", r"\d of \ "[:-1]),
        (r"'\n\t%\%\_'", "\n\t%\\%\\_"),
        ("'the ''offset'' of array'", "the 'offset' of array"),
        ("/* 'offset */ 'array'", "array"),
        ("CAST(get(value.array, 0) AS STRING)", "1"),
        ("CAST(get(array(offset), 0) AS STRING)", "7"),
    ],
)
def test_text_is_taken_as_it_is_written(expression: str, expected: str) -> None:
    value = StructType().add("array", ArrayType(LongType()))
    columns = StructType().add("offset", LongType()).add("value", value)
    rows = batch([{"offset": 7, "value": {"array": [1]}}], columns)
    found = run(f"SELECT {expression} AS array FROM records WHERE offset > 0", rows, columns)
    assert found.rows.to_pydict() == {"array": [expected]}


@each_case(
    ("expression", "expected"),
    [
        ("split_part(s, '$3', 1)", "a"),
        ("regexp_extract(s, r'a[$3]', 0)", "a$"),
        (r"regexp_replace(s, r'\$3', 'x')", "axb"),
        ("translate(s, 'a$3', 'x')", "xb"),
        ("s LIKE '%$2%' OR s LIKE '%$3%'", True),
        ("rpad(s, 6, '$1')", "a$3b$1"),
        ("concat_ws('$2', s, s)", "a$3b$2a$3b"),
        ("array_join(array(s, s), '$2')", "a$3b$2a$3b"),
    ],
)
def test_constants_may_look_like_places_of_arguments(expression: str, expected: Any) -> None:
    columns = StructType().add("s", StringType())
    assert values(f"SELECT {expression} AS x FROM records", batch([{"s": "a$3b"}], columns), columns) == [(expected,)]
