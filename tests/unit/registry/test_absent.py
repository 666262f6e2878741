"""What the REST API answers about subjects and versions that are not there: each route in each state.

Source: the resources of Confluent's registry (`SubjectVersionsResource`, `CompatibilityResource`, …), by which a
subject that is not there is 40401, a version 40402, and the latest version is never one that is softly deleted.
"""

from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.unit.registry.rest import MemoryRegistry

FIRST = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
SECOND = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
STATES = {
    "never there": None,
    "softly deleted": ["s"],
    "deleted for good": ["s", "s?permanent=true"],
    "a version softly deleted": ["s/versions/2"],
    "a version deleted for good": ["s/versions/2", "s/versions/2?permanent=true"],
}
"""What is deleted, in turn, of a subject ``s`` with two versions."""
YES, NO = {"is_compatible": True}, {"is_compatible": False}
V1, V2 = {"version": 1}, {"version": 2}
S1 = {"name": "R"}
NO_SUBJECT, NO_VERSION = [40401] * 3, [40402] * 2
ANSWERS: list[tuple[str, str | None, list[Any]]] = [
    ("GET /subjects/s/versions", None, [*NO_SUBJECT, [1], [1]]),
    ("GET /subjects/s/versions?deleted=true", None, [40401, [1, 2], 40401, [1, 2], [1]]),
    ("GET /subjects/s/versions?deletedOnly=true", None, [40401, [1, 2], 40401, [2], []]),
    ("GET /subjects/s/versions/2", None, [*NO_SUBJECT, *NO_VERSION]),
    ("GET /subjects/s/versions/2?deleted=true", None, [40401, V2, 40401, V2, 40402]),
    ("GET /subjects/s/versions/9", None, [*NO_SUBJECT, *NO_VERSION]),
    ("GET /subjects/s/versions/9?deleted=true", None, [40401, 40402, 40401, *NO_VERSION]),
    ("GET /subjects/s/versions/latest", None, [*NO_SUBJECT, V1, V1]),
    ("GET /subjects/s/versions/latest?deleted=true", None, [40401, 40402, 40401, V1, V1]),
    ("GET /subjects/s/versions/-1?deleted=true", None, [40401, 40402, 40401, V1, V1]),
    ("GET /subjects/s/versions/x", None, [42202] * 5),
    ("GET /subjects/s/versions/2/schema", None, [*NO_SUBJECT, *NO_VERSION]),
    ("GET /subjects/s/versions/2/schema?deleted=true", None, [40401, S1, 40401, S1, 40402]),
    ("GET /subjects/s/versions/2/referencedby", None, [40401, [], 40401, [], 40402]),
    ("GET /subjects/s/versions/latest/referencedby", None, [40401, 40402, 40401, [], []]),
    ("GET /subjects/s/versions/x/referencedby", None, [42202] * 5),
    ("POST /subjects/s", SECOND, [*NO_SUBJECT, 40403, 40403]),
    ("POST /subjects/s?deleted=true", SECOND, [40401, V2, 40401, V2, 40403]),
    ("POST /subjects/s", "{", [42201] * 5),
    ("POST /subjects/s/versions", SECOND, [V1, {"version": 3}, V1, {"version": 3}, V2]),
    ("POST /compatibility/subjects/s/versions/latest", SECOND, [YES] * 5),
    ("POST /compatibility/subjects/s/versions/latest", OTHER, [YES, YES, YES, NO, NO]),
    ("POST /compatibility/subjects/s/versions/-1", OTHER, [YES, YES, YES, NO, NO]),
    ("POST /compatibility/subjects/s/versions/latest", "{", [42201] * 5),
    ("POST /compatibility/subjects/s/versions/1", OTHER, [40402, 40402, 40402, NO, NO]),
    ("POST /compatibility/subjects/s/versions/2", SECOND, [40402] * 5),
    ("POST /compatibility/subjects/s/versions/9", "{", [40402] * 5),
    ("POST /compatibility/subjects/s/versions/x", SECOND, [42202] * 5),
    ("POST /compatibility/subjects/s/versions", OTHER, [YES, YES, YES, NO, NO]),
    ("DELETE /subjects/s", None, [40401, 40404, 40401, [1], [1]]),
    ("DELETE /subjects/s?permanent=true", None, [40401, [1, 2], 40401, 40405, 40405]),
    ("DELETE /subjects/s/versions/2", None, [40401, 40406, 40401, 40406, 40402]),
    ("DELETE /subjects/s/versions/2?permanent=true", None, [40401, 2, 40401, 2, 40402]),
    ("DELETE /subjects/s/versions/9", None, [40401, 40402, 40401, *NO_VERSION]),
    ("DELETE /subjects/s/versions/latest", None, [40401, 40402, 40401, 1, 1]),
    ("DELETE /subjects/s/versions/latest?permanent=true", None, [40401, 40402, 40401, 40407, 40407]),
    ("DELETE /subjects/s/versions/x", None, [42202] * 5),
    ("GET /schemas/ids/2", None, [40403, {}, 40403, {}, 40403]),
    ("GET /schemas/ids/2/schema", None, [40403, S1, 40403, S1, 40403]),
    ("GET /schemas/ids/2/subjects", None, [40403, [], 40403, [], 40403]),
    ("GET /schemas/ids/2/subjects?deleted=true", None, [40403, ["s"], 40403, ["s"], 40403]),
    ("GET /schemas/ids/2/versions", None, [40403, [], 40403, [], 40403]),
    ("GET /config/s", None, [40408] * 5),
    ("GET /config/s?defaultToGlobal=true", None, [{"compatibilityLevel": "BACKWARD"}] * 5),
    ("DELETE /config/s", None, [40401] * 5),
    ("GET /mode/s", None, [40409] * 5),
    ("GET /mode/s?defaultToGlobal=true", None, [{"mode": "READWRITE"}] * 5),
    ("DELETE /mode/s", None, [40401] * 5),
]
CASES = [
    (request, schema, state, expected)
    for request, schema, answers in ANSWERS
    for state, expected in zip(STATES, answers, strict=True)
]


@each_case("request_line, schema, state, expected", CASES)
def test_each_route_in_each_state(request_line: str, schema: str | None, state: str, expected: Any) -> None:
    registry = MemoryRegistry()
    for text in () if STATES[state] is None else (FIRST, SECOND):
        assert registry.ask("POST /subjects/s/versions", {"schema": text}).status == 200
    for deleted in STATES[state] or ():
        assert registry.ask(f"DELETE /subjects/{deleted}").status == 200
    found = registry.ask(request_line, None if schema is None else {"schema": schema})
    if isinstance(expected, int) and expected > 9:
        assert (found.body["error_code"], found.status) == (expected, int(str(expected)[:3]))
    elif isinstance(expected, dict):
        assert (found.status, {**found.body, **expected}) == (200, found.body)
    else:
        assert (found.status, found.body) == (200, expected)
