"""What the decoder of Protobuf makes of single values, one rule each; the types of columns, and schemas it rejects."""

from __future__ import annotations

import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor
from pyspark.sql import types as t

from sparkonce.connectors.schema_registry import protobuf_text
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.protobuf import schema
from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder
from sparkonce.connectors.values.protobuf.schema import ProtobufSchemaError
from sparkonce.connectors.values.protobuf.types import Choices, spark_type
from tests.cases import each_case
from tests.protobuf_documents import join, number
from tests.unit.source.test_protobuf_values import decode

TWO = """
syntax = "proto2"; package two;
enum Color { RED = 0; BLUE = 1; CYAN = 1; option allow_alias = true; }
message Inner { optional int32 x = 1; repeated string tags = 2; repeated Inner2 deep = 3; }
message Inner2 { oneof o { int32 a = 1; string b = 2; } repeated int32 n = 3; }
message Needed { required int32 x = 1; optional int32 y = 2; }
message Case {
  optional int32 number = 1; optional int32 seven = 2 [default = 7]; optional string text = 3 [default = "Grüße"];
  optional bytes raw = 4 [default = "\\001\\377"]; optional double far = 5 [default = -inf];
  optional Color color = 6; optional Color blue = 7 [default = BLUE]; repeated Color colors = 8;
  map<string, Color> by_name = 9; optional Inner inner = 10; repeated Inner inners = 11;
  repeated group Group = 12 { optional int32 x = 1; repeated string tags = 2; }
  optional Needed needed = 13; repeated Needed all = 14;
  oneof choice { string s = 15; Inner i = 16; int32 n = 17 [default = 5]; }
  repeated int32 loose = 18; repeated int32 packed = 19 [packed = true]; extensions 100 to 200;
}
message Hollow {} message Around { optional Hollow hollow = 1; repeated Hollow many = 2; map<int32, Hollow> m = 3; }
message Tree { optional int32 x = 1; repeated Tree branches = 2; }
message Grown { optional int32 x = 1; map<string, Tree> trees = 2; }
extend Case { optional int32 more = 100; }
"""
LIST = """
syntax = "proto3";
message Node { int32 v = 1; Node next = 2; repeated Node all = 3; map<string, Node> by = 4; }
"""
THREE = """
syntax = "proto3"; package three;
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
enum Color { RED = 0; BLUE = 1; MINUS = -5; }
message Inner { int32 x = 1; repeated string tags = 2; }
message Case {
  int32 number = 1; optional int32 maybe = 2; string text = 3; bytes raw = 4; double amount = 5; float ratio = 6;
  bool ok = 7; Color color = 8; Inner inner = 9; repeated int32 numbers = 10; map<string, Inner> by_name = 11;
  uint32 small = 12; uint64 large = 13; fixed32 small_word = 14; fixed64 large_word = 15;
  google.protobuf.Timestamp at = 16; google.protobuf.Duration took = 17; google.protobuf.Any any = 18;
  google.protobuf.Int32Value wrapped = 19; google.protobuf.StringValue wrapped_text = 20;
  repeated google.protobuf.UInt64Value wrapped_many = 21; repeated google.protobuf.Timestamp times = 22;
  map<uint64, google.protobuf.BoolValue> wrapped_map = 23; sint32 zigzag = 24; sint64 long_zigzag = 25; int64 far = 26;
  repeated Color colors = 300; int32 last = 536870911;
}
message Json { int32 x = 1; google.protobuf.Struct anything = 2; }
message Timed { oneof o { google.protobuf.Timestamp at = 1; int32 n = 2; } }
message Outer { message Middle { message Inmost { int32 x = 1; } Inmost inmost = 1; } Middle middle = 1; }
"""
EDITION = """
edition = "2023"; package edition;
enum Open { O = 0; } enum Closed { option features.enum_type = CLOSED; C = 3; }
message Inner { int32 x = 1; repeated int32 n = 2; }
message Case {
  int32 explicit = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];
  int32 needed = 3 [features.field_presence = LEGACY_REQUIRED];
  repeated int32 loose = 4 [features.repeated_field_encoding = EXPANDED]; repeated int32 packed = 5;
  Inner delimited = 6 [features.message_encoding = DELIMITED]; Inner usual = 7;
  Open open = 8; Closed closed = 9; int32 ten = 10 [default = 10];
}
"""


@cache
def file(text: str) -> Any:
    return schema.read_set(schema.compile_text(text))


