"""The compiled decoder of Avro against fastavro, on random schemas and values; and what it makes of broken bytes."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import random
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType, TimestampType

from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro.decoder import AvroDecoder
from sparkonce.connectors.values.avro.encoder import AvroEncoder
from sparkonce.connectors.values.avro.program import Programs
from sparkonce.connectors.values.avro.types import spark_type
from sparkonce.connectors.values.columns import Layout, Problems
from sparkonce.connectors.values.unwritable import UnwritableRowError
from tests.avro_documents import Maker, bare, chosen, encode, flat, ours
from tests.avro_resolution import CASES, OURS, Case, enum, fixed, record
from tests.cases import each_case
from tests.chance import examples
from tests.json_documents import plain


def decode(writers: Sequence[Any], values: Sequence[bytes], reader: Any = None) -> tuple[pa.Array, Problems]:
    """Decode values with a writer's schema for each, or one for all; the reader's is the first if none is named."""
    tree = avro.parse(json.dumps(writers[0] if reader is None else reader))
    decoder = AvroDecoder(tree, spark_type(tree))
    entries = [decoder.add(avro.parse(json.dumps(each))) for each in writers]
    data = np.frombuffer(b"".join(values) or b"\0", np.uint8)
    ends = np.cumsum([len(each) for each in values]).astype(np.int64)
    starts = ends - np.array([len(each) for each in values], np.int64)
    numbers = entries if len(writers) == len(values) else entries * len(values)
    array, problems = decoder.decode(data, starts, ends, np.array(numbers, np.int32))
    array.validate(full=True)
    return array, problems


def compare(seed: int, count: int = 12) -> None:
    maker = Maker(seed)
    schema = maker.record()
    values = [maker.value(schema) for _ in range(count)]
    encoded = [encode(schema, each, maker.random) for each in values]
    theirs = fastavro.parse_schema(bare(schema))
    for value, data in zip(values, encoded, strict=True):  # the encoder is right
        assert repr(fastavro.schemaless_reader(io.BytesIO(data), theirs, None)) == repr(chosen(schema, value))
    array, problems = decode([schema], encoded)
    assert problems == {}
    found = [flat(schema, each) for each in plain(array)]
    assert repr(found) == repr([ours(schema, each) for each in values]), json.dumps(schema)


@each_case("seed", range(60))
def test_random_values_of_random_schemas(seed: int) -> None:
    compare(seed)


@pytest.mark.soak
def test_many_random_schemas() -> None:
    for seed in range(1000, 11000):
        compare(seed, 3)


@given(st.integers(0, 200), st.binary(max_size=60), st.integers(0, 1000))
@settings(max_examples=examples(300))
def test_broken_bytes_are_null_and_harm_no_other_value(seed: int, junk: bytes, place: int) -> None:
    maker = Maker(seed)
    schema = maker.record()
    good = [encode(schema, maker.value(schema), maker.random) for _ in range(2)]
    at = place % (len(good[0]) + 1)
    array, problems = decode([schema], [good[1], good[0][:at] + junk, good[1]])
    first, broken, last = plain(array)
    assert repr(first) == repr(last)
    assert set(problems) <= {1}
    if problems:
        assert not any(value is not None for value in broken.values())
    else:
        theirs = fastavro.schemaless_reader(io.BytesIO(good[0][:at] + junk), fastavro.parse_schema(bare(schema)), None)
        assert theirs is not None


def test_an_empty_batch_has_an_empty_column() -> None:
    array, problems = decode([{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}], [])
    assert (len(array), problems) == (0, {})


@each_case("case", [*CASES, *OURS], ids=lambda case: case.name)
def test_what_a_reader_makes_of_what_a_writer_wrote(case: Case) -> None:
    array, problems = decode([case.writer], [encode(case.writer, case.value, random.Random(1))], case.reader)
    if case.problem:
        assert case.problem in problems[0]
    else:
        assert problems == {}
        assert repr(flat(case.reader, plain(array)[0])) == repr(case.expected)


def test_values_of_ten_writers_in_turn() -> None:
    names = [f"f{at}" for at in range(10)]
    writers = [record(("id", "int"), *((name, "string") for name in names[:count])) for count in range(10)]
    reader = record(("id", "long"), *((name, "string", f"no {name}") for name in names))
    rows = [{"id": at, **{name: f"{name} {at}" for name in names[: at % 10]}} for at in range(50)]
    encoded = [encode(writers[at % 10], row, random.Random(1)) for at, row in enumerate(rows)]
    array, problems = decode([writers[at % 10] for at in range(50)], encoded, reader)
    assert problems == {}
    assert array.to_pylist() == [{**{name: f"no {name}" for name in names}, **row} for row in rows]


def test_a_part_of_the_fields_is_read_and_the_others_are_skipped() -> None:
    maker = Maker(7)
    schema = record(("a", maker.record()), ("b", "long"), ("c", maker.record()), ("d", "string"))
    tree = avro.parse(json.dumps(schema))
    decoder = AvroDecoder(tree, StructType([StructField("d", StringType()), StructField("b", LongType())]))
    number, value = decoder.add(tree), maker.value(schema)
    data = np.frombuffer(encode(schema, value, maker.random), np.uint8)
    array, problems = decoder.decode(
        data, np.array([0], np.int64), np.array([data.shape[0]], np.int64), np.array([number], np.int32)
    )
    assert (problems, array.to_pylist()) == ({}, [{"d": value["d"], "b": value["b"]}])


@each_case(
    ("schema", "part"),
    [
        ("{", "is not JSON"),
        ("[]", "a union is empty"),
        ('["int", "int"]', "has int twice"),
        ('["int", ["null"]]', "has a union in it"),
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "R contains itself"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "X"}]}', "unknown type 'X'"),
        ('{"type": "record", "name": "1R", "fields": []}', "is not a name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "has no type"),
        ('{"type": "record", "name": "R"}', "has no fields"),
        ('{"type": "enum", "name": "E", "symbols": []}', "the symbols of E"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "is not one of its symbols"),
        ('{"type": "fixed", "name": "F", "size": -1}', "the size of F"),
    ],
)
def test_schemas_that_cannot_be_read(schema: str, part: str) -> None:
    with pytest.raises(avro.AvroSchemaError, match=re.escape(part)):
        avro.parse(schema)


NODE = record(("v", "int"), ("next", ["null", "R"]), ("all", {"type": "array", "items": "R"}), ("w", "string"))


def node(v: int, below: bytes = b"", *, listed: bool = True) -> bytes:
    """Return a value of `NODE` with another in it, twice."""
    rest = b"\2" + below + b"\0" if below and listed else b"\0"
    return bytes([2 * v]) + (b"\2" + below if below else b"\0") + rest + b"\2" + b"abcde"[v : v + 1]


def decoded_by(
    writer: avro.Schema, reader: avro.Schema, kind: DataType, values: list[bytes]
) -> tuple[pa.Array, Problems]:
    decoder = AvroDecoder(reader, kind)
    data, starts, ends = wire.bounds(pa.array(values, pa.binary()))
    return decoder.decode(data, starts, ends, np.full(len(values), decoder.add(writer), np.int32))


@each_case(
    ("depth", "column"),
    [
        (1, "struct<v:int,w:string>"),
        (2, "struct<v:int,next:struct<v:int,w:string>,all:array<struct<v:int,w:string>>,w:string>"),
    ],
)
def test_a_record_within_itself_is_cut_at_a_depth_and_the_rest_is_skipped(depth: int, column: str) -> None:
    """As Spark's from_avro cuts it: `tests/spark/test_recursive_schemas.py`."""
    tree = avro.parse(json.dumps(NODE), recursive=True)
    kind = spark_type(tree, depth)
    assert kind.simpleString() == column
    value = node(4, node(3, node(2, node(1, node(0)))))
    array, problems = decoded_by(tree, tree, kind, [value, value + b"x", value[:-1]])
    below = {"v": 3, "w": "d"}
    whole = {"v": 4, "w": "e"} if depth == 1 else {"v": 4, "next": below, "all": [below], "w": "e"}
    assert (array[0].as_py(), problems) == (
        whole,
        {1: "bytes are left after the value: it was written with another schema", 2: "w: the value ends too early"},
    )


