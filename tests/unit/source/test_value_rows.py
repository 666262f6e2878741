"""Rows made of what the decoder gives: columns, modes and dead letters."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.jackson_parser import JacksonParser
from sparkonce.connectors.values.letters import COLUMN
from sparkonce.connectors.values.options import arrow_schema
from sparkonce.connectors.values.rows import IDLE_BATCHES, MAX_CELLS, MalformedValueError, RowMaker
from tests.avro_resolution import record
from tests.cases import each_case
from tests.chance import examples
from tests.json_documents import SCHEMA, documents, plain

GIVEN = {
    "kafka.bootstrap.servers": "localhost:9092",
    "subscribe": "t",
    "valueFormat": "json",
    "valueSchema": "a INT, _corrupt_record STRING, b STRING",
}
VALUES = [b'{"a":1,"b":"x"}', b"{", None, b'{"a":"no","b":"y"}', b" "]


def made(values: list[bytes | None], **options: str) -> pa.RecordBatch:
    rows = SourceOptions.read({**GIVEN, **options}).rows
    columns: dict[str, Any] = {
        "key": [f"k{at}".encode() for at in range(len(values))],
        "value": values,
        "topic": ["t"] * len(values),
        "partition": [3] * len(values),
        "offset": list(range(10, 10 + len(values))),
        "timestamp": list(range(len(values))),
        "timestampMs": list(range(len(values))),
        "timestampType": [0] * len(values),
    }
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in rows.decoded}, arrow_schema(rows.decoded))
    found = RowMaker(rows, "t", 3).rows(batch)
    found.validate(full=True)
    assert found.schema.equals(to_arrow_schema(rows.spark_schema(), timezone="UTC"))
    return found


def test_what_fits_is_kept_and_the_text_is_beside_it() -> None:
    assert made(VALUES, columns="offset,value").to_pylist() == [
        {"offset": 10, "value": {"a": 1, "_corrupt_record": None, "b": "x"}},
        {"offset": 11, "value": {"a": None, "_corrupt_record": "{", "b": None}},
        {"offset": 12, "value": None},
        {"offset": 13, "value": {"a": None, "_corrupt_record": '{"a":"no","b":"y"}', "b": "y"}},
        {"offset": 14, "value": None},
    ]


def test_dead_letters_hold_the_record_and_the_reason() -> None:
    found = made(VALUES, columns="value", includeDeadLetters="true")
    assert found.schema.names == ["value", COLUMN]
    letters = found.column(COLUMN).to_pylist()
    assert letters[0] is None
    assert {name: letters[3][name] for name in ("reason", "key", "value", "topic", "partition", "offset")} == {
        "reason": "field a: 'no' is not of type int",
        "key": b"k3",
        "value": b'{"a":"no","b":"y"}',
        "topic": "t",
        "partition": 3,
        "offset": 13,
    }
    assert [letter["reason"] for letter in letters[1:]] == [
        "it is not JSON: it ends too early at character 1",
        "value is null",
        "field a: 'no' is not of type int",
        "value is empty",
    ]
    assert [letter["timestamp"].microsecond for letter in letters[1:]] == [1000, 2000, 3000, 4000]
    fine = made(VALUES[:1], includeDeadLetters="true").column(COLUMN)
    assert fine.null_count == len(fine) == 1


def test_malformed_rows_are_dropped() -> None:
    found = made(VALUES, mode="DROPMALFORMED")
    assert found.column("offset").to_pylist() == [10, 12, 14]
    assert found.column("key").to_pylist() == [b"k0", b"k2", b"k4"]


def test_the_first_malformed_value_ends_the_task() -> None:
    with pytest.raises(MalformedValueError, match=r"topic t, partition 3, at offset 11 does not parse: it is not JSON"):
        made(VALUES, mode="FAILFAST", columns="value")
    assert made([VALUES[0], None], mode="FAILFAST", columns="value").to_pylist()[1] == {"value": None}


def test_a_corrupt_record_that_is_no_utf8_is_shown_with_replacement_characters() -> None:
    (row,) = made([b"\xff{"], columns="value").to_pylist()
    assert row["value"]["_corrupt_record"] == "\ufffd{"


def test_a_batch_is_decoded_in_pieces_where_the_schema_is_wide() -> None:
    """A thousand fields for each of 20,000 records that hold two of them would take hundreds of megabytes at once."""
    names = [f"f{at}" for at in range(1000)]
    wide = {"valueSchema": ", ".join(f"{name} STRUCT<a: INT>" for name in names), "columns": "offset,value"}
    rows = SourceOptions.read({**GIVEN, **wide}).rows
    count = 20_000
    values = [b'{"f%d":{"a":%d}}' % (at % 1000, at) for at in range(count)]
    columns: dict[str, Any] = {"offset": list(range(count)), "value": values}
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in rows.decoded}, arrow_schema(rows.decoded))
    found = list(RowMaker(rows, "t", 3).batches(batch))
    assert max(each.num_rows * 2001 for each in found) <= MAX_CELLS
    assert [at for each in found for at in each["offset"].to_pylist()] == columns["offset"]
    for each in found:
        for row in (0, each.num_rows - 1):
            offset = each["offset"][row].as_py()
            present = {name: value for name, value in each["value"][row].as_py().items() if value is not None}
            assert present == {f"f{offset % 1000}": {"a": offset}}
    assert len(found) > 1


def test_bytes_stay_bytes() -> None:
    rows = SourceOptions.read({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "columns": "value"}).rows
    batch = pa.RecordBatch.from_pydict({"value": [b"{}"]}, arrow_schema(("value",)))
    assert RowMaker(rows, "t", 0).rows(batch) is batch


def with_select(
    values: list[bytes | None], sql: str, narrowed: bool, early: bool = True, **options: str
) -> pa.RecordBatch:
    """Return what a SELECT makes of records: of those columns and fields that it reads, or of all that there are."""
    whole = SourceOptions.read({**GIVEN, "handOver": "ranges", **options}).rows
    select = check_select(sql, whole.record_schema())
    rows = whole.with_select(select) if narrowed else replace(whole, select=select)
    count = len(values)
    columns: dict[str, Any] = {"value": values, "offset": list(range(count)), "key": [b"k"] * count}
    columns |= {"timestamp": [0] * count, "timestampMs": [0] * count, "topic": ["t"] * count}
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in rows.decoded}, arrow_schema(rows.decoded))
    maker = RowMaker(rows, "t", 0)
    if not early:
        maker._filter = None
    return maker.rows(batch)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(0, 1_000_000))
def test_fields_that_a_select_does_not_read_change_nothing(data: st.DataObject, seed: int) -> None:
    """Of a record that is not malformed: see the next test."""
    fields = [field for field in parse_schema(SCHEMA).names if field != "_corrupt_record"]
    paths = [f"value.{name}" for name in fields] + ["value.inner.x", "value.inner.z", "key", "offset"]
    read = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4, unique=True))
    sql = f"SELECT {', '.join(f'{path} AS c{at}' for at, path in enumerate(read))} FROM records"
    ddl = SCHEMA.removesuffix(", _corrupt_record STRING")
    options: dict[str, Any] = {"valueSchema": ddl, "columns": "key,value,offset"}
    values: list[bytes | None] = [*documents(seed, 20), None]
    narrowed, whole = (with_select(values, sql, narrowed=each, **options) for each in (True, False))
    assert narrowed.schema == whole.schema
    careful = JacksonParser(SourceOptions.read({**GIVEN, **options}).rows.decoding)  # type: ignore[arg-type]
    for found, expected in zip(narrowed.columns, whole.columns, strict=True):
        for value, one, other in zip(values, map(repr, plain(found)), map(repr, plain(expected)), strict=True):
            assert one == other or (value is not None and careful.parse(value).problem), value


def test_a_malformed_record_is_decoded_as_spark_decodes_it_where_it_reads_one_field_only() -> None:
    """Found with Spark 4.2: ``from_json(…).flag`` and ``from_json(…).map``, whose schemas it narrows as we do."""
    options: dict[str, Any] = {"valueSchema": "flag BOOLEAN, map MAP<STRING, BIGINT>, raw BINARY", "columns": "value"}
    values: list[bytes | None] = [b'{"flag":true,"map":{"e":1e}}', b'{"raw":"A","map":{}}']
    flags = with_select(values, "SELECT value.flag FROM records", narrowed=True, **options)
    maps = with_select(values, "SELECT value.map FROM records", narrowed=True, **options)
    assert flags.column("flag").to_pylist() == [None, None]
    assert maps.column("map").to_pylist() == [None, []]


CONDITIONS = (
    "value.whole IS NULL",
    "value.whole > 100 OR value.flag",
    "value.name = 'a' AND offset > 3",
    "value.inner.x IS NULL AND value.inner IS NOT NULL",
    "value.inner.y LIKE '%a%'",
    "value.at > '2000-01-01'",
    "100 // value.tiny > 1",
    "get(value.list, 1) > 1",
    "offset % 3 = 0",
    "value.deep IS NULL",
    "value.money IS NOT NULL",
)


@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.integers(0, 1_000_000))
def test_reading_the_fields_of_where_first_changes_nothing(data: st.DataObject, seed: int) -> None:
    """Not even of malformed records, nor of values that make WHERE or a column fail."""
    fields = ["flag", "tiny", "whole", "dbl", "money", "large", "name", "day", "at", "list", "map", "inner", "deep"]
    condition = data.draw(st.sampled_from(CONDITIONS))
    read = data.draw(st.lists(st.sampled_from(fields), min_size=1, max_size=4, unique=True))
    failing = data.draw(st.sampled_from(["", ", 100 // value.tiny AS failing"]))
    sql = f"SELECT offset, {', '.join(f'value.{name}' for name in read)}{failing} FROM records WHERE {condition}"
    values: list[bytes | None] = [*documents(seed, 40), None, b"", b'{"whole":"x","name":"a"}']
    options = {
        "valueSchema": SCHEMA.removesuffix(", _corrupt_record STRING").replace("raw BINARY, ", ""),
        "columns": "value,offset",
    }
    found = []
    for early in (True, False):
        try:
            rows = with_select(values, sql, True, early, **options)
            found.append(repr([plain(column) for column in rows.columns]))  # years beyond Python's, too
        except MalformedValueError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_the_fields_of_where_are_read_first_where_that_saves_something() -> None:
    def first(sql: str, **options: str) -> tuple[list[str], list[str]] | None:
        given = {**GIVEN, "handOver": "ranges", "valueSchema": "a INT, b STRING, s STRUCT<x: INT, y: INT>", **options}
        whole = SourceOptions.read(given).rows
        read = whole.with_select(check_select(sql, whole.record_schema())).read_first
        schema: Any = read and read.decoding and read.decoding.schema
        return None if read is None else (list(read.columns), [] if schema is None else schema.names)

    assert first("SELECT value.b FROM records WHERE value.a > 1") == (["value"], ["a"])
    assert first("SELECT value.b FROM records WHERE offset > 1") == (["offset"], [])
    assert first("SELECT value.s, value.b FROM records WHERE value.s.x > 1") == (["value"], ["s"])
    assert first("SELECT value.a FROM records WHERE value.a > 1") is None
    assert first("SELECT value.b FROM records WHERE value IS NOT NULL") is None
    assert first("SELECT value.a, value.b FROM records") is None
    assert first("SELECT value.b FROM records WHERE value.a > 1", includeDeadLetters="true") is None
    assert first("SELECT value.b FROM records WHERE value.a > 1", mode="DROPMALFORMED") is None
    assert first("SELECT value.b FROM records WHERE value.a > 1", valueSchema="a INT, b BINARY") is None


def test_a_where_that_keeps_most_records_is_not_asked_first_each_time() -> None:
    given = {**GIVEN, "handOver": "ranges", "valueSchema": "a INT, b STRING", "columns": "value"}
    whole = SourceOptions.read(given).rows
    maker = RowMaker(
        whole.with_select(check_select("SELECT value.b FROM records WHERE value.a < 9", whole.record_schema())), "t", 0
    )
    values = [b'{"a":%d,"b":"%d"}' % (at, at) for at in range(10)]
    batch = pa.RecordBatch.from_pydict({"value": values, "offset": list(range(10))}, arrow_schema(("value", "offset")))
    assert maker._filter is not None
    sizes = [maker._filter.kept(batch).num_rows for _ in range(IDLE_BATCHES + 2)]
    assert sizes == [9] + [10] * IDLE_BATCHES + [9]


@each_case(
    ("sql", "options", "columns", "fields"),
    [
        ("SELECT value.a, key FROM records", {}, ("key", "value"), ["a"]),
        ("SELECT value.inner.x, value.a FROM records", {}, ("value",), ["a", "inner"]),
        ("SELECT value FROM records", {}, ("value",), ["a", "b", "inner"]),
        ("SELECT value.*, value.a AS more FROM records", {}, ("value",), ["a", "b", "inner"]),
        ("SELECT upper(value.b) AS b FROM records WHERE value.a > 1", {}, ("value",), ["a", "b"]),
        ("SELECT key FROM records", {}, ("key",), None),
        ("SELECT 1 AS one FROM records", {}, ("offset",), None),
        ("SELECT key FROM records", {"includeDeadLetters": "true"}, ("key", "value"), ["a", "b", "inner"]),
        ("SELECT value.a FROM records", {"mode": "FAILFAST"}, ("value",), ["a", "b", "inner"]),
        ("SELECT value.a FROM records", {"mode": "DROPMALFORMED"}, ("value",), ["a", "b", "inner"]),
    ],
)
def test_what_a_select_reads_is_what_is_decoded(
    sql: str, options: dict[str, Any], columns: tuple[str, ...], fields: list[str] | None
) -> None:
    schema = "a INT, b STRING, inner STRUCT<x: INT, y: INT>"
    whole = SourceOptions.read({**GIVEN, "handOver": "ranges", "valueSchema": schema, **options}).rows
    rows = whole.with_select(check_select(sql, whole.record_schema()))
    assert rows.columns == columns
    read: Any = rows.decoding and rows.decoding.schema
    assert (None if read is None else read.names) == fields
    if read is not None and "inner" in (fields or ()):
        assert read["inner"].dataType.names == (["x"] if "inner.x" in sql else ["x", "y"])
    assert with_select([b'{"a":2,"b":"x"}'], sql, narrowed=True, valueSchema=schema, **options).num_rows == 1


def test_what_decides_about_a_record_is_in_the_digest_and_nothing_else() -> None:
    def digest(sql: str | None = None, **options: str) -> str:
        rows = SourceOptions.read({**GIVEN, "handOver": "ranges", "valueSchema": "a INT, b STRING", **options}).rows
        return (rows if sql is None else rows.with_select(check_select(sql, rows.record_schema()))).digest()

    plain = digest()
    assert digest(columns="value") == digest(mode="PERMISSIVE") == digest(timeZone="UTC") == plain
    others = [digest(mode="FAILFAST"), digest(valueSchema="a INT"), digest(includeDeadLetters="true")]
    others += [digest(timeZone="Europe/Paris"), digest("SELECT offset FROM records"), digest("SELECT key FROM records")]
    assert len({plain, *others}) == len(others) + 1
    binary = SourceOptions.read({name: GIVEN[name] for name in ("kafka.bootstrap.servers", "subscribe")}).rows
    assert binary.digest() != plain


AVRO = {
    "valueFormat": "avro",
    "valueSchema": json.dumps(record(("a", "int"), ("b", "string"))),
    "columns": "value,offset",
}
GOOD, CUT = b"\x02\x02x", b"\x02\x08x"
"""A value, and one that ends too early."""


def rows_of(values: list[bytes | None], **more: str) -> list[dict[str, Any]]:
    options = SourceOptions.read({**GIVEN, **AVRO, **more}).rows
    columns = {"value": values, "offset": list(range(len(values))), "key": [None] * len(values)}
    columns |= {"timestamp": [0] * len(values), "timestampMs": [0] * len(values), "topic": ["t"] * len(values)}
    schema = arrow_schema(options.decoded)
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in options.decoded}, schema)
    found: list[dict[str, Any]] = RowMaker(options, "t", 0).rows(batch).to_pylist()
    return found


def test_the_modes_of_values_that_a_schema_describes() -> None:
    good, nothing = {"a": 1, "b": "x"}, {"a": None, "b": None}
    values = [GOOD, CUT, None]
    assert [row["value"] for row in rows_of(values)] == [good, nothing, None]
    assert rows_of(values, mode="DROPMALFORMED") == [{"value": good, "offset": 0}, {"value": None, "offset": 2}]
    with pytest.raises(MalformedValueError, match="at offset 1 does not parse: b: the value ends too early"):
        rows_of(values, mode="FAILFAST")
    kept = rows_of(values, columnNameOfCorruptRecord="bad")
    assert [row["value"] for row in kept] == [{**good, "bad": None}, {**nothing, "bad": CUT}, None]
    letters = [row["_dead_letter"] for row in rows_of(values, includeDeadLetters="true")]
    assert [letter and (letter["reason"], letter["value"]) for letter in letters] == [
        None,
        ("b: the value ends too early", CUT),
        ("value is null", None),
    ]


def keyed(keys: list[bytes | None], **more: str) -> list[dict[str, Any]]:
    options = SourceOptions.read({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **more}).rows
    count = len(keys)
    columns: dict[str, Any] = {"key": keys, "value": [GOOD] * count, "offset": list(range(count))}
    columns |= {"timestamp": [0] * count, "timestampMs": [0] * count, "topic": ["t"] * count}
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in options.decoded}, arrow_schema(options.decoded))
    found: list[dict[str, Any]] = RowMaker(options, "t", 0).rows(batch).to_pylist()
    return found


def test_keys_are_decoded_like_values() -> None:
    texts = {"keyFormat": "string", "columns": "key"}
    assert keyed(["é".encode(), None, b"\xff"], **texts) == [{"key": "é"}, {"key": None}, {"key": None}]
    assert keyed([b"a", b"\xff"], **texts, mode="DROPMALFORMED") == [{"key": "a"}]
    with pytest.raises(
        MalformedValueError,
        match="the record of topic t, partition 0, at offset 1 does not parse: key: it is not UTF-8",
    ):
        keyed([b"a", b"\xff"], **texts, mode="FAILFAST")
    both = {**AVRO, "keyFormat": "avro", "keySchema": '"long"', "columns": "key,value"}
    good = {"a": 1, "b": "x"}
    assert keyed([b"\x06", None, b""], **both) == [
        {"key": 3, "value": good},
        {"key": None, "value": good},
        {"key": None, "value": good},
    ]
    letters = [row["_dead_letter"] for row in keyed([b"\x06", b"\x80"], **both, includeDeadLetters="true")]
    assert [letter and (letter["reason"], letter["key"]) for letter in letters] == [
        None,
        ("key: the value ends too early", b"\x80"),
    ]