def message(text: str, name: str = "Case") -> Descriptor:
    return schema.message_by_name(file(text), name)


def encode(text: str, name: str = "Case", /, **fields: Any) -> bytes:
    made: bytes = message_factory.GetMessageClass(message(text, name))(**fields).SerializePartialToString()
    return made


def read(text: str, data: bytes, only: str = "", name: str = "Case", **options: Any) -> Any:
    """Return a value as a dictionary, of some of its fields, or the reason why it does not parse."""
    found = message(text, name)
    kind = options.pop("kind", spark_type(found))
    if only:
        kind = t.StructType([kind[each] for each in only.split()])
    array, problems = decode(found, [data], kind=kind, **options)
    return problems.get(0) or array[0].as_py()


def test_what_has_presence_is_null_where_it_is_absent() -> None:
    assert read(TWO, b"", "number color inner s i n") == dict.fromkeys(("number", "color", "inner", "s", "i", "n"))
    assert read(THREE, b"", "maybe inner at took any wrapped") == dict.fromkeys(
        ("maybe", "inner", "at", "took", "any", "wrapped")
    )


def test_what_has_no_presence_has_its_default() -> None:
    found = read(THREE, b"", "number text raw amount ratio ok color small")
    assert found == {
        "number": 0, "text": "", "raw": b"", "amount": 0.0, "ratio": 0.0, "ok": False, "color": "RED", "small": 0,
    }  # fmt: skip


def test_defaults_may_be_null_as_in_spark() -> None:
    assert read(THREE, b"", "number text color", emit_defaults=False) == {"number": None, "text": None, "color": None}
    assert read(THREE, encode(THREE, number=3), "number", emit_defaults=False) == {"number": 3}


def test_defaults_of_proto2() -> None:
    assert read(TWO, b"", "seven text raw far blue") == {
        "seven": 7, "text": "Grüße", "raw": b"\x01\xff", "far": float("-inf"), "blue": "BLUE",
    }  # fmt: skip


def test_defaults_within_messages_that_are_there() -> None:
    assert read(THREE, encode(THREE, inner={}), "inner") == {"inner": {"x": 0, "tags": []}}


def test_lists_and_maps_are_empty_where_they_are_absent() -> None:
    assert read(TWO, b"", "colors by_name inners") == {"colors": [], "by_name": [], "inners": []}


def test_the_last_one_wins() -> None:
    twice = encode(THREE, number=1, text="a") + encode(THREE, number=2, text="b")
    assert read(THREE, twice, "number text") == {"number": 2, "text": "b"}


def test_messages_are_merged() -> None:
    parts = (
        encode(TWO, inner={"x": 1, "tags": ["a"]}) + encode(TWO, inners=[{"x": 5}]) + encode(TWO, inner={"tags": "b"})
    )
    assert read(TWO, parts, "inner") == {"inner": {"x": 1, "tags": ["a", "b"], "deep": []}}


def test_messages_in_lists_are_not_merged() -> None:
    parts = encode(THREE, by_name={"k": {"x": 1, "tags": ["a"]}}) + encode(THREE, by_name={"k": {"tags": ["b"]}})
    assert read(THREE, parts, "by_name") == {"by_name": [("k", {"x": 0, "tags": ["b"]})]}


def test_the_last_of_a_oneof_wins_and_what_was_in_it_is_forgotten() -> None:
    first = encode(TWO, i={"x": 1, "tags": ["a"], "deep": [{"n": [1, 2]}, {"a": 3, "n": [4]}]})
    second = encode(TWO, i={"tags": ["b"], "deep": [{"b": "z"}]})
    assert read(TWO, first + encode(TWO, n=3), "s i n") == {"s": None, "i": None, "n": 3}
    kept = {"x": None, "tags": ["b"], "deep": [{"a": None, "b": "z", "n": []}]}
    assert read(TWO, first + encode(TWO, n=3) + second, "s i n") == {"s": None, "i": kept, "n": None}
    assert read(TWO, first + encode(TWO, n=3) + second, "i") == {"i": kept}


def test_a_oneof_in_a_list_forgets_nothing_of_other_elements() -> None:
    first = encode(TWO, i={"deep": [{"a": 1}, {"a": 2}]}) + encode(TWO, s="x")
    both = join([(1, 0, number(6)), (2, 2, b"b")])
    again = join([(16, 2, join([(3, 2, join([(1, 0, number(5))])), (3, 2, both)]))])
    found = read(TWO, first + again, "i")["i"]["deep"]
    assert found == [{"a": 5, "b": None, "n": []}, {"a": None, "b": "b", "n": []}]


