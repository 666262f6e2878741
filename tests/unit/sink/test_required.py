"""What a table declares NOT NULL, at any depth, is checked by the rows."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from sparkonce.connectors.delta_sink import schema
from sparkonce.connectors.delta_sink.rules import rule_name
from sparkonce.connectors.delta_sink.schema import SchemaError, TableCheck, WriteSchema, fit
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.encoding import make_encoder, schema_for
from sparkonce.connectors.values.letters import COLUMN as DEAD_LETTER
from sparkonce.connectors.values.options import AVRO, JSON, PROTOBUF, RAW_TIMESTAMP
from sparkonce.connectors.values.rows import MalformedValueError, RowMaker
from tests.cases import each_case
from tests.required_fields import breaks, nullable, random_struct, random_value

TABLES, ROWS = 120, 12


def with_physical_names(kind: t.DataType, numbers: itertools.count[int]) -> t.DataType:
    """Return a type as that of a table with mapped columns."""
    if isinstance(kind, t.StructType):
        fields = []
        for field in kind:
            number = next(numbers)
            names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            inner = with_physical_names(field.dataType, numbers)
            fields.append(t.StructField(field.name, inner, field.nullable, names))
        return t.StructType(fields)
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(with_physical_names(kind.elementType, numbers), kind.containsNull)
    if isinstance(kind, t.MapType):
        return t.MapType(kind.keyType, with_physical_names(kind.valueType, numbers), kind.valueContainsNull)
    return kind


def refused_rows(write: WriteSchema, batch: pa.RecordBatch) -> set[int]:
    """Return the numbers of the rows that are refused by themselves."""
    found = set()
    for row in range(batch.num_rows):
        try:
            write.align(batch.slice(row, 1))
        except SchemaError:
            found.add(row)
    return found


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_with_a_null_that_the_table_forbids_are_refused_and_no_others(mapped: bool) -> None:
    refused = taken = 0
    for seed in range(TABLES):
        rng = random.Random(seed)
        table = random_struct(rng, 4)
        query = nullable(table)
        assert isinstance(query, t.StructType)
        theirs = with_physical_names(table, itertools.count(1)) if mapped else table
        assert isinstance(theirs, t.StructType)
        write = fit(query, theirs, [], mapped=mapped).write_schema
        rows = [random_value(rng, table) or dict.fromkeys(table.names) for _ in range(ROWS)]
        batch = pa.RecordBatch.from_pylist(rows, to_arrow_schema(query, timezone="UTC"))
        wrong = {row for row, value in enumerate(rows) if breaks(value, table, may_be_null=True)}
        assert refused_rows(write, batch) == wrong, (seed, table.simpleString())
        assert write.broken(batch, {rule_name(each.what) for each in write.required}).keys() == wrong, seed
        good = batch.take(pa.array([row for row in range(ROWS) if row not in wrong], pa.int64()))
        assert write.align(good).num_rows == good.num_rows
        if wrong:
            with pytest.raises(SchemaError) as error:
                write.align(batch)
            (named,) = re.findall(r"row (\d+) of 12", str(error.value))
            assert int(named) - 1 in wrong, (seed, table.simpleString())
        refused, taken = refused + len(wrong), taken + ROWS - len(wrong)
    assert min(refused, taken) > TABLES


def test_the_record_is_named_where_the_row_says_which_it_is() -> None:
    table = t.StructType([t.StructField("v", t.StructType([t.StructField("x", t.LongType(), False)]))])
    query = t.StructType(
        [*table.fields, *(t.StructField(name, t.LongType()) for name in ("Topic", "partition", "offset"))]
    )
    plain = nullable(query)
    assert isinstance(plain, t.StructType)
    write = fit(plain, query, []).write_schema
    rows = [{"v": {"x": value}, "Topic": 7, "partition": 3, "offset": 40 + row} for row, value in enumerate((1, None))]
    with pytest.raises(
        SchemaError, match=r"column v\.x .*: the record of topic 7, partition 3, at offset 41\. Correct"
    ):
        write.align(pa.RecordBatch.from_pylist(rows, to_arrow_schema(plain, timezone="UTC")))


QUERY = "s STRUCT<x: INT, i: STRUCT<z: INT>>, l ARRAY<STRUCT<q: INT>>, m MAP<STRING, INT>"
VALUES: list[tuple[dict[str, Any], str | None]] = [
    ({"s": {"x": 1, "i": {"z": 2}}, "l": [{"q": 3}], "m": {"k": 4}}, None),
    ({"s": {"x": 1, "i": {"z": 2}}, "l": [], "m": {}}, None),
    ({"s": {"x": None, "i": {"z": 2}}, "l": [], "m": {}}, "s.x"),
    ({"s": {"x": 1, "i": {"z": None}}, "l": [], "m": {}}, "s.i.z"),
    ({"s": {"x": 1, "i": None}, "l": [], "m": {}}, "s.i.z"),
    ({"s": None, "l": [], "m": {}}, "s.x"),
    ({"s": {"x": 1, "i": {"z": 2}}, "l": [{"q": 3}, {"q": None}], "m": {}}, "l.element.q"),
]


def required_table() -> t.StructType:
    inner = t.StructType([t.StructField("z", t.IntegerType(), False)])
    s = t.StructType([t.StructField("x", t.IntegerType(), False), t.StructField("i", inner)])
    q = t.StructType([t.StructField("q", t.IntegerType(), False)])
    fields = [t.StructField("s", s), t.StructField("l", t.ArrayType(q))]
    return t.StructType([*fields, t.StructField("m", t.MapType(t.StringType(), t.IntegerType()))])


@pytest.mark.parametrize("form", [JSON, AVRO, PROTOBUF])
def test_values_of_each_format_are_checked_by_what_they_have(form: str) -> None:
    kind = parse_schema(QUERY)
    write = fit(kind, required_table(), []).write_schema
    rows = pa.array([value for value, _ in VALUES], to_arrow_type(kind, timezone="UTC"))
    if form == JSON:
        schema, values = QUERY, pa.array([_without_nulls(value) for value, _ in VALUES], pa.binary())
    else:
        schema = schema_for(form, kind)
        values = make_encoder(form, schema, kind).encode(rows)
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "valueFormat": form, "valueSchema": schema}
    options = SourceOptions.read({**given, "columns": "value"}).rows
    decoded = RowMaker(options, "t", 0).rows(pa.RecordBatch.from_pydict({"value": values})).column("value")
    batch = pa.RecordBatch.from_struct_array(decoded)
    found = []
    for row in range(len(VALUES)):
        try:
            write.align(batch.slice(row, 1))
            found.append(None)
        except SchemaError as error:
            found.append(str(error).split()[1])
    assert found == [column for _, column in VALUES]


DOCUMENTS = [b'{"a":1,"l":[{"q":1}]}', b"{", b'{"a":2,"l":[]}', b'{"l":[{"q":2},{"q":null}]}', b'{"a":4}']
"""At offsets 10, 20, …: with gaps, as transactions leave them."""


@each_case(
    ("more", "sql", "path", "offset"),
    [
        ({}, None, ("value", "a"), 20),
        ({"mode": "DROPMALFORMED"}, None, ("value", "a"), 40),
        ({"includeDeadLetters": "true"}, None, ("value", "a"), 40),
        ({"includeDeadLetters": "true"}, None, ("VALUE", "L", "element", "q"), 40),
        ({"includeDeadLetters": "true"}, None, ("value",), None),
        ({}, "SELECT value.a AS x FROM records WHERE offset > 20", ("x",), 40),
        ({"includeDeadLetters": "true"}, "SELECT value.a + 1 AS x FROM records", ("x",), 40),
        ({"mode": "DROPMALFORMED"}, "SELECT unnest(value.l).q AS x FROM records", ("x",), 40),
        ({"mode": "DROPMALFORMED"}, "SELECT value.a AS x FROM records WHERE value.a IS NOT NULL", ("x",), None),
        ({"valueFormat": "binary"}, None, ("value",), 60),
    ],
)
def test_a_direct_query_names_the_record_of_a_null_that_the_table_forbids(
    more: dict[str, str], sql: str | None, path: tuple[str, ...], offset: int | None
) -> None:
    """Or makes a dead letter of it, if there are any."""
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "columns": "value", "valueFormat": "json", **more}
    if given["valueFormat"] == "json":
        given["valueSchema"] = "a INT, l ARRAY<STRUCT<q: INT>>"
    options = SourceOptions.read(given).rows
    if sql is not None:
        options = SourceOptions.read({**given, "columns": "value,offset"}).rows
        options = options.with_select(check_select(sql, options.record_schema()))
    values: list[bytes | None] = [*DOCUMENTS, None] if given["valueFormat"] == "binary" else [*DOCUMENTS]
    count = len(values)
    columns = {
        "value": pa.array(values, pa.binary()),
        "offset": pa.array(range(10, 10 * count + 1, 10), pa.int64()),
        "key": pa.nulls(count, pa.binary()),
        RAW_TIMESTAMP: pa.array([0] * count, pa.int64()),
    }
    query = t.StructType([each for each in options.spark_schema() if each.name != DEAD_LETTER])
    write = fit(query, with_required(query, path), []).write_schema
    assert [each.logical for each in write.required] == [path]
    options = replace(options, check=TableCheck(write, {rule_name(each.what) for each in write.required}))
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in options.decoded})
    told = rf"column {'.'.join(path)} is NOT NULL in the table, and there is a null in it"
    if offset is None or options.dead_letters:
        rows = RowMaker(options, "t", 3).rows(batch)
        letters = rows.column(DEAD_LETTER).to_pylist() if options.dead_letters else []
        assert rows.num_rows
        found = [each["offset"] for each in letters if each and each["reason"] == told]
        assert found == ([] if offset is None else [offset])
        return
    with pytest.raises(
        MalformedValueError,
        match=rf"record of topic t, partition 3, at offset {offset} makes a row that the table cannot have: {told}",
    ):
        RowMaker(options, "t", 3).rows(batch)


def with_required(kind: Any, path: tuple[str, ...]) -> Any:
    """Return a type with what a path leads to NOT NULL, and spelled as there."""
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(with_required(kind.elementType, path[1:]), len(path) > 1)
    if not path:
        return kind
    return t.StructType(
        [
            t.StructField(path[0], with_required(each.dataType, path[1:]), len(path) > 1)
            if each.name.lower() == path[0].lower()
            else each
            for each in kind
        ]
    )


def _without_nulls(value: dict[str, Any]) -> bytes:
    """Return a document of JSON in which fields that are null are absent."""

    def kept(part: Any) -> Any:
        if isinstance(part, list):
            return [kept(each) for each in part]
        return {name: kept(each) for name, each in part.items() if each is not None} if isinstance(part, dict) else part

    return json.dumps(kept(value)).encode()


def test_an_error_shows_the_beginning_of_the_row() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "why": None, "text": "x" * 50, "at": 2.5, "left_out": 1}])
    assert schema._record(batch, 0) == (f"row 1 of 1 in its Arrow batch, with id 1, why null, text {'x' * 40}…, at 2.5")
    record = pa.RecordBatch.from_pylist([{"topic": "t", "partition": 3, "offset": 17}])
    assert schema._record(record, 0) == "the record of topic t, partition 3, at offset 17"
