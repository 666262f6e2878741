"""The REST API, request by request: answers, codes and texts as Confluent's documentation has them."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from sparkonce.registry_lite.state import State
from tests.unit.registry.rest import MemoryRegistry

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":1}]}'
NARROW = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
SPACES = (
    '{"type":"record","name":"x.R","fields":[{"name":"a","type":{"type":"enum","name":"E","namespace":"","symbols":["S"]}},'
    '{"name":"b","type":{"type":"enum","name":"E","symbols":["T"]}}]}'
)
NORMAL_SPACES = (
    '{"name":"x.R","type":"record","fields":[{"name":"a","type":{"name":"E","namespace":"","type":"enum","symbols":["S"]}},'
    '{"name":"b","type":{"name":"x.E","type":"enum","symbols":["T"]}}]}'
)
PROTO = 'syntax = "proto3"; message M { int32 a = 1; }'
Script = list[tuple[str, Any, int, Any]]
"""(request, body, status, what the answer has: a code of an error, or a part of the document)"""


def fits(found: Any, expected: Any) -> bool:
    """Return whether an answer has all that is expected: of an object, the names that are listed."""
    if isinstance(found, dict) and isinstance(expected, int):
        return found.get("error_code") == expected
    if isinstance(found, dict) and isinstance(expected, dict):
        return all(name in found and fits(found[name], each) for name, each in expected.items())
    return bool(found == expected)


def schema(text: str, kind: str | None = None, **more: Any) -> dict[str, Any]:
    return {"schema": text, **({} if kind is None else {"schemaType": kind}), **more}


REFERENCE = [{"name": "R", "subject": "r", "version": 1}]
FIRST = ("POST /subjects/s/versions", schema(RECORD), 200, {"id": 1, "version": 1})

SCRIPTS: dict[str, Script] = {
    "nothing is there": [
        ("GET /subjects", None, 200, []),
        ("GET /subjects/s/versions", None, 404, 40401),
        ("GET /subjects/s/versions/1", None, 404, 40401),
        ("GET /subjects/s/versions/latest", None, 404, 40401),
        ("GET /subjects/s/versions/0", None, 422, 42202),
        ("GET /subjects/s/versions/x", None, 422, 42202),
        ("GET /subjects/s/versions/99999999999", None, 422, 42202),
        ("GET /schemas/ids/1", None, 404, 40403),
        ("GET /schemas/guids/00000000-0000-0000-0000-000000000000", None, 404, 40403),
        ("POST /subjects/s", schema(RECORD), 404, 40401),
        ("DELETE /subjects/s", None, 404, 40401),
        ("POST /compatibility/subjects/s/versions/latest", schema(RECORD), 200, {"is_compatible": True}),
        ("POST /compatibility/subjects/s/versions/1", schema(RECORD), 404, 40402),
        ("POST /compatibility/subjects/s/versions", schema(RECORD), 200, {"is_compatible": True}),
        ("GET /schemas/types", None, 200, ["AVRO", "JSON", "PROTOBUF"]),
        ("GET /contexts", None, 200, ["."]),
        ("GET /config", None, 200, {"compatibilityLevel": "BACKWARD"}),
        ("GET /mode", None, 200, {"mode": "READWRITE"}),
        ("GET /nowhere", None, 404, 404),
        ("PATCH /subjects", None, 405, 405),
    ],
    "registering, reading": [
        FIRST,
        FIRST,
        ("POST /subjects/s/versions", schema(WIDER), 200, {"id": 2, "version": 2}),
        ("POST /subjects/t/versions", schema(WIDER), 200, {"id": 2, "version": 1}),
        ("GET /subjects", None, 200, ["s", "t"]),
        ("GET /subjects?limit=1&offset=1", None, 200, ["t"]),
        ("GET /subjects?limit=x", None, 422, 422),
        ("GET /subjects/s/versions", None, 200, [1, 2]),
        ("GET /subjects/s/versions/1", None, 200, {"subject": "s", "version": 1, "id": 1, "schema": RECORD}),
        ("GET /subjects/s/versions/latest", None, 200, {"version": 2, "id": 2}),
        ("GET /subjects/s/versions/-1", None, 200, {"version": 2}),
        ("GET /subjects/s/versions/3", None, 404, 40402),
        ("GET /subjects/s/versions/1/schema", None, 200, json.loads(RECORD)),
        ("GET /schemas/ids/1", None, 200, {"schema": RECORD}),
        ("GET /schemas/ids/1?fetchMaxId=true", None, 200, {"maxId": 2}),
        ("GET /schemas/ids/1/schema", None, 200, json.loads(RECORD)),
        ("GET /schemas/ids/2/subjects", None, 200, ["s", "t"]),
        ("GET /schemas/ids/2/versions", None, 200, [{"subject": "s", "version": 2}, {"subject": "t", "version": 1}]),
        ("GET /schemas/ids/9/subjects", None, 404, 40403),
        ("POST /subjects/s", schema(RECORD), 200, {"subject": "s", "version": 1, "id": 1}),
        ("POST /subjects/s", schema('"int"'), 404, 40403),
        ("POST /subjects/t", schema(RECORD), 404, 40403),
    ],
    "schemas that are none": [
        ("POST /subjects/s/versions", schema(""), 422, 42201),
        ("POST /subjects/s/versions", {}, 422, 42201),
        ("POST /subjects/s/versions", schema('{"type":"recor"}'), 422, 42201),
        ("POST /subjects/s/versions", schema(RECORD.replace('"int"', '"int","default":"x"')), 422, 42201),
        ("POST /subjects/s/versions", schema(RECORD.replace('"R"', '"int"')), 422, 42201),
        ("POST /subjects/s/versions", schema("{", "JSON"), 422, 42201),
        ("POST /subjects/s/versions", schema('{"type":"strin"}', "JSON"), 422, 42201),
        ("POST /subjects/s/versions", schema('{"pattern":"("}', "JSON"), 422, 42201),
        ("POST /subjects/s/versions", schema('{"const":NaN}', "JSON"), 422, 42201),
        ("POST /subjects/s/versions", schema("[" * 100_000, "JSON"), 422, 42201),
        ("POST /subjects/s/versions", schema("[" * 100_000), 422, 42201),
        ("POST /subjects/s/versions", schema("message {", "PROTOBUF"), 422, 42201),
        ("POST /subjects/s/versions", schema("x", "THRIFT"), 422, 42201),
        ("POST /subjects/s/versions", schema(RECORD, references=REFERENCE), 422, 42201),
        ("POST /subjects/s/versions", schema(RECORD, references=[{"name": "R"}]), 422, 42201),
        ("POST /subjects/s/versions", schema(RECORD, id="1"), 422, 42201),
        ("POST /subjects/%20/versions", schema(RECORD), 422, 42208),
        ("POST /subjects/a%0Ab/versions", schema(RECORD), 422, 42208),
        ("POST /subjects/s/versions", schema(RECORD, version=7), 422, 42201),
        ("GET /subjects", None, 200, []),
    ],
    "incompatible": [
        FIRST,
        ("POST /subjects/s/versions", schema(NARROW), 409, 409),
        ("POST /compatibility/subjects/s/versions/latest", schema(NARROW), 200, {"is_compatible": False}),
        ("POST /compatibility/subjects/s/versions/1", schema(WIDER), 200, {"is_compatible": True}),
        ("POST /compatibility/subjects/s/versions/2", schema(WIDER), 404, 40402),
        ("POST /compatibility/subjects/s/versions?verbose=true", schema(WIDER), 200, {"messages": []}),
        ("POST /subjects/s/versions", schema(PROTO, "PROTOBUF"), 409, 409),
        ("PUT /config/s", {"compatibility": "NONE"}, 200, {"compatibility": "NONE"}),
        ("POST /subjects/s/versions", schema(NARROW), 200, {"version": 2}),
    ],
    "compatibility levels": [
        ("GET /config/s", None, 404, 40408),
        ("GET /config/s?defaultToGlobal=true", None, 200, {"compatibilityLevel": "BACKWARD"}),
        ("PUT /config", {"compatibility": "full"}, 200, {"compatibility": "full"}),
        ("GET /config", None, 200, {"compatibilityLevel": "FULL"}),
        ("PUT /config/s", {"compatibility": "SOME"}, 422, 42203),
        ("PUT /config/s", {"compatibility": "FORWARD"}, 200, {"compatibility": "FORWARD"}),
        ("GET /config/s", None, 200, {"compatibilityLevel": "FORWARD"}),
        ("DELETE /config/s", None, 200, {"compatibilityLevel": "FORWARD"}),
        ("DELETE /config/s", None, 404, 40401),
        ("GET /config/s?defaultToGlobal=true", None, 200, {"compatibilityLevel": "FULL"}),
        ("DELETE /config", None, 200, {"compatibilityLevel": "FULL"}),
        ("GET /config", None, 200, {"compatibilityLevel": "BACKWARD"}),
    ],
    "modes": [
        FIRST,
        ("GET /mode/s", None, 404, 40409),
        ("PUT /mode/s", {"mode": "SOME"}, 422, 42204),
        ("PUT /mode/s", {"mode": "READONLY"}, 200, {"mode": "READONLY"}),
        ("POST /subjects/s/versions", schema(WIDER), 422, 42205),
        FIRST,
        ("DELETE /subjects/s", None, 422, 42205),
        ("POST /subjects/t/versions", schema(WIDER), 200, {"id": 2}),
        ("DELETE /mode/s", None, 200, {"mode": "READONLY"}),
        ("DELETE /mode/s", None, 404, 40401),
        ("PUT /mode/s", {"mode": "READWRITE"}, 200, {"mode": "READWRITE"}),
        ("PUT /mode", {"mode": "READONLY_OVERRIDE"}, 200, {"mode": "READONLY_OVERRIDE"}),
        ("POST /subjects/s/versions", schema(WIDER), 422, 42205),
        ("GET /mode/s?defaultToGlobal=true", None, 200, {"mode": "READONLY_OVERRIDE"}),
        ("DELETE /mode", None, 200, {"mode": "READONLY_OVERRIDE"}),
        ("POST /subjects/s/versions", schema(WIDER), 200, {"id": 2, "version": 2}),
    ],
    "import": [
        FIRST,
        ("POST /subjects/t/versions", schema(WIDER, id=40), 422, 42205),
        ("PUT /mode", {"mode": "IMPORT"}, 422, 42205),
        ("PUT /mode?force=true", {"mode": "IMPORT"}, 200, {"mode": "IMPORT"}),
        ("POST /subjects/t/versions", schema(WIDER), 422, 42205),
        ("POST /subjects/t/versions", schema(WIDER, id=1), 422, 42205),
        ("POST /subjects/t/versions", schema(WIDER, id=40, version=7), 200, {"id": 40, "version": 7}),
        ("POST /subjects/t/versions", schema(NARROW, id=41, version=7), 422, 42205),
        ("POST /subjects/t/versions", schema(NARROW, id=41), 200, {"id": 41, "version": 8}),
        ("PUT /mode", {"mode": "READWRITE"}, 200, {"mode": "READWRITE"}),
        ("POST /subjects/u/versions", schema('"int"'), 200, {"id": 42, "version": 1}),
    ],
    "deleting": [
        FIRST,
        ("POST /subjects/s/versions", schema(WIDER), 200, {"version": 2}),
        ("DELETE /subjects/s/versions/2?permanent=true", None, 404, 40407),
        ("DELETE /subjects/s?permanent=true", None, 404, 40405),
        ("DELETE /subjects/s/versions/latest", None, 200, 2),
        ("DELETE /subjects/s/versions/2", None, 404, 40406),
        ("DELETE /subjects/s/versions/3", None, 404, 40402),
        ("GET /subjects/s/versions", None, 200, [1]),
        ("GET /subjects/s/versions?deleted=true", None, 200, [1, 2]),
        ("GET /subjects/s/versions?deletedOnly=true", None, 200, [2]),
        ("GET /subjects/s/versions/2", None, 404, 40402),
        ("GET /subjects/s/versions/2?deleted=true", None, 200, {"id": 2}),
        ("GET /schemas/ids/2", None, 200, {"schema": WIDER}),
        ("GET /schemas/ids/2/subjects", None, 200, []),
        ("GET /schemas/ids/2/subjects?deleted=true", None, 200, ["s"]),
        ("POST /subjects/s", schema(WIDER), 404, 40403),
        ("POST /subjects/s?deleted=true", schema(WIDER), 200, {"version": 2}),
        ("POST /subjects/s/versions", schema(WIDER), 200, {"id": 2, "version": 3}),
        ("DELETE /subjects/s", None, 200, [1, 3]),
        ("DELETE /subjects/s", None, 404, 40404),
        ("GET /subjects", None, 200, []),
        ("GET /subjects?deleted=true", None, 200, ["s"]),
        ("GET /subjects?deletedOnly=true", None, 200, ["s"]),
        ("DELETE /subjects/s/versions/2?permanent=true", None, 200, 2),
        ("DELETE /subjects/s?permanent=true", None, 200, [1, 3]),
        ("GET /subjects?deleted=true", None, 200, []),
        ("GET /schemas/ids/2", None, 404, 40403),
        ("POST /subjects/s/versions", schema(WIDER), 200, {"id": 3, "version": 1}),
    ],
    "settings end with their subject": [
        FIRST,
        ("PUT /config/s", {"compatibility": "NONE"}, 200, {}),
        ("PUT /mode/s", {"mode": "READWRITE"}, 200, {}),
        ("DELETE /subjects/s", None, 200, [1]),
        ("GET /config/s", None, 404, 40408),
        ("GET /mode/s", None, 404, 40409),
    ],
    "references": [
        ("POST /subjects/r/versions", schema(RECORD), 200, {"id": 1}),
        (
            "POST /subjects/s/versions",
            schema('{"type":"array","items":"R"}', references=[{**REFERENCE[0], "version": -1}]),
            200,
            {"id": 2, "references": REFERENCE},
        ),
        ("POST /subjects/s/versions", schema('{"type":"array","items":"R"}'), 422, 42201),
        ("GET /subjects/r/versions/1/referencedby", None, 200, [2]),
        ("GET /subjects/s/versions/1/referencedby", None, 200, []),
        ("GET /subjects/s/versions/2/referencedby", None, 404, 40402),
        ("DELETE /subjects/r/versions/1", None, 422, 42206),
        ("DELETE /subjects/r", None, 422, 42206),
        ("DELETE /subjects/s", None, 200, [1]),
        ("DELETE /subjects/r", None, 200, [1]),
    ],
    "the last id": [
        ("PUT /mode", {"mode": "IMPORT"}, 200, {}),
        ("POST /subjects/s/versions", schema('"int"', id=2**31 - 1), 200, {"id": 2**31 - 1}),
        ("PUT /mode?force=true", {"mode": "READWRITE"}, 200, {}),
        ("POST /subjects/t/versions", schema('"long"'), 422, 42205),
        ("POST /subjects/t/versions", schema('"int"'), 200, {"id": 2**31 - 1}),
        ("POST /subjects/:.c:t/versions", schema('"long"'), 200, {"id": 1}),
    ],
    "a context in an address, in each of its forms": [
        ("POST /subjects/s/versions", schema('"string"'), 200, {"id": 1}),
        ("POST /contexts/.c/subjects/t/versions", schema('"int"'), 200, {"id": 1, "subject": ":.c:t"}),
        *(
            step
            for name in (".c", "c", ":.c:", "%3A.c%3A")
            for step in (
                (f"GET /contexts/{name}/schemas/ids/1", None, 200, {"schema": '"int"'}),
                (f"GET /contexts/{name}/subjects/t/versions/1", None, 200, {"schema": '"int"'}),
                (f"GET /contexts/{name}/subjects", None, 200, [":.c:t"]),
                (f"GET /contexts/{name}/subjects?subjectPrefix=", None, 200, [":.c:t"]),
                (f"GET /contexts/{name}/subjects?subjectPrefix=s", None, 200, []),
                (f"GET /contexts/{name}/schemas?subjectPrefix=s", None, 200, []),
                (f"POST /contexts/{name}/subjects/s", schema('"string"'), 404, 40401),
            )
        ),
        *((f"GET /contexts/{name}/subjects", None, 200, ["s"]) for name in (".", ":.:")),
        ("GET /contexts/.c/subjects?subjectPrefix=:*:", None, 200, [":.c:t", "s"]),
        ("GET /contexts/.c:x/subjects", None, 400, 400),
    ],
    "contexts": [
        FIRST,
        ("POST /subjects/:.c:r/versions", schema(WIDER), 200, {"id": 1, "subject": ":.c:r"}),
        ("POST /contexts/.c/subjects/t/versions", schema(RECORD), 200, {"id": 2, "subject": ":.c:t"}),
        ("POST /subjects/:.:s/versions", schema(RECORD), 200, {"id": 1, "subject": "s"}),
        ("GET /contexts", None, 200, [".", ".c"]),
        ("GET /subjects", None, 200, [":.c:r", ":.c:t", "s"]),
        ("GET /subjects?subjectPrefix=", None, 200, ["s"]),
        ("GET /subjects?subjectPrefix=:.c:", None, 200, [":.c:r", ":.c:t"]),
        ("GET /subjects?subjectPrefix=:*:", None, 200, [":.c:r", ":.c:t", "s"]),
        ("GET /contexts/.c/subjects", None, 200, [":.c:r", ":.c:t"]),
        ("GET /schemas/ids/1", None, 200, {"schema": RECORD}),
        ("GET /schemas/ids/1?subject=:.c:", None, 200, {"schema": WIDER}),
        ("GET /contexts/.c/schemas/ids/1", None, 200, {"schema": WIDER}),
        ("GET /contexts/.c/schemas/ids/1/versions", None, 200, [{"subject": ":.c:r", "version": 1}]),
        (
            "POST /contexts/.c/subjects/l/versions",
            schema('{"type":"array","items":"R"}', references=REFERENCE),
            200,
            {"id": 3},
        ),
        ("GET /contexts/.c/subjects/r/versions/1/referencedby", None, 200, [3]),
        ("PUT /config/:.c:", {"compatibility": "NONE"}, 200, {}),
        ("GET /config/:.c:t?defaultToGlobal=true", None, 200, {"compatibilityLevel": "NONE"}),
        ("GET /contexts/.c/config", None, 200, {"compatibilityLevel": "NONE"}),
        ("GET /config", None, 200, {"compatibilityLevel": "BACKWARD"}),
        ("PUT /contexts/.c/mode", {"mode": "READONLY"}, 200, {}),
        ("POST /subjects/:.c:r/versions", schema(NARROW), 422, 42205),
        ("POST /subjects/s/versions", schema(WIDER), 200, {"id": 2}),
    ],
    "names with slashes and others": [
        ("POST /subjects/folder%2Fa%20b%25%C3%A4/versions", schema(RECORD), 200, {"id": 1}),
        ("GET /subjects", None, 200, ["folder/a b%ä"]),
        ("GET /subjects/folder%2fa%20b%25%C3%A4/versions/1", None, 200, {"subject": "folder/a b%ä"}),
        ("GET /subjects/folder/a/versions/1", None, 404, 404),
    ],
    "equal schemas, written in other ways": [
        ("POST /subjects/s/versions", schema('{ "type": "string" }'), 200, {"id": 1, "schema": '{"type":"string"}'}),
        ("POST /subjects/s/versions", schema('{"type":\n"string"}'), 200, {"id": 1}),
        ("POST /subjects/s/versions?normalize=true", schema('{"type":"string"}'), 200, {"id": 2, "schema": '"string"'}),
        ("POST /subjects/s", schema('"string"'), 200, {"version": 2}),
        ("POST /subjects/j/versions", schema('{"type":"object","title":"x"}', "JSON"), 200, {"id": 3}),
        ("POST /subjects/j/versions", schema('{"title":"x","type":"object"}', "JSON"), 200, {"id": 3}),
        ("POST /subjects/p/versions", schema(PROTO, "PROTOBUF"), 200, {"id": 4, "schema": PROTO}),
        ("POST /subjects/p/versions", schema(f"// comment\n{PROTO}", "PROTOBUF"), 200, {"id": 4}),
        ("PUT /config/n", {"normalize": True}, 200, {}),
        (
            "POST /subjects/n/versions",
            schema('{"fields":[{"type":{"type":"int"},"name":"a"}],"namespace":"x","name":"R","type":"record"}'),
            200,
            {"schema": '{"name":"x.R","type":"record","fields":[{"name":"a","type":"int"}]}'},
        ),
        ("POST /subjects/spaces/versions", schema(SPACES), 200, {}),
        ("POST /subjects/spaces/versions?normalize=true", schema(SPACES), 200, {"schema": NORMAL_SPACES}),
    ],
    "metadata and rules": [
        ("POST /subjects/s/versions", schema(RECORD, metadata={"properties": {"a": "1"}}), 200, {"id": 1}),
        ("POST /subjects/s/versions", schema(RECORD), 200, {"id": 1, "metadata": {"properties": {"a": "1"}}}),
        (
            "POST /subjects/s/versions",
            schema(RECORD, metadata={"properties": {"a": "2"}}),
            200,
            {"id": 2, "version": 2},
        ),
        ("POST /subjects/s/versions", schema(WIDER), 200, {"id": 3, "metadata": {"properties": {"a": "2"}}}),
        ("POST /subjects/s/versions", schema(WIDER, ruleSet={"domainRules": []}), 200, {"id": 4, "version": 4}),
        ("GET /schemas/ids/4", None, 200, {"ruleSet": {"domainRules": []}, "metadata": {"properties": {"a": "2"}}}),
    ],
    "all schemas": [
        FIRST,
        ("POST /subjects/s/versions", schema(WIDER), 200, {}),
        ("POST /subjects/t/versions", schema(PROTO, "PROTOBUF"), 200, {"id": 3, "schemaType": "PROTOBUF"}),
        ("GET /subjects/t/versions/1/schema", None, 200, PROTO),
        ("GET /schemas/ids/3/schema", None, 200, PROTO),
    ],
}


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.mark.parametrize("name", SCRIPTS)
def test_requests_in_turn(registry: MemoryRegistry, name: str) -> None:
    for request, body, status, expected in SCRIPTS[name]:
        found = registry.ask(request, body)
        assert (found.status, fits(found.body, expected)) == (status, True), (request, body, found)
        assert found.kind == "application/vnd.schemaregistry.v1+json"
        if status >= 400:
            assert found.body.keys() == {"error_code", "message"}


def test_all_schemas_and_guids(registry: MemoryRegistry) -> None:
    for subject, text in (("s", RECORD), ("s", WIDER), (":.c:t", WIDER)):
        assert registry.ask(f"POST /subjects/{subject}/versions", schema(text)).status == 200
    every = registry.ask("GET /schemas").body
    assert [(each["subject"], each["version"], each["id"]) for each in every] == [
        (":.c:t", 1, 1),
        ("s", 1, 1),
        ("s", 2, 2),
    ]
    assert [each["version"] for each in registry.ask("GET /schemas?latestOnly=true").body] == [1, 2]
    guid = every[0]["guid"]
    assert guid == every[2]["guid"] != every[1]["guid"]
    assert registry.ask(f"GET /schemas/guids/{guid}").body["schema"] == WIDER
    assert registry.ask(f"GET /schemas/guids/{guid}/ids").body == [
        {"context": ".", "id": 2},
        {"context": ".c", "id": 1},
    ]


def test_protobuf_serialized(registry: MemoryRegistry) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    registry.ask("POST /subjects/s/versions", schema(PROTO, "PROTOBUF"))
    for place in ("/schemas/ids/1", "/subjects/s/versions/1"):
        found = registry.ask(f"GET {place}?format=serialized").body["schema"]
        file = FileDescriptorProto.FromString(base64.b64decode(found))
        assert [each.name for each in file.message_type] == ["M"]
    assert registry.ask("POST /subjects/s/versions", schema(found, "PROTOBUF")).body["version"] == 1


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_requests_that_are_none(registry: MemoryRegistry, data: bytes) -> None:
    found = registry.ask("POST /subjects/s/versions", data=data)
    assert (found.status, found.body["error_code"]) == (400, 400)


def test_a_request_that_is_too_large(registry: MemoryRegistry) -> None:
    assert registry.ask("POST /subjects/s/versions", data=b" " * (17 << 20)).status == 413


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_records_make_the_same_state_again(registry: MemoryRegistry, name: str) -> None:
    """Also when only the last record of each key is left, as after compaction."""
    for request, body, _, _ in SCRIPTS[name]:
        registry.ask(request, body)
    last = {each[0]: each for each in registry.records}
    compacted = [each for each in registry.records if last[each[0]] is each]
    for records in (registry.records, compacted, [each for each in compacted if each[1] is not None]):
        again = State()
        for record in records:
            again.apply(*MemoryRegistry.read(record))
        assert again == registry.state


IN_PLACES = (
    ("PUT /config", '{{"compatibility": "NONE", "x": {}}}'),
    ("POST /subjects/t/versions", '{{"schema": "\\"int\\"", "metadata": {{"properties": {{"x": {}}}}}}}'),
    ("POST /subjects/t/versions", '{{"schema": "\\"int\\"", "ruleSet": [{}]}}'),
)
"""Requests whose parts are kept as they were sent."""
NO_JSON = ("NaN", "-Infinity", "1e999", '"\\ud800"', '"\\uDFFF\\ud800"')
"""What Python's module reads, and others cannot, or cannot write again."""