def test_a_message_of_a_oneof_is_merged_while_it_is_set() -> None:
    parts = encode(TWO, i={"x": 1, "tags": ["a"]}) + encode(TWO, i={"tags": ["b"]})
    assert read(TWO, parts, "i")["i"] == {"x": 1, "tags": ["a", "b"], "deep": []}


def test_the_last_entry_of_a_key_wins() -> None:
    several = [(f"k{at}", {"x": at}) for at in range(40)]
    for some in (several[:3], several):
        data = encode(THREE, by_name=dict(some)) + encode(THREE, by_name={"k1": {"x": 99}})
        wanted = [(key, {"x": 99 if key == "k1" else value["x"], "tags": []}) for key, value in some]
        assert sorted(read(THREE, data, "by_name")["by_name"], key=lambda each: int(each[0][1:])) == wanted


def test_entries_without_key_or_value_have_defaults() -> None:
    data = join([(11, 2, b""), (23, 2, b"")])
    assert read(THREE, data, "by_name wrapped_map") == {
        "by_name": [("", {"x": 0, "tags": []})],
        "wrapped_map": [(0, False)],
    }


def test_lists_are_read_packed_or_not() -> None:
    loose = b"".join(join([(10, 0, number(each))]) for each in (1, -2))
    packed = join([(10, 2, number(3) + number(-4)), (10, 2, b"")])
    assert read(THREE, loose + encode(THREE, text="x") + packed, "numbers") == {"numbers": [1, -2, 3, -4]}
    data = join([(18, 2, number(1)), (19, 0, number(2))])
    assert read(TWO, data, "loose packed") == {"loose": [1], "packed": [2]}


def test_groups() -> None:
    data = encode(TWO, group=[{"x": 1, "tags": ["a"]}, {}])
    assert read(TWO, data, "group") == {"group": [{"x": 1, "tags": ["a"]}, {"x": None, "tags": []}]}


def test_unknown_fields_and_extensions_are_skipped() -> None:
    group = join([(999, 0, number(1)), (998, 3, join([(997, 2, b"x")]))])
    unknown = join(
        [(900, 0, number(2**64 - 1)), (901, 1, bytes(8)), (902, 2, b"abc"), (903, 3, group), (904, 5, bytes(4))]
    )
    assert read(TWO, unknown + encode(TWO, number=3) + join([(100, 0, number(1))]), "number") == {"number": 3}


def test_a_field_of_another_wire_type_is_unknown() -> None:
    assert read(THREE, join([(1, 5, bytes(4)), (3, 0, b"\1"), (9, 0, b"\1")]), "number text inner") == {
        "number": 0, "text": "", "inner": None,
    }  # fmt: skip


def test_large_numbers_of_fields() -> None:
    assert read(THREE, encode(THREE, last=5, colors=[1]), "last colors") == {"last": 5, "colors": ["BLUE"]}


def test_numbers_are_cut_to_their_type() -> None:
    data = join(
        [(1, 0, number(2**40 + 5)), (12, 0, number(2**32 + 1)), (7, 0, number(2**63)), (24, 0, number(2**33 + 1))]
    )
    assert read(THREE, data, "number small ok zigzag") == {"number": 5, "small": 1, "ok": True, "zigzag": -1}


def test_unsigned_numbers() -> None:
    some = {"small": 2**32 - 1, "large": 2**64 - 1, "small_word": 2**31, "large_word": 2**63}
    data, only = encode(THREE, **some), " ".join(some)
    assert read(THREE, data, only) == {"small": -1, "large": -1, "small_word": -(2**31), "large_word": -(2**63)}
    wide = spark_type(message(THREE), Choices(upcast_unsigned=True))
    assert read(THREE, data, only, kind=wide) == {
        "small": 2**32 - 1, "large": Decimal(2**64 - 1), "small_word": 2**31, "large_word": Decimal(2**63),
    }  # fmt: skip
    many = encode(THREE, wrapped_many=[{"value": 2**64 - 1}, {}])
    assert read(THREE, many, "wrapped_many", kind=wide) == {"wrapped_many": [Decimal(2**64 - 1), Decimal(0)]}