def test_a_writers_record_within_itself_is_skipped_where_the_reader_has_none() -> None:
    writer, reader = avro.parse(json.dumps(NODE), recursive=True), avro.parse(json.dumps(record(("w", "string"))))
    deep, too_deep = node(1), node(1)
    for at in range(12_000):
        deep = node(2, deep, listed=False) if at < 9_000 else deep
        too_deep = node(2, too_deep, listed=False)
    array, problems = decoded_by(writer, reader, spark_type(reader), [deep, too_deep, node(4, node(3, node(2)))])
    assert ([each["w"] for each in array.to_pylist()], problems) == (
        ["c", None, "e"],
        {1: "next.next: records, arrays and maps are too deep within each other"},
    )


def test_a_recursive_schema_is_refused_without_a_depth_and_where_too_much_or_nothing_is_left() -> None:
    with pytest.raises(avro.AvroSchemaError, match=r"next is the record R within itself.*Set recursiveFieldMaxDepth"):
        spark_type(avro.parse(json.dumps(NODE), recursive=True))
    again: list[tuple[str, Any]] = [(f"f{at}", ["null", "R"]) for at in range(8)]
    with pytest.raises(avro.AvroSchemaError, match="nothing is left with recursiveFieldMaxDepth=1"):
        spark_type(avro.parse(json.dumps(record(*again)), recursive=True), 1)
    with pytest.raises(avro.AvroSchemaError, match="set a smaller recursiveFieldMaxDepth"):
        spark_type(avro.parse(json.dumps(record(*again, ("v", "int"))), recursive=True), 15)
    with pytest.raises(avro.AvroSchemaError, match=r"fields: too large to show$"):
        spark_type(avro.parse(json.dumps(record(*again, ("v", "int"))), recursive=True), 15, "too large to show")


