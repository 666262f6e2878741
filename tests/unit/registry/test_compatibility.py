"""Which schema may follow which: pairs of an old and a new one for each kind, in all seven modes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from sparkonce.connectors.schema_registry.protobuf_text import descriptor_set
from sparkonce.registry_lite.compatibility import MODES, format_of, incompatible
from tests.cases import each_case


@dataclass(frozen=True)
class Pair:
    name: str
    kind: str
    old: str
    new: str
    backward: bool
    """Whether the new one reads what the old one wrote."""
    forward: bool
    """Whether the old one reads what the new one writes."""


def record(*fields: Any, **more: Any) -> str:
    named = [
        {"name": name, "type": kind, **rest} for name, kind, rest in (each + ({},) * (3 - len(each)) for each in fields)
    ]
    return json.dumps({"type": "record", "name": "R", "fields": named, **more})


def enum(*symbols: str, **more: Any) -> str:
    return json.dumps({"type": "enum", "name": "E", "symbols": symbols, **more})


def obj(closed: bool = False, required: tuple[str, ...] = (), **properties: Any) -> str:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    made |= {"additionalProperties": False} if closed else {}
    return json.dumps(made | ({"required": list(required)} if required else {}))


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def js(**schema: Any) -> str:
    return json.dumps(schema)


def proto(body: str, head: str = "") -> str:
    return f'syntax = "proto3"; package p; {head} message M {{ {body} }}'


def proto2(body: str) -> str:
    return f'syntax = "proto2"; message M {{ {body} }}'


def editions(body: str) -> str:
    return f'edition = "2023"; message M {{ {body} }}'


DRAFT_2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"x": {"type": "string"}}}
INT, STR, A = {"type": "integer"}, {"type": "string"}, ("a", "int")
E_IN_X = {"type": "enum", "name": "E", "namespace": "x", "symbols": ["S"]}
SPACED = record(("a", {**E_IN_X, "namespace": ""}), ("b", {**E_IN_X}), ("c", "E"), name="x.R")
AVRO = [
    ("equal", record(A), record(A), True, True),
    *(
        (
            f"renamed in a namespace, alias {alias}{' beside a type of an outer one' if nested else ''}",
            *(
                js(type="record", name="Outer", fields=[{"name": "o", "type": each}]) if nested else js(**each)
                for each in (
                    {"type": "record", "name": "R", "namespace": "x", "fields": []},
                    {"type": "record", "name": "S", "namespace": "x", "fields": [], "aliases": [alias]},
                )
            ),
            backward,
            False,
        )
        for nested in (False, True)
        for alias, backward in (("R", True), ("x.R", True), ("y.R", False))
    ),  # as Java's SchemaCompatibility has it
    ("field added with a default", record(A), record(A, ("b", "int", {"default": 1})), True, True),
    ("field added without a default", record(A), record(A, ("b", "int")), False, True),
    ("field removed", record(A, ("b", "int")), record(A), True, False),
    ("field with a default removed", record(A, ("b", "int", {"default": 1})), record(A), True, True),
    ("field renamed", record(A), record(("b", "int")), False, False),
    ("field renamed with an alias", record(A), record(("b", "int", {"aliases": ["a"]})), True, False),
    ("int to long", '"int"', '"long"', True, False),
    ("long to double", '"long"', '"double"', True, False),
    ("double to float", '"double"', '"float"', False, True),
    ("string to bytes", '"string"', '"bytes"', True, True),
    ("int to string", '"int"', '"string"', False, False),
    ("made nullable", '"int"', '["null","int"]', True, False),
    ("a branch added", '["null","int"]', '["null","int","string"]', True, False),
    ("a symbol added", enum("A"), enum("A", "B"), True, False),
    ("a symbol added, with a default", enum("A", default="A"), enum("A", "B", default="A"), True, True),
    ("items promoted", '{"type":"array","items":"int"}', '{"type":"array","items":"long"}', True, False),
    ("values changed", '{"type":"map","values":"int"}', '{"type":"map","values":"string"}', False, False),
    ("size changed", '{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":3}', False, False),
    ("documentation changed", record(A), record(A, doc="text"), True, True),
    ("two types E, one of them without a namespace", SPACED, SPACED, True, True),
    ("in no namespace", record(("e", E_IN_X)), record(("e", {**E_IN_X, "namespace": ""})), True, True),
    ("one of a union", record(("e", E_IN_X)), record(("e", ["null", E_IN_X])), True, False),
    (
        "one of a union, and in no namespace",
        record(("e", E_IN_X)),
        record(("e", ["null", {**E_IN_X, "namespace": ""}])),
        False,
        False,
    ),
    ("a decimal of another scale", record(("d", decimal(6, 2))), record(("d", decimal(6, 3))), False, False),
    ("a decimal with more digits", record(("d", decimal(6, 2))), record(("d", decimal(8, 2))), True, False),
    (
        "milliseconds to microseconds",
        js(type="long", logicalType="timestamp-millis"),
        js(type="long", logicalType="timestamp-micros"),
        False,
        False,
    ),
    ("a number to a date", '"int"', js(type="int", logicalType="date"), True, True),
    (
        "a default behind a record, where Java does not find it",
        record(A),
        record(A, ("b", [json.loads(enum("X")), "null"], {"default": None})),
        False,
        True,
    ),
    ("a default behind null", record(A), record(A, ("b", ["null", "int"], {"default": 3})), True, True),
    (
        "an alias that takes the value of a field that is still there",
        record(A, ("b", "int", {"default": 1})),
        record(A, ("b", "int", {"default": 1, "aliases": ["a"]})),
        False,
        True,
    ),
]
JSON = [
    ("equal", obj(a=INT), obj(a=INT), True, True),
    ("property added, open", obj(a=INT), obj(a=INT, b=STR), False, True),
    ("property added that says nothing, open", obj(a=INT), obj(a=INT, b={}), True, True),
    ("property added, closed", obj(True, a=INT), obj(True, a=INT, b=STR), True, False),
    ("property removed, open", obj(a=INT, b=STR), obj(a=INT), True, False),
    ("property removed, closed", obj(True, a=INT, b=STR), obj(True, a=INT), False, True),
    ("opened", obj(True, a=INT), obj(a=INT), True, False),
    ("made required", obj(a=INT), obj(a=INT, required=("a",)), False, True),
    (
        "required with a default",
        obj(True, a=INT),
        obj(True, ("b",), a=INT, b={**INT, "default": 1}),
        False,
        False,
    ),
    ("integer to number", js(type="integer"), js(type="number"), True, False),
    ("integer to string", js(type="integer"), js(type="string"), False, False),
    ("types added", js(type="integer"), js(type=["integer", "null"]), True, False),
    ("anything", js(type="integer"), "true", True, False),
    ("nothing", "false", js(type="integer"), True, False),
    ("titles", js(type="integer", title="a"), js(type="integer", title="b", description="c"), True, True),
    ("enum extended", js(enum=["a"]), js(enum=["a", "b"]), True, False),
    ("longer", js(type="string", maxLength=3), js(type="string", maxLength=5), True, False),
    ("greater", js(type="number", minimum=3), js(type="number", minimum=1), True, False),
    ("limit added", js(type="number"), js(type="number", maximum=1), False, True),
    ("pattern added", js(type="string"), js(type="string", pattern="a"), False, True),
    (
        "items widened",
        js(type="array", items={"type": "integer"}),
        js(type="array", items={"type": "number"}),
        True,
        False,
    ),
    ("alternative added", js(oneOf=[INT]), js(oneOf=[INT, STR]), True, False),
    ("made one of several", js(type="integer"), js(anyOf=[INT, STR]), True, False),
    ("part removed", js(allOf=[INT, {"minimum": 3}]), js(allOf=[INT]), True, False),
    (
        "required beside equal parts",
        js(allOf=[obj_part := {"properties": {"a": INT}}]),
        js(allOf=[obj_part], required=["a"]),
        False,
        True,
    ),
    (
        "what a reference means changed",
        js(type="array", items={"$ref": "#/definitions/x"}, definitions={"x": INT}),
        js(type="array", items={"$ref": "#/definitions/x"}, definitions={"x": STR}),
        False,
        False,
    ),
    (
        "a recursive schema extended",
        js(type="object", properties={"next": {"$ref": "#"}}, additionalProperties=False),
        js(type="object", properties={"next": {"$ref": "#"}, "v": INT}, additionalProperties=False),
        True,
        False,
    ),
    (
        "condition added",
        js(type="object"),
        js(**{"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}),
        False,
        True,
    ),
    (
        "patterns",
        js(type="object", patternProperties={"^a": INT}, additionalProperties=False),
        js(type="object", patternProperties={"^a": {"type": "number"}}, additionalProperties=False),
        True,
        False,
    ),
    (
        "a pattern for a name that is listed",
        js(type="object", properties={"a": STR}, additionalProperties=False),
        js(type="object", properties={"a": STR}, patternProperties={"^a": INT}, additionalProperties=False),
        False,
        False,
    ),
    (
        "a pattern for the whole of a name with a slash",
        js(type="object", properties={"a/b": STR}, additionalProperties=False),
        js(type="object", patternProperties={"^b$": STR}, additionalProperties=False),
        False,
        False,
    ),
    (
        "a name that fits two patterns",
        js(type="object", properties={"ab": STR}, additionalProperties=False),
        js(type="object", patternProperties={"a": STR, "b": INT}, additionalProperties=False),
        False,
        False,
    ),
    (
        "a pattern that only JavaScript reads",
        js(type="object", properties={"a": STR}, additionalProperties=False),
        js(type="object", patternProperties={"(?<x>(?=a))": STR}, additionalProperties=False),
        False,
        False,
    ),
    (
        "what is beside a reference",
        js(**DRAFT_2020, **{"$ref": "#/$defs/x"}),
        js(**DRAFT_2020, **{"$ref": "#/$defs/x", "maxLength": 3}),
        False,
        True,
    ),
    (
        "a reference that is not known",
        js(type="array", items={"$ref": "#x"}, definitions={"x": {"$id": "#x", **INT}}),
        js(type="array", items={"$ref": "#y"}, definitions={"x": {"$id": "#y", **STR}}),
        False,
        False,
    ),
    ("pattern for names added", js(type="object"), js(type="object", patternProperties={"^a": INT}), False, True),
]
PROTO3_TEXT = 'syntax = "proto3"; message M { optional string a = 1; }'
PROTOBUF = [
    ("equal", proto("int32 a = 1;"), proto("int32 a = 1; /* text */"), True, True),
    ("field added", proto("int32 a = 1;"), proto("int32 a = 1; string b = 2;"), True, True),
    ("field renamed", proto("int32 a = 1;"), proto("int32 b = 1;"), True, True),
    ("a wider number that is written alike", proto("int32 a = 1;"), proto("int64 a = 1;"), True, False),
    ("numbers with and without a sign", proto("int32 a = 1;"), proto("uint64 a = 1;"), False, False),
    ("numbers that are written otherwise", proto("int32 a = 1;"), proto("sint32 a = 1;"), False, False),
    ("fixed widths", proto("fixed32 a = 1;"), proto("fixed64 a = 1;"), False, False),
    ("string to bytes", proto("string a = 1;"), proto("bytes a = 1;"), True, False),
    ("string to int32", proto("string a = 1;"), proto("int32 a = 1;"), False, False),
    ("repeated string", proto("string a = 1;"), proto("repeated string a = 1;"), True, False),
    ("repeated number", proto("int32 a = 1;"), proto("repeated int32 a = 1;"), False, False),
    ("package changed", proto("int32 a = 1;"), proto("int32 a = 1;").replace("package p", "package q"), False, False),
    ("message added", proto(""), proto("", "message N {}"), True, False),
    ("message moved", proto("", "message N {}"), proto("") + " message N {}", True, True),
    ("nested message removed", proto("message N {}"), proto(""), False, True),
    (
        "nested message changed",
        proto("message N { int32 a = 1; } N n = 1;"),
        proto("message N { string a = 1; } N n = 1;"),
        False,
        False,
    ),
    (
        "type of a field renamed",
        proto("N n = 1;", "message N {} message O {}"),
        proto("O n = 1;", "message N {} message O {}"),
        False,
        False,
    ),
    ("scalar to message", proto("int32 n = 1; message N {}"), proto("N n = 1; message N {}"), False, False),
    ("int32 to enum", proto("int32 e = 1;", "enum E { X = 0; }"), proto("E e = 1;", "enum E { X = 0; }"), True, True),
    ("enum constant added", proto("", "enum E { X = 0; }"), proto("", "enum E { X = 0; Y = 1; }"), True, True),
    ("optional", proto("int32 a = 1;"), proto("optional int32 a = 1;"), True, True),
    ("values of a map", proto("map<string, int32> m = 1;"), proto("map<string, string> m = 1;"), False, False),
    ("map renamed", proto("map<string, int32> m = 1;"), proto("map<string, int64> n = 1;"), True, False),
    ("map to message", proto("map<string, int32> m = 1;"), proto("repeated N m = 1;", "message N {}"), False, False),
    ("one field into a new oneof", proto("int32 a = 1;"), proto("oneof o { int32 a = 1; int32 b = 2; }"), True, False),
    (
        "several fields into a oneof",
        proto("int32 a = 1; int32 b = 2;"),
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        False,
        True,
    ),
    (
        "field of a oneof removed",
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        proto("oneof o { int32 a = 1; }"),
        False,
        True,
    ),
    (
        "a field into a oneof that was there",
        proto("int32 b = 2; oneof o { int32 a = 1; }"),
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        False,
        True,
    ),
    (
        "a field moved to another oneof",
        proto("oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; int32 d = 4; }"),
        proto("oneof o { int32 a = 1; } oneof p { int32 b = 2; int32 c = 3; int32 d = 4; }"),
        False,
        False,
    ),
    (
        "two oneofs merged",
        proto("oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; int32 d = 4; }"),
        proto("oneof q { int32 a = 1; int32 b = 2; int32 c = 3; int32 d = 4; }"),
        False,
        True,
    ),
    (
        "a oneof renamed, and a field of it removed",
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        proto("oneof p { int32 a = 1; }"),
        False,
        True,
    ),
    (
        "a oneof renamed",
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        proto("oneof p { int32 a = 1; int32 b = 2; }"),
        True,
        True,
    ),
    (
        "a whole oneof removed",
        proto("int32 c = 3; oneof o { int32 a = 1; int32 b = 2; }"),
        proto("int32 c = 3;"),
        True,
        True,
    ),
    (
        "a constant removed from a closed enum",
        proto2("enum E { X = 0; Y = 1; } optional E e = 1;"),
        proto2("enum E { X = 0; } optional E e = 1;"),
        False,
        True,
    ),
    (
        "a default where zeros are not written",
        proto("int32 a = 1;"),
        proto2("optional int32 a = 1 [default = 7];").replace(";", "; package p;", 1),
        False,
        True,
    ),
    (
        "a message between a length and an end",
        editions("M m = 1;"),
        editions("M m = 1 [features.message_encoding = DELIMITED];"),
        False,
        False,
    ),
    (
        "a text that has to be UTF-8",
        editions("string a = 1 [features.utf8_validation = NONE];"),
        editions("string a = 1;"),
        False,
        True,
    ),
    (
        "a text in a map that has to be UTF-8",
        editions("map<int32, string> a = 1 [features.utf8_validation = NONE];"),
        editions("map<int32, string> a = 1;"),
        False,
        True,
    ),
    (
        "a text that need not be UTF-8, as bytes",
        editions("string a = 1 [features.utf8_validation = NONE];"),
        editions("bytes a = 1;"),
        True,
        False,
    ),
    ("a text of proto2, which has to be UTF-8", proto2("optional string a = 1;"), PROTO3_TEXT, True, True),
    (
        "an extension of another type",
        proto2("extensions 9; } extend M { optional int32 x = 9;"),
        proto2("extensions 9; } extend M { optional string x = 9;"),
        False,
        False,
    ),
    ("required field added", proto2(""), proto2("required int32 a = 1;"), False, False),
    ("made required", proto2("optional int32 a = 1;"), proto2("required int32 a = 1;"), False, True),
    (
        "recursive",
        proto("M m = 1; int32 a = 2;"),
        proto("M m = 1; sint32 a = 2;"),
        False,
        False,
    ),
]
ROWS: list[tuple[str, Any]] = [("AVRO", AVRO), ("JSON", JSON), ("PROTOBUF", PROTOBUF)]
PAIRS = [Pair(each[0], kind, *each[1:]) for kind, rows in ROWS for each in rows]


@each_case("pair", PAIRS, ids=lambda pair: f"{pair.kind}: {pair.name}")
def test_each_pair_in_all_modes(pair: Pair) -> None:
    expected = {
        mode: (pair.backward or mode.startswith(("NONE", "FORWARD")))
        and (pair.forward or mode.startswith(("NONE", "BACKWARD")))
        for mode in MODES
    }
    found = {mode: incompatible(pair.kind, mode, (pair.new, ()), [(pair.old, ())]) for mode in MODES}
    assert {mode: not problems for mode, problems in found.items()} == expected, found


@pytest.mark.parametrize(
    ("kind", "first", "second", "third"),
    [
        ("AVRO", record(A), record(A, ("b", "int", {"default": 1})), record(A, ("b", "string"))),
        ("JSON", js(type="integer"), js(type=["integer", "null"]), js(type="null")),
        ("PROTOBUF", proto("string a = 1;"), proto(""), proto("int32 a = 1;")),
    ],
)
def test_transitive_modes_look_at_all_versions(kind: str, first: str, second: str, third: str) -> None:
    """The third may follow the second at most, never the first."""
    before = [(first, ()), (second, ())]
    last = {mode: not incompatible(kind, mode, (third, ()), before[1:]) for mode in MODES}
    every = {mode: not incompatible(kind, mode, (third, ()), before) for mode in MODES}
    assert {mode: every[mode] for mode in MODES if not mode.endswith("_TRANSITIVE")} == {
        mode: last[mode] for mode in MODES if not mode.endswith("_TRANSITIVE")
    }
    assert not any(every[mode] for mode in MODES if mode.endswith("_TRANSITIVE"))


def test_schemas_that_are_nested_too_deeply() -> None:
    deep = '{"items":' * 400 + "{}" + "}" * 400
    other = deep.replace("{}", '{"type":"string"}')
    assert incompatible("JSON", "BACKWARD", (other, ()), [(deep, ())])


def test_alternatives_of_alternatives_do_not_take_forever() -> None:
    def nested(leaf: str) -> str:
        parts: dict[str, Any] = {"p0": {"type": leaf}}
        for at in range(1, 40):
            below = {"$ref": f"#/definitions/p{at - 1}"}
            parts[f"p{at}"] = {"anyOf": [obj_of(x=below), obj_of(x=below, y=below)]}
        return js(**{"$ref": "#/definitions/p39", "definitions": parts})

    def obj_of(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    (found,) = incompatible("JSON", "BACKWARD", (nested("integer"), ()), [(nested("string"), ())])
    assert "too complex" in found


def test_a_pattern_does_not_take_forever() -> None:
    properties: dict[str, Any] = {"a" * 50 + "!": STR}
    old = obj(closed=True, **properties)
    new = js(type="object", patternProperties={"^(a+)+$": INT}, additionalProperties=False)
    assert incompatible("JSON", "BACKWARD", (new, ()), [(old, ())])


@pytest.mark.parametrize("pattern", [r"^\\p{L}+$", r"^[\\w-\\.]+$", "^(a+)+$", "(?=a)"])
def test_the_patterns_of_javascript(pattern: str) -> None:
    text = f'{{"type":"string","pattern":"{pattern}"}}'
    assert format_of("JSON").check(text, ()) == text


def test_types_of_other_files() -> None:
    def file(kind: str) -> tuple[str, str]:
        return "a.proto", f'syntax = "proto3"; message A {{ {kind} a = 1; }}'

    text = 'syntax = "proto3"; import "a.proto"; message M { A a = 1; }'
    (found,) = incompatible("PROTOBUF", "BACKWARD", (text, [file("string")]), [(text, [file("int32")])])
    assert found == "FIELD_SCALAR_KIND_CHANGED at #/A/1"


def test_differences_are_named() -> None:
    (found,) = incompatible("AVRO", "BACKWARD", (record(A, ("b", "int")), ()), [(record(A), ())])
    assert "reader_field_missing_default_value" in found
    (found,) = incompatible("JSON", "BACKWARD", (obj(a=STR), ()), [(obj(a=INT), ())])
    assert found == "TYPE_CHANGED at #/properties/a"


def test_what_googles_parser_says_of_texts_that_are_not_utf_8() -> None:
    """An edition's reader that verifies them takes none; proto2 to proto3 is accepted since its texts are UTF-8."""
    parsed = {}
    for name, text in {
        "unverified": editions("string a = 1 [features.utf8_validation = NONE];"),
        "verified": editions("string a = 1;"),
        "proto2": proto2("optional string a = 1;"),
        "proto3": PROTO3_TEXT,
    }.items():
        pool = DescriptorPool()
        for file in descriptor_set(text, ()).file:
            pool.AddSerializedFile(file.SerializeToString())
        try:
            GetMessageClass(pool.FindMessageTypeByName("M")).FromString(b"\n\1\xff")
            parsed[name] = True
        except DecodeError:
            parsed[name] = False
    assert parsed == {"unverified": True, "verified": False, "proto2": True, "proto3": False}