def test_open_enums_name_unknown_numbers_as_java_does() -> None:
    data = encode(THREE, color=-5, colors=[1, 7, -7, 7])
    unknown = ["UNKNOWN_ENUM_VALUE_Color_7", "UNKNOWN_ENUM_VALUE_Color_-7"]
    assert read(THREE, data, "color colors") == {"color": "MINUS", "colors": ["BLUE", *unknown, unknown[0]]}
    kind = spark_type(message(THREE), Choices(enums_as_ints=True))
    assert read(THREE, data, "color colors", kind=kind) == {"color": -5, "colors": [1, 7, -7, 7]}


def test_closed_enums_have_no_unknown_numbers() -> None:
    entry = join([(1, 2, b"k"), (2, 0, number(9))])
    data = join([(6, 0, number(9)), (8, 0, number(9)), (8, 2, number(1) + number(9)), (9, 2, entry)])
    assert read(TWO, data, "color colors by_name") == {"color": None, "colors": ["BLUE"], "by_name": []}
    assert read(TWO, encode(TWO, color=1) + data, "color") == {"color": "BLUE"}
    assert read(TWO, encode(TWO, by_name={"k": 1}), "by_name") == {"by_name": [("k", "BLUE")]}


def test_required_fields() -> None:
    missing = "needed.x: the field is required, and not there"
    assert read(TWO, encode(TWO, needed={"y": 1}), "needed") == missing
    parts = encode(TWO, needed={"y": 1}) + encode(TWO, needed={"x": 2})
    assert read(TWO, parts, "needed") == {"needed": {"x": 2, "y": 1}}
    some = encode(TWO, all=[{"x": 1}]) + join([(14, 2, b"")])
    assert read(TWO, some, "all") == "all.x: the field is required, and not there"
    assert read(TWO, b"", "needed") == {"needed": None}


def test_editions() -> None:
    assert read(EDITION, b"") == "needed: the field is required, and not there"
    data = encode(EDITION, needed=1, loose=[1, 2], packed=[3, 4], delimited={"x": 5}, usual={"n": [6]}, open=77)
    assert read(EDITION, data + join([(9, 0, number(4))])) == {
        "explicit": None, "implicit": 0, "needed": 1, "loose": [1, 2], "packed": [3, 4],
        "delimited": {"x": 5, "n": []}, "usual": {"x": None, "n": [6]}, "open": "UNKNOWN_ENUM_VALUE_Open_77",
        "closed": None, "ten": 10,
    }  # fmt: skip


def test_times() -> None:
    data = encode(
        THREE,
        at={"seconds": -1, "nanos": 999_999_999},
        took={"seconds": -3, "nanos": -1_500},
        times=[{"seconds": 1}, {}],
    )
    zone = datetime.UTC
    assert read(THREE, data, "at took times") == {
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, zone),
        "took": -3_000_001,
        "times": [datetime.datetime(1970, 1, 1, 0, 0, second, 0, zone) for second in (1, 0)],
    }
    parts = encode(THREE, took={"seconds": 1}) + encode(THREE, took={"nanos": 5_000})
    assert read(THREE, parts, "took") == {"took": 1_000_005}
    assert read(THREE, encode(THREE, at={"seconds": 2**60}), "at") == "at: the number is too large for its type"


def test_a_time_in_a_oneof_forgets_its_parts() -> None:
    first, last = (encode(THREE, "Timed", at={part: 1_000}) for part in ("seconds", "nanos"))
    found = read(THREE, first + encode(THREE, "Timed", n=1) + last, name="Timed")
    assert found == {"at": datetime.datetime(1970, 1, 1, 0, 0, 0, 1, datetime.UTC), "n": None}


def test_wrappers_are_merged() -> None:
    parts = encode(THREE, wrapped_text={"value": "a"}) + encode(THREE, wrapped_text={})
    assert read(THREE, parts, "wrapped_text") == {"wrapped_text": "a"}


def test_wrappers_are_what_they_wrap() -> None:
    data = encode(THREE, wrapped={}, wrapped_text={"value": "a"}, wrapped_map={3: {"value": True}})
    assert read(THREE, data, "wrapped wrapped_text wrapped_map") == {
        "wrapped": 0, "wrapped_text": "a", "wrapped_map": [(3, True)],
    }  # fmt: skip
    kind = spark_type(message(THREE), Choices(unwrap_wrappers=False))
    assert read(THREE, data, "wrapped wrapped_text", kind=kind) == {
        "wrapped": {"value": 0},
        "wrapped_text": {"value": "a"},
    }