def test_a_default_of_a_record_within_itself() -> None:
    given = {"v": 7, "next": {"v": 8, "next": None}}
    inner = record(("v", "int"), ("next", ["R", "null"]))
    reader = avro.parse(json.dumps(record(("a", "int"), ("r", inner, given), name="O")), recursive=True)
    writer = avro.parse(json.dumps(record(("a", "int"), name="O")))
    array, problems = decoded_by(writer, reader, spark_type(reader, 2), [b"\2"])
    assert (array.to_pylist(), problems) == ([{"a": 1, "r": {"v": 7, "next": {"v": 8}}}], {})


CLOUD_EVENT = record(
    ("attribute", {"type": "map", "values": ["null", "boolean", "int", "string", "bytes"]}),
    ("data", ["bytes", "null", "boolean", {"type": "map", "values": ["null", "boolean", record(
        ("value", {"type": "map", "values": ["null", "boolean", {"type": "map", "values": "Data"},
                                             {"type": "array", "items": "Data"}, "double", "string"]}),
        name="Data", doc="any JSON")]}, {"type": "array", "items": "Data"}, "double", "string"]),
    name="CloudEvent", namespace="io.cloudevents", version="1.0",
)  # fmt: skip
"""In the form of CloudEvents' format of Avro."""


def test_events_of_a_recursive_format_are_read() -> None:
    tree = avro.parse(json.dumps(CLOUD_EVENT), recursive=True)
    kind = spark_type(tree, 1)
    assert ",data:struct<member0:binary,member1:boolean,member2:map<string," in kind.simpleString()
    value = b"\2\4id" + b"\6" + b"\4" + b"01" + b"\0" + b"\0" + b"\4{}"
    array, problems = decoded_by(tree, tree, kind, [value])
    assert problems == {}
    assert array[0].as_py()["data"]["member0"] == b"{}"


