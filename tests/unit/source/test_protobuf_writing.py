"""The compiled encoder of Protobuf: Google's parser and our decoder read what it writes; and what it refuses."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.protobuf import encoder, reading, writing
from sparkonce.connectors.values.protobuf.column_schema import check_numbers, message_name, schema_for
from sparkonce.connectors.values.protobuf.encoder import ProtobufEncoder
from sparkonce.connectors.values.protobuf.schema import ProtobufSchemaError
from sparkonce.connectors.values.protobuf.types import Choices, spark_type
from sparkonce.connectors.values.unwritable import UnwritableRowError
from tests.cases import each_case
from tests.chance import examples
from tests.json_documents import plain
from tests.protobuf_documents import Maker, expected, rewrite, without_extras
from tests.unit.source.test_protobuf_values import decode, flat, in_order, message_of

UTC = datetime.UTC
HEAD = """
syntax = "proto2";
import "google/protobuf/duration.proto"; import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { RED = 0; BLUE = 3; AZURE = 3; option allow_alias = true; }
message In { optional int32 x = 1; repeated string tags = 2; }
"""


@cache
def parsed(fields: str, syntax: str = "proto3") -> Descriptor:
    return reading.message_of(HEAD.replace("proto2", syntax) + f"message M {{ {fields} }}", "M")


def column(kind: t.DataType, rows: list[Any]) -> pa.Array:
    return pa.array(rows, to_arrow_type(kind, timezone="UTC"))


def written(message: Descriptor, ddl: str | t.StructType, *rows: Any) -> list[Any]:
    """Return what Google's parser reads of rows that are written."""
    kind = parse_schema(ddl) if isinstance(ddl, str) else ddl
    google = message_factory.GetMessageClass(message)
    values = ProtobufEncoder(message, kind).encode(column(kind, list(rows)))
    values.validate(full=True)
    return [None if each is None else google.FromString(each) for each in values.to_pylist()]


def refusal(fields: str, ddl: str, *rows: Any, syntax: str = "proto3") -> str:
    with pytest.raises((UnwritableRowError, ProtobufSchemaError)) as caught:
        written(parsed(fields, syntax), ddl, *rows)
    assert isinstance(caught.value, ProtobufSchemaError) != bool(rows), "what does not fit is refused at the start"
    return str(caught.value)


def check(seed: int, count: int = 6) -> None:
    """Write values of a random schema; let Google's parser and our decoder read them."""
    maker = Maker(seed)
    message, some = message_of(maker), maker.random
    choices = Choices(some.random() < 0.5, some.random() < 0.5, some.random() < 0.5)
    kind = part(spark_type(message, choices), message, some)
    usual = [maker.value(message).SerializeToString() for _ in range(count)]
    data = [rewrite(each, message, some) for each in usual]
    array, problems = decode(message, data, kind=kind)
    rows = [row for row in range(count) if row not in problems]
    array = pa.concat_arrays([array.take(pa.array(rows, pa.int64())), pa.nulls(1, array.type)])
    made = ProtobufEncoder(message, kind)
    again = made.encode(array)
    again.validate(full=True)
    assert made.encode(pa.concat_arrays([array[:3], array])[min(3, len(array)) :]).equals(again), "of a slice"
    google = message_factory.GetMessageClass(message)
    for found, value in zip(plain(array), again.to_pylist(), strict=True):
        assert (value is None) == (found is None)
        if value is not None:
            theirs = google.FromString(value)
            wanted = expected(google.FromString(without_extras(value, message)), kind)
            assert repr(in_order(flat(found, kind))) == repr(in_order(wanted)), seed
            assert theirs.ByteSize() == len(value), "no byte is there that need not be"
    twice, found_problems = decode(message, again[:-1].to_pylist(), kind=kind)
    assert found_problems == {}
    assert repr(plain(twice)) == repr(plain(array[:-1])), seed


def part(kind: t.StructType, message: Descriptor, some: random.Random) -> t.StructType:
    """Leave out some of the columns that need not be there, and put the others in another order."""
    required = {each.name for each in message.fields if each.is_required}
    fields = [each for each in kind if each.name in required or some.random() < 0.8]
    some.shuffle(fields)
    return t.StructType(fields or list(kind))