def test_any_is_a_struct_as_in_spark() -> None:
    assert read(THREE, encode(THREE, any={"type_url": "u", "value": b"v"}), "any") == {
        "any": {"type_url": "u", "value": b"v"}
    }


TAG = "the tag of a field is not valid"
EARLY = "the value ends too early"


@each_case(
    ("data", "reason"),
    [
        (b"\x00\x01", TAG),
        (b"\x88\x80\x80\x80\x80\x00\x01", TAG),
        (b"\x08", "number: the value ends too early"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "number: a number has too many bytes"),
        (b"\x1a\x05ab", "text: the value ends too early"),
        (b"\x1a\x82\x80\x80\x80\x80\x00hi", "text: a length is not valid"),
        (b"\x1a\x02\xff\xfe", "text: the text is not UTF-8"),
        (b"\x2d\x01", EARLY),
        (b"\x29\x01", "amount: the value ends too early"),
        (b"\x4a\x03\x12\x01\xff", "inner.tags: the text is not UTF-8"),
        (b"\x4a\x02\x12\x05", "inner.tags: the value ends too early"),
        (b"\x52\x02\x01\x80", "numbers: packed elements end in the midst of one"),
        (b"\x5a\x03\x0a\x01\xff", "by_name.key: the text is not UTF-8"),
        (b"\x0c", "a group ends that did not begin"),
        (b"\x53\x5c", "a group ends that did not begin"),
        (b"\x53", "a group does not end"),
        (b"\x56", "a field has a wire type that does not exist"),
        (b"\x53" * 101 + b"\x54" * 101, "more than 100 messages are in each other"),
    ],
)
def test_bytes_that_do_not_parse(data: bytes, reason: str) -> None:
    assert read(THREE, data) == reason


def test_a_value_that_does_not_parse_leaves_nothing_behind() -> None:
    good = encode(TWO, inners=[{"tags": ["a"]}], by_name={"k": 1}, i={"deep": [{"n": [1]}]})
    array, problems = decode(message(TWO), [good + b"\x0c", good, good[:-1], b"", good])
    found = array.to_pylist()
    assert set(problems) == {0, 2}
    assert found[1] == found[4]
    assert set(found[0].values()) == set(found[2].values()) == {None}
    assert found[3]["inners"] == []


def test_null_is_null() -> None:
    found = message(THREE)
    decoder = ProtobufDecoder(found, spark_type(found))
    zeros = np.zeros(2, np.int64)
    array, problems = decoder.decode(np.zeros(1, np.uint8), zeros, zeros, np.array([-1, decoder.add(found)], np.int32))
    assert (array[0].as_py(), problems) == (None, {})
    assert array[1].as_py() is not None
    assert len(decoder.decode(np.zeros(1, np.uint8), zeros[:0], zeros[:0], np.zeros(0, np.int32))[0]) == 0


def test_fields_that_are_not_asked_for_are_not_read() -> None:
    data = encode(THREE, number=1, inner={"x": 2, "tags": ["a"]}, by_name={"k": {"x": 3, "tags": ["b"]}})
    kind = parse_schema("inner STRUCT<tags: ARRAY<STRING>>, by_name MAP<STRING, STRUCT<x: INT>>")
    assert read(THREE, data, kind=kind) == {"inner": {"tags": ["a"]}, "by_name": [("k", {"x": 3})]}
    assert read(TWO, encode(TWO, s="a") + encode(TWO, i={"x": 1}), "s") == {"s": None}


WRITERS = {
    "old": "int32 a = 1; string b = 2;",
    "wider": "int64 a = 1; bytes b = 2; repeated int32 c = 3;",
    "other": "string a = 1; string b = 2;",
    "zigzag": "sint32 a = 1;",
    "many": "repeated int32 a = 1; repeated string b = 2;",
    "new": "bool a = 1; int32 more = 9; In d = 4;",
    "grouped": "In d = 4 [features.message_encoding = DELIMITED];",
}


def writer(name: str) -> Descriptor:
    text = (
        'edition = "2023"; message In { int32 x = 1; } message W { int32 a = 1; string b = 2; int64 c = 3; In d = 4; }'
    )
    body = "".join(f"message {each} {{ {fields} }}" for each, fields in WRITERS.items())
    return message(text + body, name)