def test_only_an_unknown_symbol_is_reported_as_one() -> None:
    wide, narrow = ({"type": "enum", "name": "E", "symbols": symbols} for symbols in (["A", "B"], ["A"]))
    _, problems = decode([wide], [b"\0", b"\2", b"\x08", b""], narrow)
    assert problems == {
        1: "the reader's enum has none of the symbols B, and no default",
        2: "the enum has no such symbol",
        3: "the value ends too early",
    }


def test_memory_for_defaults_does_not_grow_with_the_number_of_writers() -> None:
    reader = avro.parse(json.dumps(record(("x", "int"), ("a", {"type": "array", "items": "int"}, [1, 2]))))
    programs = Programs(reader, Layout(spark_type(reader)))
    for _ in range(5):
        programs.add(avro.parse(json.dumps(record(("x", "int")))))
    assert programs.items_of_defaults == 2


@pytest.mark.parametrize("schema", ['"null"', '{"type": "record", "name": "R", "fields": []}', '["null"]'])
def test_schemas_that_no_column_can_hold(schema: str) -> None:
    with pytest.raises(avro.AvroSchemaError, match="no column can hold"):
        spark_type(avro.parse(schema))


def test_references_are_put_where_they_are_named_first() -> None:
    inner = '{"type": "record", "name": "In", "namespace": "n", "fields": [{"name": "e", "type": "n.E"}]}'
    outer = json.dumps({**record(("a", "In"), ("b", "n.In"), name="Out"), "namespace": "n"})
    references = ['{"type": "enum", "name": "n.E", "symbols": ["A"]}', inner]
    assert avro.parse(avro.inlined(outer, references)) == avro.parse(outer, references)


def test_a_type_that_is_defined_within_a_reference_is_defined_once() -> None:
    inner = json.dumps({**record(("b", {"type": "enum", "name": "B", "symbols": ["X"]}), name="A"), "namespace": "n"})
    for fields in ((("b", "n.B"), ("a", "n.A")), (("a", "n.A"), ("b", "n.B"))):
        outer = json.dumps(record(*fields, name="Out"))
        assert avro.parse(avro.inlined(outer, [inner])) == avro.parse(outer, [inner])


def written(schema: Any, column: pa.Array) -> pa.BinaryArray:
    tree = avro.parse(json.dumps(schema))
    return AvroEncoder(tree, spark_type(tree)).encode(column)


@each_case("seed", range(60))
def test_what_is_decoded_and_encoded_is_the_same_value(seed: int) -> None:
    maker = Maker(seed)
    schema = maker.record()
    values = [maker.value(schema) for _ in range(12)]
    column, _ = decode([schema], [encode(schema, each, maker.random) for each in values])
    again = written(schema, column)
    again.validate(full=True)
    assert written(schema, pa.concat_arrays([column[:3], column])[3:]).equals(again)  # of a slice
    theirs = fastavro.parse_schema(bare(schema))
    for value, data in zip(values, again.to_pylist(), strict=True):
        found = fastavro.schemaless_reader(io.BytesIO(data), theirs, None)
        assert found is not None, value
    twice, problems = decode([schema], again.to_pylist())
    assert problems == {}
    assert repr(plain(twice)) == repr(plain(column))