@each_case("seed", range(80))
def test_google_and_our_decoder_read_what_is_written(seed: int) -> None:
    check(seed)


@given(st.integers(0, 1_000_000))
@settings(max_examples=examples(100))
def test_any_schema(seed: int) -> None:
    check(seed, 3)


@pytest.mark.soak
def test_many_random_schemas() -> None:
    for seed in range(40_000, 50_000):
        check(seed, 3)


MICROS = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
SCALARS: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.BooleanType(), st.booleans()),
    (t.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (t.FloatType(), st.floats(width=32, allow_nan=False)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    (t.StringType(), st.text(max_size=40)),
    (t.BinaryType(), st.binary(max_size=40)),
    (t.TimestampType(), st.integers(-(10**15), 10**15).map(lambda micros: EPOCH + micros * MICROS)),
]
NAMES = st.text("abcXYZ_019", min_size=1, max_size=4).map(lambda name: f"f{name}")
Typed = tuple[t.DataType, st.SearchStrategy[Any]]


@st.composite
def fields(draw: st.DrawFn, depth: int) -> Typed:
    """Return a type of a field, and what makes its values."""
    what = draw(st.sampled_from(("scalar", "scalar", "struct", "array", "map")))
    if what == "struct" and depth > 0:
        return draw(structs(depth - 1))
    if what in ("array", "map"):
        below, values = draw(structs(depth - 1) if depth > 0 and draw(st.booleans()) else st.sampled_from(SCALARS))
        if what == "array":
            return t.ArrayType(below), st.lists(values, max_size=3)
        key, keys = SCALARS[draw(st.sampled_from((0, 1, 2, 5)))]
        return t.MapType(key, below), st.dictionaries(keys, values, max_size=3).map(lambda made: list(made.items()))
    return draw(st.sampled_from(SCALARS))


@st.composite
def structs(draw: st.DrawFn, depth: int) -> Typed:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=lambda name: name.lower().replace("_", "")))
    made = {name: draw(fields(depth)) for name in names}
    kind = t.StructType([t.StructField(name, each) for name, (each, _) in made.items()])
    lists = (t.ArrayType, t.MapType)
    strategies = {
        name: values if isinstance(each, lists) else st.none() | values for name, (each, values) in made.items()
    }
    return kind, st.fixed_dictionaries(strategies)


@given(st.data())
@settings(max_examples=examples(20), deadline=None)
def test_columns_of_any_type_come_back_by_the_schema_that_is_made_for_them(data: st.DataObject) -> None:
    kind, values = data.draw(structs(2))
    assert isinstance(kind, t.StructType)
    rows = column(kind, data.draw(st.lists(values, min_size=1, max_size=4)))
    message = reading.message_of(schema_for(kind), None)
    assert spark_type(message) == kind
    again = ProtobufEncoder(message, kind).encode(rows)
    found, problems = decode(message, again.to_pylist())
    assert problems == {}
    assert repr(plain(found)) == repr(plain(rows))
    google = message_factory.GetMessageClass(message)
    for row, value in zip(plain(rows), again.to_pylist(), strict=True):
        assert repr(in_order(flat(row, kind))) == repr(in_order(expected(google.FromString(value), kind)))


def test_smaller_columns_are_written_as_larger_fields() -> None:
    message = parsed(
        "int32 a = 1; sint64 b = 2; fixed32 c = 3; double d = 4; double e = 5; uint64 f = 6; sfixed64 g = 7;"
    )
    ddl = "a TINYINT, b SMALLINT, c SMALLINT, d INT, e FLOAT, f INT, g INT"
    (found,) = written(message, ddl, {"a": -1, "b": -300, "c": 7, "d": -5, "e": 0.5, "f": 2**31 - 1, "g": -9})
    assert [getattr(found, name) for name in "abcdefg"] == [-1, -300, 7, -5.0, 0.5, 2**31 - 1, -9]