def test_a_batch_of_many_writers() -> None:
    reader = writer("W")
    made = {name: message_factory.GetMessageClass(writer(name)) for name in WRITERS}
    cases: list[tuple[str, Any, Any]] = [
        ("old", {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": None, "d": None}),
        ("wider", {"a": -2, "b": b"y"}, {"a": -2, "b": "y", "c": None, "d": None}),
        ("wider", {"a": 2**31}, "a: the number is too large for its type"),
        ("wider", {"c": [1]}, "c: the writer's repeated int32 cannot be read as the reader's int64"),
        ("other", {"a": "x"}, "a: the writer's string cannot be read as the reader's int32"),
        ("other", {"b": "x"}, {"a": None, "b": "x", "c": None, "d": None}),
        ("zigzag", {"a": 1}, "a: the writer's sint32 cannot be read as the reader's int32"),
        ("many", {"b": ["x", "y"]}, {"a": None, "b": "y", "c": None, "d": None}),
        ("new", {"a": True, "more": 5, "d": {"x": 3}}, {"a": 1, "b": None, "c": None, "d": {"x": 3}}),
        ("grouped", {"d": {"x": 3}}, {"a": None, "b": None, "c": None, "d": {"x": 3}}),
    ]
    values = [made[name](**fields).SerializeToString() for name, fields, _ in cases]
    array, problems = decode(reader, values, [writer(name) for name, _, _ in cases])
    assert [problems.get(at) or found for at, found in enumerate(array.to_pylist())] == [each[2] for each in cases]


def test_types_of_columns() -> None:
    assert spark_type(message(THREE)).simpleString() == (
        "struct<number:int,maybe:int,text:string,raw:binary,amount:double,ratio:float,ok:boolean,color:string,"
        "inner:struct<x:int,tags:array<string>>,numbers:array<int>,"
        "by_name:map<string,struct<x:int,tags:array<string>>>,small:int,large:bigint,small_word:int,"
        "large_word:bigint,at:timestamp,took:bigint,any:struct<type_url:string,value:binary>,wrapped:int,"
        "wrapped_text:string,wrapped_many:array<bigint>,times:array<timestamp>,wrapped_map:map<bigint,boolean>,"
        "zigzag:int,long_zigzag:bigint,far:bigint,colors:array<string>,last:int>"
    )


@each_case(
    ("text", "name", "depth", "column"),
    [
        (LIST, "Node", 1, "struct<v:int>"),
        (LIST, "Node", 2, "struct<v:int,next:struct<v:int>,all:array<struct<v:int>>,by:map<string,struct<v:int>>>"),
        (THREE, "Json", 1, "struct<x:int,anything:struct<fields:map<string,struct<null_value:string,"
         "number_value:double,string_value:string,bool_value:boolean>>>>"),
    ],
)  # fmt: skip
def test_messages_within_themselves_are_cut_at_a_depth(text: str, name: str, depth: int, column: str) -> None:
    """As ``recursive.fields.max.depth`` cuts them: compared with Avro in `tests/spark/test_recursive_schemas.py`."""
    assert spark_type(message(text, name), most_within=depth).simpleString() == column


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (TWO, "Tree", "branches: two.Tree contains itself, which no column can hold. Set recursiveFieldMaxDepth"),
        (TWO, "Grown", "trees.branches: two.Tree contains itself"),
        (THREE, "Json", "google.protobuf.Struct contains itself"),
        (TWO, "Hollow", "the message two.Hollow has no fields, which no column can hold"),
        (TWO, "Around", "the message two.Around has no fields"),
    ],
)
def test_messages_that_no_column_holds(text: str, name: str, reason: str) -> None:
    with pytest.raises(ProtobufSchemaError) as raised:
        spark_type(message(text, name))
    assert reason in str(raised.value)


@each_case(
    ("kind", "reason"),
    [
        ("nothing INT", "three.Case has no field nothing"),
        ("inner STRUCT<y: INT>", "inner has no field y"),
        ("text INT", "text: a column of int cannot hold string"),
        ("numbers INT", "numbers: a column of int cannot hold repeated int32"),
        ("by_name STRING", "by_name: a column of string cannot hold map<string, three.Inner>"),
        ("inner STRING", "inner: a column of string cannot hold three.Inner"),
        ("raw STRING", "raw: a column of string cannot hold bytes"),
    ],
)
def test_types_that_do_not_fit_the_message(kind: str, reason: str) -> None:
    with pytest.raises(ProtobufSchemaError, match=reason):
        read(THREE, b"", kind=parse_schema(kind))