@pytest.mark.parametrize("value", NO_JSON)
@pytest.mark.parametrize(("request_line", "body"), IN_PLACES)
def test_nothing_is_kept_that_cannot_be_answered(
    registry: MemoryRegistry, request_line: str, body: str, value: str
) -> None:
    assert registry.ask(request_line, data=body.format(value).encode()).status == 400
    assert registry.ask("GET /config").body == {"compatibilityLevel": "BACKWARD"}
    assert registry.ask("GET /subjects").body == []
    assert not registry.records


@pytest.mark.parametrize("value", NO_JSON)
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_schema_that_is_no_json_is_refused(registry: MemoryRegistry, kind: str, value: str) -> None:
    text = f'{{"type": "string", "default": {value}}}'
    found = registry.ask("POST /subjects/s/versions", schema(text, kind))
    assert (found.status, found.body["error_code"]) == (422, 42201)


def test_pairs_of_surrogates_are_one_character(registry: MemoryRegistry) -> None:
    text = '{"type": "string", "doc": "\\ud83d\\ude00"}'
    assert registry.ask("POST /subjects/s/versions", schema(text)).status == 200
    assert json.loads(registry.ask("GET /schemas/ids/1").body["schema"])["doc"] == "\U0001f600"


@pytest.mark.parametrize("number", ["9" * 5000, "99999999999", "-1", "x", "\u0661"])
def test_an_id_that_no_schema_has(registry: MemoryRegistry, number: str) -> None:
    for below in ("", "/schema", "/subjects", "/versions"):
        found = registry.ask(f"GET /schemas/ids/{quote(number)}{below}")
        assert (found.status, found.body["error_code"]) == (404, 40403)