def test_unsigned_numbers_as_the_decoder_has_them_and_as_they_are() -> None:
    message = parsed("uint32 a = 1; fixed32 b = 2; uint64 c = 3; fixed64 d = 4; repeated uint32 e = 5;")
    rows = {"a": -1, "b": -2, "c": -1, "d": -2, "e": [-1]}
    (found,) = written(message, "a INT, b INT, c BIGINT, d BIGINT, e ARRAY<INT>", rows)
    expected = [2**32 - 1, 2**32 - 2, 2**64 - 1, 2**64 - 2, [2**32 - 1]]
    assert [getattr(found, name) for name in "abcde"] == expected
    whole = "DECIMAL(20,0)"
    rows = dict(zip("abcde", [*expected[:2], Decimal(2**64 - 1), Decimal(2**64 - 2), expected[4]], strict=True))
    (found,) = written(message, f"a BIGINT, b BIGINT, c {whole}, d {whole}, e ARRAY<BIGINT>", rows)
    assert [getattr(found, name) for name in "abcde"] == expected


@each_case(
    ("field", "kind", "value"),
    [
        ("uint32", "BIGINT", 2**32),
        ("uint32", "BIGINT", -1),
        ("fixed32", "BIGINT", -1),
        ("uint32", "SMALLINT", -1),
        ("uint64", "INT", -1),
        ("fixed64", "INT", -1),
        ("uint64", "DECIMAL(20,0)", Decimal(2**64)),
        ("fixed64", "DECIMAL(20,0)", Decimal(-1)),
        ("google.protobuf.Duration", "BIGINT", 315_576_000_001 * 10**6),
        ("google.protobuf.Duration", "BIGINT", -315_576_000_001 * 10**6),
        ("google.protobuf.UInt32Value", "BIGINT", 2**32),
    ],
)
def test_numbers_that_do_not_fit_are_refused(field: str, kind: str, value: Any) -> None:
    assert refusal(f"{field} a = 1;", f"a {kind}", {"a": value}) == "a: it does not fit the schema's type"


def test_times_beyond_the_years_of_a_timestamp_are_refused() -> None:
    kind = parse_schema("a TIMESTAMP")
    made = ProtobufEncoder(parsed("google.protobuf.Timestamp a = 1;"), kind)
    for micros in (253_402_300_800 * 10**6, -62_135_596_801 * 10**6, 2**63 - 1):
        times = pa.array([micros], pa.int64()).cast(pa.timestamp("us", "UTC"))
        with pytest.raises(UnwritableRowError, match="a: it does not fit"):
            made.encode(pa.StructArray.from_arrays([times], ["a"]))


def test_times_before_1970_and_durations_below_zero() -> None:
    message = parsed("google.protobuf.Timestamp a = 1; google.protobuf.Duration b = 2;")
    (found,) = written(message, "a TIMESTAMP, b BIGINT", {"a": EPOCH - 1 * MICROS, "b": -1_500_000})
    assert (found.a.seconds, found.a.nanos) == (-1, 999_999_000)
    assert (found.b.seconds, found.b.nanos) == (-1, -500_000_000)
    (found,) = written(message, "a STRUCT<seconds: BIGINT>, b BIGINT", {"a": {"seconds": 5}, "b": 0})
    assert (found.a.seconds, found.HasField("b")) == (5, True)


def test_nulls_are_left_out_where_the_field_has_presence() -> None:
    fields = (
        "message X { optional int32 x = 1; } optional int32 a = 1; X b = 2; google.protobuf.Int32Value c = 3; "
        "oneof o { int32 d = 4; string e = 5; }"
    )
    ddl = "a INT, b STRUCT<x: INT>, c INT, d INT, e STRING"
    message = parsed(fields)
    none, zero, last = written(
        message,
        ddl,
        dict.fromkeys("abcde"),
        {"a": 0, "b": {"x": None}, "c": 0, "d": 0, "e": None},
        None,
    )
    assert [none.HasField(name) for name in "abcde"] == [False] * 5
    assert [zero.HasField(name) for name in "abcde"] == [True] * 4 + [False]
    assert not zero.b.HasField("x")
    assert last is None