def test_messages_by_name_and_path() -> None:
    three = file(THREE)
    assert schema.message_by_path(three, [1]).full_name == "three.Case"
    inmost = schema.message_by_path(three, [4, 0, 0])
    assert inmost.full_name == "three.Outer.Middle.Inmost"
    assert schema.path_of(inmost) == [4, 0, 0]
    assert schema.message_by_name(three, "three.Outer.Middle") is schema.message_by_path(three, [4, 0])
    for path in ([], [9], [0, 0], [-1]):
        with pytest.raises(ProtobufSchemaError):
            schema.message_by_path(three, path)
    with pytest.raises(ProtobufSchemaError, match=r"no message is called 'Nobody': there are three\.Case"):
        schema.message_by_name(three, "Nobody")


def test_texts_with_imports() -> None:
    main = 'syntax = "proto3"; import "a/other.proto"; message M { a.Other other = 1; }'
    other = 'syntax = "proto3"; package a; message Other { int32 x = 1; }'
    compiled = schema.compile_text(main, {"a/other.proto": other})
    assert (
        spark_type(schema.message_by_path(schema.read_set(compiled), [0])).simpleString()
        == "struct<other:struct<x:int>>"
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled).file
    parts = [each.SerializeToString() for each in files]
    assert schema.read_files(parts[-1], parts[:-1]).name == protobuf_text.MAIN
    with pytest.raises(ProtobufSchemaError, match=r"imports a/other.proto, which is not there"):
        schema.read_files(parts[-1])


@pytest.mark.parametrize(
    ("text", "imports", "reason"),
    [
        ('syntax = "proto3"; message M { nothing x = 1; }', {}, '"nothing" is not defined'),
        ('syntax = "proto3"; import "x.proto";', {}, "x.proto"),
        ('syntax = "proto3";', {}, "the schema has no message"),
        ("syntax", {"../x.proto": ""}, "cannot be imported by the name"),
    ],
)
def test_texts_that_are_no_schema(text: str, imports: dict[str, str], reason: str) -> None:
    with pytest.raises(ProtobufSchemaError) as raised:
        schema.read_set(schema.compile_text(text, imports))
    assert reason in str(raised.value)


def test_a_schema_goes_to_other_processes_as_bytes() -> None:
    again = schema.read_set(schema.descriptor_set(file(THREE)))
    assert spark_type(schema.message_by_name(again, "Case")) == spark_type(message(THREE))


def test_a_column_without_fields() -> None:
    array, problems = decode(message(THREE), [encode(THREE, number=1), b"\xff"], kind=t.StructType([]))
    assert (array.to_pylist(), list(problems)) == ([{}, {}], [1])


def test_a_set_of_several_files() -> None:
    """As protoc writes it for files that do not import each other; the message may be in any of them."""
    both = descriptor_pb2.FileDescriptorSet.FromString(schema.compile_text(TWO))
    both.file.extend(descriptor_pb2.FileDescriptorSet.FromString(schema.compile_text(EDITION)).file)
    both.file[-1].name = "edition.proto"
    found = schema.read_set(both.SerializeToString())
    assert schema.message_by_name(found, "two.Case").full_name == "two.Case"
    assert schema.message_by_name(found, "Case").full_name == "edition.Case"


def test_bytes_that_are_no_schema() -> None:
    for broken in (b"\xff", b""):
        with pytest.raises(ProtobufSchemaError):
            schema.read_set(broken)
        with pytest.raises(ProtobufSchemaError):
            schema.read_files(broken)


def test_fields_that_multiply_are_refused() -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    for level in range(40):
        message = file.message_type.add(name=f"M{level}")
        for at, name in ((1, "x"), (2, "y")):
            below: dict[str, Any] = (
                {"type": kinds.TYPE_INT32}
                if level == 39
                else {"type": kinds.TYPE_MESSAGE, "type_name": f".M{level + 1}"}
            )
            message.field.add(name=name, number=at, label=kinds.LABEL_OPTIONAL, **below)
    message = schema.message_by_path(schema.read_files(file.SerializeToString()), [0])
    with pytest.raises(ProtobufSchemaError, match=r"more than 10,000 fields"):
        spark_type(message)