UNION = StructType([StructField("member0", StringType()), StructField("member1", LongType())])
UNWRITABLE: dict[str, tuple[Any, DataType, Any, str]] = {
    "null": ("long", LongType(), None, "a: it is null, which the schema does not take"),
    "another symbol": (enum("A"), StringType(), "B", "a: it is none of the enum's symbols"),
    "another length": (fixed(2), BinaryType(), b"abc", "a: it is not as long as the schema's fixed"),
    "too late": (
        {"type": "long", "logicalType": "timestamp-nanos"},
        TimestampType(),
        datetime.datetime(2300, 1, 1, tzinfo=datetime.UTC),
        "a: it does not fit the schema's type",
    ),
    "no member": (
        ["string", "long"],
        UNION,
        {"member0": None, "member1": None},
        "a: no member of the union has a value",
    ),
    "two members": (
        ["string", "long"],
        UNION,
        {"member0": "x", "member1": 1},
        "a: several members of the union have a",
    ),
}


@each_case("name", UNWRITABLE)
def test_what_a_schema_does_not_take_is_named(name: str) -> None:
    schema, kind, value, reason = UNWRITABLE[name]
    whole = StructType([StructField("a", kind)])
    with pytest.raises((avro.AvroSchemaError, UnwritableRowError), match=re.escape(reason)):
        AvroEncoder(avro.parse(json.dumps(record(("a", schema)))), whole).encode(
            pa.array([{"a": value}], to_arrow_type(whole, timezone="UTC"))
        )


def test_a_fixed_of_thousands_of_bytes() -> None:
    schema = record(("a", fixed(5000)), ("b", "int"))
    array, problems = decode([schema], [b"x" * 5000 + b"\x02", b"x" * 4999])
    assert plain(array)[0] == {"a": b"x" * 5000, "b": 1}
    assert problems == {1: "a: the value ends too early"}


def twice(levels: int, leaf: Any = "int") -> Any:
    """Return a type of which each level has the one below twice."""
    for at in range(levels):
        below = leaf if at == 0 else f"T{at - 1}"
        leaf = record(("x", leaf), ("y", below), name=f"T{at}")
    return leaf


def deep(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**40, 10**30])
def test_a_fixed_that_no_value_can_have(size: int) -> None:
    for kind in (fixed(size), {"type": "array", "items": record(("x", fixed(size)), ("y", "F"), name="I")}):
        reader = record(("b", "int"))
        _, problems = decode([record(("a", kind), ("b", "int")), reader], [b"\x02\x02", b"\x02"], reader)
        assert set(problems) == {0}


TOO_LARGE = {"2^20": json.dumps(twice(20)), "2^90": json.dumps(twice(90)), "300": deep(300), "100000": deep(100_000)}


@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=TOO_LARGE)
def test_schemas_that_are_too_large_or_too_deep(text: str) -> None:
    with pytest.raises(avro.AvroSchemaError, match=r"levels deep|parts, types counted"):
        avro.parse(text)


@given(
    st.integers(0, 500),
    st.integers(0, 10_000),
    st.sampled_from([None, 5, 1.5, True, "", "x", [], [[]], [5], {}, {"type": {}}]),
)
@settings(max_examples=examples(500))
def test_a_schema_with_a_part_of_another_type_is_read_or_refused(seed: int, place: int, junk: Any) -> None:
    """A schema of a registry must not stop a query: whatever is wrong with it is an AvroSchemaError."""
    schema = json.loads(json.dumps(bare(Maker(seed).record())))
    places: list[tuple[Any, Any]] = []
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part))
        places += [(part, key) for key in keys]
        waiting += [part[key] for key in keys if isinstance(part[key], dict | list)]
    part, key = places[place % len(places)]
    part[key] = junk
    reader = avro.parse(json.dumps(record(("a", ["null", "int"], None))))
    with contextlib.suppress(avro.AvroSchemaError):
        AvroDecoder(reader, spark_type(reader)).add(avro.parse(json.dumps(schema)))


def test_a_decimal_without_bytes_does_not_parse() -> None:
    """As in Java, where it is no number; Python's readers make 0 of it."""
    schema = record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}))
    array, problems = decode([schema], [b"\0", b"\2\0"])
    assert problems == {0: "a: the decimal has no bytes"}
    assert plain(array)[1] == {"a": Decimal("0.00")}