@each_case(
    ("fields", "ddl", "row", "where"),
    [
        ("int32 a = 1;", "a INT", None, "a: it is null, and would be read as 0 or empty"),
        ("string a = 1;", "a STRING", None, "a: it is null, and would be read as 0 or empty"),
        ("repeated int32 a = 1;", "a ARRAY<INT>", None, "a: it is null, which Protobuf cannot tell from an empty one"),
        ("map<string, int32> a = 1;", "a MAP<STRING, INT>", None, "a: it is null, which Protobuf cannot tell from"),
        ("repeated int32 a = 1;", "a ARRAY<INT>", [1, None], "a.element: it is null, which the schema does not take"),
        ("repeated string a = 1;", "a ARRAY<STRING>", [None], "a.element: it is null, which the schema does not take"),
        (
            "repeated In a = 1;",
            "a ARRAY<STRUCT<x: INT>>",
            [None],
            "a.element: it is null, which the schema does not take",
        ),
        ("map<string, int32> a = 1;", "a MAP<STRING, INT>", [("k", None)], "a.value: it is null, which the schema"),
        ("Color a = 1;", "a STRING", "GREEN", "a: it is none of the enum's symbols"),
        ("Color a = 1;", "a STRING", "UNKNOWN_ENUM_VALUE_Color_", "a: it is none of the enum's symbols"),
        ("Color a = 1;", "a STRING", "UNKNOWN_ENUM_VALUE_Color_-", "a: it is none of the enum's symbols"),
        ("Color a = 1;", "a STRING", "UNKNOWN_ENUM_VALUE_Color_x", "a: it is none of the enum's symbols"),
        ("Color a = 1;", "a STRING", "UNKNOWN_ENUM_VALUE_Color_2147483648", "a: it is none of the enum's symbols"),
        ("Color a = 1;", "a STRING", "UNKNOWN_ENUM_VALUE_Size_7", "a: it is none of the enum's symbols"),
        ("repeated Color a = 1;", "a ARRAY<STRING>", ["RED", ""], "a.element: it is none of the enum's symbols"),
    ],
)
def test_rows_that_the_schema_does_not_take(fields: str, ddl: str, row: Any, where: str) -> None:
    assert refusal(fields, ddl, {"a": row}).startswith(where)


def test_rows_that_proto2_does_not_take() -> None:
    needed = (
        "optional In a = 1; required int32 b = 2; optional Color c = 3; repeated N d = 4; "
        "message N { required int32 x = 1; }"
    )
    ddl = "b INT, c STRING, d ARRAY<STRUCT<x: INT>>"
    assert refusal(needed, ddl, {"b": None, "c": None, "d": []}, syntax="proto2").startswith("b: it is null, which the")
    named = {"b": 1, "c": "UNKNOWN_ENUM_VALUE_Color_7", "d": []}
    assert refusal(needed, ddl, named, syntax="proto2") == "c: it is none of the enum's symbols"
    below = {"b": 1, "c": None, "d": [{"x": 1}, {"x": None}]}
    assert refusal(needed, ddl, below, syntax="proto2") == "d.element.x: it is null, which the schema does not take"
    numbers = ddl.replace("c STRING", "c INT")
    assert refusal(needed, numbers, {"b": 1, "c": 1, "d": []}, syntax="proto2") == "c: it is none of the enum's symbols"
    (found,) = written(parsed(needed, "proto2"), numbers, {"b": 1, "c": 3, "d": []})
    assert found.c == 3
    lacks = refusal(needed, "b INT, d ARRAY<STRUCT<y: INT>>", syntax="proto2")
    assert lacks == "d.element: the message M.N has no field y, which the column has"
    assert refusal(needed, "c STRING", syntax="proto2").startswith(
        "b: the column lacks this field, which the message M"
    )


def test_a_oneof_has_one_value_at_most() -> None:
    fields = "oneof choice { int32 a = 1; string b = 2; In c = 3; } int32 d = 4;"
    ddl = "a INT, b STRING, d INT"
    assert refusal(fields, ddl, {"a": 0, "b": "", "d": 1}) == "choice: more than one of its fields has a value"
    inner = refusal("repeated W w = 1; message W { oneof o { int32 a = 1; int32 b = 2; } }",
                    "w ARRAY<STRUCT<a: INT, b: INT>>", {"w": [{"a": 1, "b": None}, {"a": 1, "b": 2}]})  # fmt: skip
    assert inner == "w.element.o: more than one of its fields has a value"
    one, none = written(parsed(fields), ddl, {"a": None, "b": "", "d": 1}, {"a": None, "b": None, "d": 1})
    assert (one.WhichOneof("choice"), none.WhichOneof("choice")) == ("b", None)


