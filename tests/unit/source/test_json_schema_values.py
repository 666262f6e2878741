"""Values with a JSON Schema of a registry: the types of their columns, and documents of Confluent's serializer."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from sparkonce import EmbeddedRegistry
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.schema_registry.wire import frame
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.json_schema import JsonSchemaError, inlined, spark_type
from sparkonce.connectors.values.json_schema_writing import JsonSchemaEncoder, schema_for
from sparkonce.connectors.values.options import JsonOptions, SchemaOptions
from sparkonce.connectors.values.registered import resolved
from sparkonce.connectors.values.registered_values import RegisteredValues
from sparkonce.connectors.values.unwritable import UnwritableRowError
from sparkonce.options import OptionError
from tests.cases import each_case
from tests.chance import examples

CONNECT = {"title": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}}
TYPES: dict[str, tuple[Any, str]] = {
    "string": ({"type": "string"}, "string"),
    "integer": ({"type": "integer"}, "bigint"),
    "number": ({"type": "number"}, "double"),
    "boolean": ({"type": "boolean"}, "boolean"),
    "date": ({"type": "string", "format": "date"}, "date"),
    "date-time": ({"type": "string", "format": "date-time"}, "timestamp"),
    "another format": ({"type": "string", "format": "uuid"}, "string"),
    "nullable by types": ({"type": ["null", "integer"]}, "bigint"),
    "nullable by oneOf": ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean"),
    "nullable by anyOf": ({"anyOf": [{"type": "integer"}, {"const": None}]}, "bigint"),
    "integer or number": ({"type": ["integer", "number"]}, "double"),
    "several types": ({"type": ["integer", "string"]}, "string"),
    "one of several": ({"oneOf": [{"type": "object"}, {"type": "integer"}]}, "string"),
    "branches that only restrict": (
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}},
            "oneOf": [{"required": ["x"]}, {"minProperties": 2}],
        },
        "struct<x:bigint>",
    ),
    "array": ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
    "array of anything": ({"type": "array"}, "array<string>"),
    "tuple": ({"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}, "array<string>"),
    "tuple of 2020-12": ({"prefixItems": [{"type": "integer"}]}, "array<string>"),
    "object": ({"properties": {"x": {"type": "integer"}}}, "struct<x:bigint>"),
    "map": ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
    "map by patterns": ({"type": "object", "patternProperties": {"^x": {"type": "number"}}}, "map<string,double>"),
    "map of several": (
        {
            "type": "object",
            "patternProperties": {"^x": {"type": "number"}},
            "additionalProperties": {"type": "boolean"},
        },
        "map<string,string>",
    ),
    "map of anything": ({"type": "object"}, "map<string,string>"),
    "enum of texts": ({"enum": ["a", "b", None]}, "string"),
    "enum of integers": ({"enum": [1, 2]}, "bigint"),
    "const": ({"const": True}, "boolean"),
    "anything": (True, "string"),
    "null only": ({"type": "null"}, "string"),
    "all of": (
        {"allOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {"type": "string"}}}]},
        "struct<x:bigint,y:string>",
    ),
    "all of, the same property": (
        {"properties": {"x": {"minimum": 1}}, "allOf": [{"properties": {"x": {"type": "integer"}}}]},
        "struct<x:bigint>",
    ),
    "all of, with one part in two": (
        {"allOf": [{"$ref": "#/definitions/x"}, {"allOf": [{"$ref": "#/definitions/x"}, {"minProperties": 1}]}]},
        "struct<x:bigint>",
    ),
    "reference": ({"$ref": "#/definitions/n"}, "bigint"),
    "reference with an escape": ({"$ref": "#/definitions/a~1b%20c"}, "string"),
    "Connect's int8": ({"type": "integer", "connect.type": "int8"}, "tinyint"),
    "Connect's int16": ({"type": "integer", "connect.type": "int16"}, "smallint"),
    "Connect's int32": ({"type": "integer", "connect.type": "int32"}, "int"),
    "Connect's int64": ({"type": "integer", "connect.type": "int64"}, "bigint"),
    "Connect's float32": ({"type": "number", "connect.type": "float32"}, "float"),
    "Connect's bytes": ({"type": "string", "connect.type": "bytes"}, "binary"),
    "Connect's decimal": ({"type": "number", **CONNECT}, "decimal(38,2)"),
}


@each_case("name", TYPES)
def test_each_part_of_a_schema_has_a_type(name: str) -> None:
    part, expected = TYPES[name]
    definitions = {
        "n": {"type": "integer"},
        "a/b c": {"type": "string"},
        "x": {"properties": {"x": {"type": "integer"}}},
    }
    root = {"type": "object", "properties": {"a": part}, "definitions": definitions}
    assert spark_type(json.dumps(root)).simpleString() == f"struct<a:{expected}>"


REFUSED = {
    '{"type"': "it is not JSON",
    '{"type": "strin"}': "it is no JSON Schema: 'strin' is not valid",
    '{"type": "array", "items": {"type": "object"}}': "the values must be objects with properties, found array",
    "true": "the values must be objects with properties, found string",
    '{"properties": {"a": {"$ref": "#"}}}': "a is recursive: # leads to itself",
    '{"properties": {"a": {"properties": {"b": {"$ref": "#/properties/a"}}}}}': "a.b.b is recursive",
    '{"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}': "the value is recursive",
    '{"properties": {"a": {"$ref": "#/$defs/none"}}}': "a refers to #/$defs/none, which the schema does not have",
    '{"properties": {"a": {"$ref": "other.json"}}}': "a refers to other.json, which is not in the schema",
}


@each_case("text", REFUSED)
def test_what_no_column_can_hold_is_refused_by_name(text: str) -> None:
    with pytest.raises(JsonSchemaError) as caught:
        spark_type(text)
    assert REFUSED[text] in str(caught.value)


def test_references_that_multiply_are_refused() -> None:
    levels: dict[str, Any] = {
        f"l{no}": {"properties": {name: {"$ref": f"#/$defs/l{no + 1}"} for name in "ab"}} for no in range(40)
    }
    levels["l40"] = {"type": "integer"}
    with pytest.raises(JsonSchemaError, match="more than 10,000 fields"):
        spark_type(json.dumps({"$ref": "#/$defs/l0", "$defs": levels}))


def test_documents_that_a_schema_refers_to_are_put_into_it() -> None:
    root = {"properties": {"a": {"$ref": "in.json"}, "b": {"$ref": "in.json#/$defs/n"}, "c": {"$ref": "#/$defs/own"}}}
    inner = {
        "properties": {"x": {"$ref": "#/$defs/n"}, "y": {"$ref": "deep/er.json"}},
        "$defs": {"n": {"type": "number"}},
    }
    text = inlined(
        json.dumps({**root, "$defs": {"own": {"type": "boolean"}}}),
        {"in.json": json.dumps(inner), "deep/er.json": '{"type": "integer"}'},
    )
    assert spark_type(text).simpleString() == "struct<a:struct<x:double,y:bigint>,b:double,c:boolean>"


ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
    "required": ["id"],
}


def values_of(registry: EmbeddedRegistry, topic: str, **options: str) -> RegisteredValues:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": topic, "valueFormat": "json-schema"}
    given |= {"schemaRegistry.url": registry.url, **options}
    decoding = SourceOptions.read(resolved(OPTIONS, given)).rows.decoding
    assert isinstance(decoding, SchemaOptions)
    return RegisteredValues(decoding)


def test_documents_of_confluents_serializer_are_read(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    serialize = JSONSerializer(json.dumps(ORDER), client)
    context = SerializationContext("orders", MessageField.VALUE)
    order = {"id": 7, "at": "2024-02-29T12:30:15.123456Z", "tags": ["a", "ß"], "to": {"city": "Bonn", "more": 1}}
    made = [serialize(order, context), serialize({"id": 8}, context), None]
    found, problems = values_of(registry, "orders").decode(pa.array(made, pa.binary()))
    assert problems == {}
    first, second, third = found.to_pylist()
    assert (first["id"], first["at"].isoformat(), first["tags"]) == (7, "2024-02-29T12:30:15.123456+00:00", ["a", "ß"])
    assert first["to"] == {"city": "Bonn"}
    assert (second, third) == ({"id": 8, "at": None, "tags": None, "to": None}, None)


def test_an_id_in_the_header_counts(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    serialize = JSONSerializer(json.dumps(ORDER), client, conf={"schema.id.serializer": header_schema_id_serializer})
    headers: list[tuple[str, bytes]] = []
    value = serialize({"id": 9}, SerializationContext("orders-by-header", MessageField.VALUE, headers))
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    found, problems = values_of(registry, "orders-by-header").decode(pa.array([value]), pa.array([headers], kind))
    assert (found.to_pylist()[0]["id"], problems) == (9, {})


def test_what_does_not_parse_has_the_reason_and_the_id(
    registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    ours = client.register_schema("bad-value", Schema(json.dumps(ORDER), "JSON"))
    avro = client.register_schema("avro-value", Schema('"long"', "AVRO"))
    values = [
        frame(ours) + b'{"id": "x"}',
        frame(ours),
        frame(ours) + b" \n",
        frame(ours) + b"null",
        frame(avro) + b"\2",
        b'{"id": 1}',
        frame(9_999) + b"{}",
        frame(ours) + b'{"id": 1}',
    ]
    decoder = values_of(registry, "bad", columnNameOfCorruptRecord="bad")
    found, problems = decoder.decode(pa.array(values, pa.binary()))
    assert problems.keys() == {0, 1, 2, 3, 4, 5, 6}
    assert problems[0].startswith(f"schema id {ours}: field id: ")
    assert problems[1] == problems[2] == f"schema id {ours}: it is empty"
    assert "it is a schema of AVRO, and values are read as JSON" in problems[4]
    rows = found.to_pylist()
    assert [None if row is None else row["bad"] for row in rows] == [
        None if at == 7 else value for at, value in enumerate(values)
    ]
    assert rows[7]["id"] == 1


def test_values_without_a_registry_are_bare_documents() -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "valueFormat": "json-schema"}
    rows = SourceOptions.read({**given, "valueSchema": json.dumps(ORDER), "timeZone": "Europe/Paris"}).rows
    assert isinstance(rows.decoding, SchemaOptions)
    found, _ = RegisteredValues(rows.decoding).decode(pa.array([b'{"id": 3, "at": "2024-01-01T00:00:00"}']))
    assert found.to_pylist()[0]["at"].isoformat() == "2023-12-31T23:00:00+00:00"
    with pytest.raises(OptionError, match="option valueMessage is for valueFormat=protobuf"):
        SourceOptions.read({**given, "valueSchema": json.dumps(ORDER), "valueMessage": "m"})


@pytest.mark.parametrize(("kind", "value"), [("integer", 3), ("string", "kept")])
def test_a_property_may_have_the_name_of_the_field_for_corrupt_records(kind: str, value: object) -> None:
    schema = {"properties": {"_corrupt_record": {"type": kind}, "a": {"type": "integer"}}}
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "valueFormat": "json-schema"}
    decoding = SourceOptions.read({**given, "valueSchema": json.dumps(schema)}).rows.decoding
    assert isinstance(decoding, SchemaOptions)
    documents = [json.dumps({"_corrupt_record": value, "a": 1}).encode(), b'{"a": "x"}']
    found, problems = RegisteredValues(decoding).decode(pa.array(documents))
    assert found.to_pylist()[0] == {"_corrupt_record": value, "a": 1}
    assert problems.keys() == {1}


def test_an_older_version_decides_what_parses_in_a_batch_that_was_begun_with_it() -> None:
    older = json.dumps({"properties": {"a": {"type": "integer"}, "c": {"type": "array", "items": {"type": "integer"}}}})
    newer = json.dumps(
        {"properties": {"b": {"type": "string"}, **json.loads(older)["properties"], "a": {"type": "string"}}}
    )
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "valueFormat": "json-schema", "valueSchema": newer}
    decoding = SourceOptions.read(given).rows.decoding
    assert isinstance(decoding, SchemaOptions)
    values = [b'{"a": "no number"}', b'{"a": 1, "b": "x", "c": [1, 2]}']
    found, problems = RegisteredValues(replace(decoding, reader=older)).decode(pa.array(values))
    assert problems.keys() == {0}
    assert found.type == to_arrow_type(decoding.schema, timezone="UTC")
    assert found.to_pylist()[1] == {"a": "1", "b": None, "c": [1, 2]}


def test_the_zone_decides_and_the_schema_of_an_id_does_not() -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "valueFormat": "json-schema"}
    given |= {"schemaRegistry.url": "http://localhost:1", "valueSchema": json.dumps(ORDER), "valueSchemaId": "3"}
    wider = {**given, "valueSchema": json.dumps({"properties": {"id": {"type": "string"}}})}
    digest = SourceOptions.read(given).rows.digest()
    assert SourceOptions.read(wider).rows.digest() == digest
    assert SourceOptions.read({**given, "timeZone": "Europe/Paris"}).rows.digest() != digest


def test_a_schema_with_references_is_read(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    client.register_schema("city", Schema('{"type": "object", "properties": {"name": {"type": "string"}}}', "JSON"))
    reference = SchemaReference("city.json", "city", 1)
    root = '{"type": "object", "properties": {"to": {"$ref": "city.json"}}}'
    number = client.register_schema("refs-value", Schema(root, "JSON", [reference]))
    value = frame(number) + b'{"to": {"name": "Bonn"}}'
    found, problems = values_of(registry, "refs").decode(pa.array([value]))
    assert (found.to_pylist(), problems) == ([{"to": {"name": "Bonn"}}], {})


WRITTEN: dict[str, list[Any]] = {
    "a BOOLEAN": [True, False, None],
    "a TINYINT": [-128, None],
    "a SMALLINT": [-(2**15)],
    "a INT": [-(2**31)],
    "a BIGINT": [2**63 - 1, None],
    "a FLOAT": [0.1, 1e20, -0.0],
    "a DOUBLE": [0.1, 1e300, 5e-324, 3.0],
    "a DECIMAL(20,2)": [Decimal("-123456789012345678.90"), Decimal("0.00"), None],
    "a DECIMAL(38,38)": [Decimal("1E-38")],
    "a STRING": ["", 'a"\\\n\x01ß🙂', "\u2028", None],
    "a BINARY": [b"", b"\0\xff", None],
    "a DATE": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "a TIMESTAMP": [datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, datetime.UTC), None],
    "a ARRAY<INT>": [[], [1, None], None],
    "a ARRAY<ARRAY<STRING>>": [[[], None, ["x", '"']]],
    "a MAP<STRING, BIGINT>": [[], [("x", 1), ('"', None)], None],
    "a STRUCT<x: INT, y: STRUCT<z: STRING>>": [{"x": 1, "y": {"z": "ü"}}, {"x": None, "y": None}, None],
    '`a"b` INT, a ARRAY<STRUCT<x: INT>>': [[{"x": 1}, None, {"x": None}], None],
}


@each_case("ddl", WRITTEN)
def test_what_is_written_is_read_back(registry: EmbeddedRegistry, client: SchemaRegistryClient, ddl: str) -> None:
    kind = parse_schema(ddl)
    text = schema_for(kind)
    assert spark_type(text).simpleString() == kind.simpleString()
    topic = f"written-{list(WRITTEN).index(ddl)}"
    number = client.register_schema(f"{topic}-value", Schema(text, "JSON"))
    arrow = to_arrow_type(kind, timezone="UTC")
    rows = [None, *({"a": each} for each in WRITTEN[ddl])]
    column = pa.array(rows, arrow)
    made = JsonSchemaEncoder(text, kind, frame(number)).encode(column)
    found, problems = values_of(registry, topic).decode(made)
    assert (found.to_pylist(), problems) == (column.to_pylist(), {})
    again = JsonSchemaEncoder(text, kind, frame(number)).encode(pa.concat_arrays([column, column]).slice(1, len(rows)))
    assert again.to_pylist() == [*made.to_pylist()[1:], None]
    deserialize = JSONDeserializer(None, schema_registry_client=client)  # it validates
    context = SerializationContext(topic, MessageField.VALUE)
    assert all(deserialize(value, context) is not None for value in made.to_pylist()[1:])


PLAIN = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["null", "string"]}}}
FITS: dict[str, tuple[Any, str, list[Any], list[str] | str]] = {
    "null is left out where it may be absent": (PLAIN, "a INT, b STRING", [{"a": None, "b": None}], ["{}"]),
    "null is written where it is required": (
        {**PLAIN, "required": ["b"]},
        "a INT, b STRING",
        [{"a": 1, "b": None}],
        ['{"a":1,"b":null}'],
    ),
    "null where none may be": ({**PLAIN, "required": ["a"]}, "a INT", [{"a": None}], "a: it is null, which"),
    "null in an array": (
        {"properties": {"a": {"type": "array", "items": {"type": "integer"}}}},
        "a ARRAY<INT>",
        [{"a": [None]}],
        "a.element: it is null, which",
    ),
    "no number": ({"properties": {"a": {"type": "number"}}}, "a DOUBLE", [{"a": float("nan")}], "a: NaN and infinity"),
    "another type": (PLAIN, "a STRING", [], "a: string cannot be written as the schema's integer"),
    "a field that the schema lacks": (
        {**PLAIN, "additionalProperties": False},
        "c INT",
        [],
        "c: the schema has no such property",
    ),
    "a field that the column lacks": (
        {**PLAIN, "required": ["a"]},
        "b STRING",
        [],
        "a: the schema requires it, and the column has no such field",
    ),
    "a map as an object with properties": (
        {"properties": {"a": PLAIN}},
        "a MAP<STRING, STRING>",
        [],
        "a: a map cannot",
    ),
    "an array as a tuple": ({"properties": {"a": {"items": [{}]}}}, "a ARRAY<INT>", [], "a: an array cannot"),
}


@each_case("name", FITS)
def test_a_schema_that_is_there_decides(name: str) -> None:
    schema, ddl, rows, expected = FITS[name]
    kind = parse_schema(ddl)
    column = pa.array(rows, to_arrow_type(kind, timezone="UTC"))
    if isinstance(expected, list):
        made = JsonSchemaEncoder(json.dumps(schema), kind).encode(column)
        assert [each.decode() for each in made.to_pylist()] == expected
        return
    with pytest.raises((JsonSchemaError, UnwritableRowError)) as caught:
        JsonSchemaEncoder(json.dumps(schema), kind).encode(column)
    assert expected in str(caught.value)


_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
_MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC))
_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), _TEXT),
    (pa.binary(), st.binary(max_size=6)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), _MOMENTS),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3, allow_nan=False)),
]


@st.composite
def columns(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Draw a type of Arrow, and a strategy for its values, null among them."""
    form = draw(st.sampled_from(["leaf", "leaf", "list", "map", "struct"])) if depth else "leaf"
    if form == "leaf":
        kind, found = draw(st.sampled_from(_LEAVES))
        return kind, st.none() | found
    if form == "struct":
        return draw(structs(depth - 1))
    below, parts = draw(columns(depth - 1))
    if form == "list":
        return pa.list_(below), st.none() | st.lists(parts, max_size=3)
    entries = st.dictionaries(_TEXT, parts, max_size=3).map(lambda made: [*made.items()])
    return pa.map_(pa.string(), below), st.none() | entries


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    names = draw(st.lists(_TEXT.filter(bool), min_size=1, max_size=3, unique_by=str.lower))
    made = {name: draw(columns(depth)) for name in names}
    kind = pa.struct([pa.field(name, below) for name, (below, _) in made.items()])
    return kind, st.none() | st.fixed_dictionaries({name: parts for name, (_, parts) in made.items()})


def _round_trip(data: st.DataObject) -> None:
    arrow, found = data.draw(structs())
    kind: Any = from_arrow_type(arrow)
    text = schema_for(kind)
    column = pa.array(data.draw(st.lists(found, max_size=5)), to_arrow_type(kind, timezone="UTC"))
    made = JsonSchemaEncoder(text, kind).encode(column)
    assert spark_type(text) == kind
    decoding = SchemaOptions(kind, text, format="json-schema", json=JsonOptions(kind))
    read, problems = RegisteredValues(decoding).decode(made)
    assert (read.to_pylist(), problems) == (column.to_pylist(), {})
    validator = Draft7Validator(json.loads(text))
    assert all(validator.is_valid(json.loads(each)) for each in made.to_pylist() if each is not None)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_columns_are_read_back(data: st.DataObject) -> None:
    _round_trip(data)


@pytest.mark.soak
@settings(max_examples=examples(3000), deadline=None)
@given(st.data())
def test_many_random_columns_are_read_back(data: st.DataObject) -> None:
    _round_trip(data)