def test_text_that_is_not_utf_8_is_refused() -> None:
    text = pa.array([b"\xff"]).cast(pa.binary()).view(pa.string())
    made = ProtobufEncoder(parsed("string a = 1;"), parse_schema("a STRING"))
    with pytest.raises(UnwritableRowError, match="a: the text is not UTF-8"):
        made.encode(pa.StructArray.from_arrays([text], ["a"]))


@each_case(
    ("field", "kind", "told"),
    [
        ("int32 a = 1;", "BIGINT", "a: bigint cannot be written as int32"),
        ("float a = 1;", "DOUBLE", "a: double cannot be written as float"),
        ("string a = 1;", "BINARY", "a: binary cannot be written as string"),
        ("int32 a = 1;", "ARRAY<INT>", "a: array<int> cannot be written as int32"),
        ("repeated int32 a = 1;", "INT", "a: int cannot be written as repeated int32"),
        ("repeated int32 a = 1;", "ARRAY<STRING>", "a.element: string cannot be written as repeated int32"),
        ("map<int32, int32> a = 1;", "MAP<STRING, INT>", "a.key: string cannot be written as int32"),
        ("In a = 1;", "STRING", "a: string cannot be written as In"),
        ("int32 a = 1;", "STRUCT<x: INT>", "a: struct<x:int> cannot be written as int32"),
        ("google.protobuf.Timestamp a = 1;", "TIMESTAMP_NTZ", "a: timestamp_ntz cannot be written as google.protobuf."),
        ("google.protobuf.Int32Value a = 1;", "STRING", "a: string cannot be written as google.protobuf.Int32Value"),
        ("Color a = 1;", "BIGINT", "a: bigint cannot be written as Color"),
        ("bool a = 1;", "INT", "a: int cannot be written as bool"),
        ("uint64 a = 1;", "DECIMAL(10,0)", "a: decimal(10,0) cannot be written as uint64"),
        ("int32 b = 1;", "INT", "the value: the message M has no field a, which the column has"),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_the_start(field: str, kind: str, told: str) -> None:
    assert refusal(field, f"a {kind}").startswith(told)


def test_a_value_that_is_no_struct_has_no_message() -> None:
    with pytest.raises(ProtobufSchemaError, match="the value: bigint cannot be written as M"):
        ProtobufEncoder(parsed("int32 a = 1;"), t.LongType())
    with pytest.raises(ProtobufSchemaError, match="the value: bigint is no message of Protobuf"):
        schema_for(t.LongType())


def test_fields_of_one_name_are_refused() -> None:
    kind = t.StructType([t.StructField("a", t.IntegerType()), t.StructField("a", t.IntegerType())])
    with pytest.raises(ValueError, match="a struct of the column has two fields a"):
        ProtobufEncoder(parsed("int32 a = 1;"), kind)


def test_names_of_enums_and_of_numbers_that_have_none() -> None:
    texts = ["RED", "BLUE", "AZURE", "UNKNOWN_ENUM_VALUE_Color_7", "UNKNOWN_ENUM_VALUE_Color_-2147483648"]
    (found,) = written(parsed("repeated Color a = 1;"), "a ARRAY<STRING>", {"a": texts})
    assert list(found.a) == [0, 3, 3, 7, -(2**31)]


def test_a_message_may_contain_itself_as_deep_as_the_column_is() -> None:
    (found,) = written(
        parsed("int32 x = 1; M m = 2;"), "x INT, m STRUCT<x: INT, m: STRUCT<x: INT>>",
        {"x": 1, "m": {"x": 2, "m": {"x": 3}}},
    )  # fmt: skip
    assert (found.x, found.m.x, found.m.m.x) == (1, 2, 3)
    kind: t.StructType = t.StructType([t.StructField("x", t.IntegerType())])
    for _ in range(101):
        kind = t.StructType([t.StructField("m", kind)])
    with pytest.raises(ProtobufSchemaError, match="more than 100 messages are in each other"):
        ProtobufEncoder(parsed("int32 x = 1; M m = 2;"), kind)


def test_no_rows_and_only_nulls() -> None:
    made = ProtobufEncoder(parsed("int32 a = 1;"), parse_schema("a INT"), b"frame")
    kind = parse_schema("a INT")
    assert made.encode(column(kind, [])).to_pylist() == []
    assert made.encode(column(kind, [None, None])).to_pylist() == [None, None]
    assert made.encode(column(kind, [{"a": 0}, None, {"a": 1}])).to_pylist() == [b"frame", None, b"frame\x08\x01"]


def test_arrays_of_no_elements_without_offsets() -> None:
    """As Arrow's format allows it, and its older writers do it."""
    kind = parse_schema("a ARRAY<STRING>, s ARRAY<STRUCT<b: ARRAY<BINARY>>>, m MAP<STRING, BIGINT>")
    empty, zeros = pa.py_buffer(b""), pa.py_buffer(bytes(12))

    def none_of(kind: pa.DataType) -> pa.Array:
        below = [kind.field(at).type for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []
        buffers = [None] if pa.types.is_struct(kind) else [None, *[empty] * (kind.num_buffers - 1)]
        return pa.Array.from_buffers(kind, 0, buffers, children=[none_of(each) for each in below])

    arrow = to_arrow_type(kind, timezone="UTC")
    fields = [arrow.field(at).type for at in range(3)]
    columns = [pa.Array.from_buffers(each, 2, [None, zeros], children=[none_of(each.field(0).type)]) for each in fields]
    values = pa.StructArray.from_arrays(columns, fields=list(arrow))
    message = reading.message_of(schema_for(kind), None)
    assert ProtobufEncoder(message, kind).encode(values).to_pylist() == [b"", b""]


def test_the_largest_cells_have_room() -> None:
    message = parsed(
        "map<int64, google.protobuf.Duration> a = 536870911; repeated google.protobuf.UInt64Value b = 536870910; "
        "repeated int64 c = 536870909 [packed = false]; repeated bool d = 536870908 [packed = false];"
    )
    lists = parse_schema("b ARRAY<BIGINT>, c ARRAY<BIGINT>, d ARRAY<BOOLEAN>")
    kind = t.StructType([t.StructField("a", t.MapType(t.LongType(), t.LongType())), *lists])
    least = -315_575_999_999_999_999
    row = {"a": [(-1 - at, least) for at in range(50)], "b": [-1] * 50, "c": [-1] * 50, "d": [True] * 50}
    (found,) = written(message, kind, row)
    assert (len(found.a), list(found.c), list(found.d)) == (50, [-1] * 50, [True] * 50)
    text = """
        edition = "2023"; import "google/protobuf/duration.proto";
        message M { repeated google.protobuf.Duration a = 536870911 [features.message_encoding = DELIMITED]; }
    """
    groups = reading.message_of(text, None)
    (found,) = written(groups, "a ARRAY<BIGINT>", {"a": [least] * 1000})
    assert {(each.seconds, each.nanos) for each in found.a} == {(-315_575_999_999, -999_999_000)}
    assert found.ByteSize() == 1000 * writing.MOST_BYTES_OF_A_CELL


def test_more_bytes_than_arrow_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "MAX_BYTES", 3)
    with pytest.raises(OverflowError, match="4 bytes of values in one column are more than Arrow holds"):
        written(parsed("int32 a = 1;"), "a INT", {"a": 1}, {"a": 1})


PERSON = "id BIGINT, name STRING, home STRUCT<city: STRING>, tags ARRAY<STRING>, at TIMESTAMP, by_name MAP<STRING, INT>"


def test_the_schema_that_is_made_for_a_column() -> None:
    assert schema_for(parse_schema(PERSON), "people.Person").splitlines() == [
        'syntax = "proto3";',
        "package people;",
        'import "google/protobuf/timestamp.proto";',
        "message Person {",
        "  optional int64 id = 1;",
        "  optional string name = 2;",
        "  message Home {",
        "    optional string city = 1;",
        "  }",
        "  Home home = 3;",
        "  repeated string tags = 4;",
        "  optional google.protobuf.Timestamp at = 5;",
        "  map<string, int32> by_name = 6;",
        "}",
    ]
    names = {"departures-value": "DeparturesValue", "1.a_b": "M1AB", ":.c:x": "CX", "-": "Value"}
    assert {each: message_name(each) for each in names} == names


def test_names_of_messages_that_would_clash() -> None:
    structs = ", ".join(f"{name} STRUCT<x: INT>" for name in ("Message", "value", "m_entry", "`_`"))
    kind = parse_schema(f"home STRUCT<Home: INT>, Home_ STRING, m MAP<STRING, STRUCT<x: INT>>, {structs}")
    assert spark_type(reading.message_of(schema_for(kind), None)) == kind


@each_case(
    ("ddl", "told"),
    [
        ("a DECIMAL(10,2)", "a: decimal(10,2) has no type of Protobuf: cast it to STRING, or to DOUBLE if it may be"),
        ("a DATE", "a: date has no type of Protobuf: cast it to STRING or TIMESTAMP"),
        ("a TIMESTAMP_NTZ", "a: timestamp_ntz has no type of Protobuf: cast it to STRING or TIMESTAMP"),
        ("s STRUCT<a: ARRAY<DATE>>", "s.a.element: date has no type of Protobuf"),
        ("a ARRAY<ARRAY<INT>>", "a.element: array<int> has no type of Protobuf: put it into a struct"),
        ("a MAP<STRING, ARRAY<INT>>", "a.value: array<int> has no type of Protobuf: put it into a struct"),
        ("`a b` INT", "a b: a field of Protobuf cannot have this name"),
        ("`grüße` INT", "grüße: a field of Protobuf cannot have this name"),
    ],
)
def test_columns_that_protobuf_cannot_say(ddl: str, told: str) -> None:
    with pytest.raises(ProtobufSchemaError) as caught:
        schema_for(parse_schema(ddl))
    assert str(caught.value).startswith(told)


def test_columns_that_the_options_cannot_name_but_spark_can() -> None:
    double = t.MapType(t.DoubleType(), t.IntegerType())
    with pytest.raises(ProtobufSchemaError, match="a map's keys are STRING, BOOLEAN or whole numbers"):
        schema_for(t.StructType([t.StructField("a", double)]))
    with pytest.raises(ProtobufSchemaError, match="a: a struct without fields would not be read again"):
        schema_for(t.StructType([t.StructField("a", t.StructType([]))]))
    with pytest.raises(ProtobufSchemaError, match=r"a: void has no type of Protobuf"):
        schema_for(t.StructType([t.StructField("a", t.NullType())]))
    with pytest.raises(ProtobufSchemaError, match="cannot be called 'a-b'"):
        schema_for(parse_schema("a INT"), "a-b")


@each_case(
    ("after", "told"),
    [
        (PERSON + ", last INT", None),
        (PERSON.replace("city: STRING", "city: STRING, zip: STRING"), None),
        (PERSON.rpartition(", by_name")[0], None),
        ("new INT, " + PERSON, "Value: the column's field new would have the number 1, at which .* has id"),
        ("id BIGINT, home STRUCT<city: STRING>", "the column's field home would have the number 2"),
        (PERSON.replace("id", "number"), "the column's field number would have the number 1, at which .* has id"),
        (PERSON.replace("city: STRING", "zip: STRING, city: STRING"), "Value.Home: the column's field zip"),
        (PERSON.replace("city: STRING", "zip: STRING, city: STRING") + ", Home INT", "Value.Home_: the column's field"),
    ],
)
def test_fields_keep_their_numbers(after: str, told: str | None) -> None:
    before, made = (reading.message_of(schema_for(parse_schema(ddl)), None) for ddl in (PERSON, after))
    if told is None:
        check_numbers(before, made)
    else:
        with pytest.raises(ProtobufSchemaError, match=told):
            check_numbers(before, made)
