"""Which JSON Schema may follow which: each document that the old one takes, the new one has to take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkonce.registry_lite.compatibility import incompatible
from tests.cases import each_case
from tests.chance import examples
from tests.json_schemas import DRAFTS, judge

INT, STR, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
D4, D6, D7, D2019, D2020 = ({"$schema": uri} for uri, _ in DRAFTS.values())
TUPLE, LIST = {"prefixItems": [STR], "items": INT}, {"type": "array"}
CLOSED = {"type": "object", "unevaluatedProperties": False}
A, B = ({"type": "object", "required": [name]} for name in "ab")
IF_A = {"if": {"required": ["a"]}}


def extended(leaf: Any) -> dict[str, Any]:
    """Return a schema whose list is of what ``$dynamicAnchor`` says."""
    anchored = {"$dynamicAnchor": "x", **leaf}
    return {**D2020, "$ref": "#/$defs/list", "$defs": {"list": {"items": {"$dynamicRef": "#x"}}, "y": anchored}}


NARROWED: list[tuple[str, Any, Any]] = [
    ("additionalItems: false", {**D7, "items": [STR]}, {**D7, "items": [STR], "additionalItems": False}),
    ("unevaluatedItems: false", D2020, {**D2020, "unevaluatedItems": False}),
    ("unevaluatedProperties: false", D2020, {**D2020, "unevaluatedProperties": False}),
    ("const: false", D7, {**D7, "const": False}),
    ("contains: false", D7, {**D7, "contains": False}),
    ("propertyNames: false", D7, {**D7, "propertyNames": False}),
    ("then: false", {**D7, **IF_A}, {**D7, **IF_A, "then": False}),
    ("else: false", {**D7, **IF_A}, {**D7, **IF_A, "else": False}),
    ("not: {}", D7, {**D7, "not": {}}),
    ("a property left unevaluated", {**D2020, **CLOSED, "properties": {"a": INT}}, {**D2020, **CLOSED}),
    (
        "a branch left unevaluated",
        {**D2020, **CLOSED, "anyOf": [{"properties": {"a": INT}}, {}]},
        {**D2020, **CLOSED, "anyOf": [{}, {}]},
    ),
    (
        "what an element left unevaluated says",
        {**D2020, "contains": STR, "unevaluatedItems": INT},
        {**D2020, "contains": {"const": "a"}, "unevaluatedItems": INT},
    ),
    ("the condition of a then", {**D7, **IF_A, "then": False}, {**D7, "if": {}, "then": False}),
    ("the then of a condition", {**D7, **IF_A, "then": B}, {**D7, **IF_A, "then": {"required": ["c"]}}),
    ("items without their prefix", {**D2020, **LIST, **TUPLE}, {**D2020, **LIST, "items": INT}),
    (
        "a shorter prefix",
        {**D2020, "prefixItems": [INT, STR], "items": INT},
        {**D2020, "prefixItems": [INT], "items": INT},
    ),
    ("minContains", {**D2020, "contains": INT}, {**D2020, "contains": INT, "minContains": 2}),
    ("maxContains of less", {**D2020, "contains": INT, "maxContains": 1}, {**D2020, "contains": {}, "maxContains": 1}),
    ("const: 1 to true", {"const": 1}, {"const": True}),
    ("enum: 0 to false", {"enum": [0]}, {"enum": [False]}),
    ("enum, nested", {"enum": [{"a": [1]}]}, {"enum": [{"a": [True]}]}),
    ("const, nested", {"const": [True]}, {"const": [1]}),
    (
        "exclusiveMaximum",
        {**D4, "maximum": 1, "exclusiveMaximum": False},
        {**D4, "maximum": 1, "exclusiveMaximum": True},
    ),
    ("exclusiveMinimum added", {**D4, "minimum": 1}, {**D4, "minimum": 1, "exclusiveMinimum": True}),
    ("integers of draft 4, which 1.0 is none of", {**D7, **INT}, {**D4, **INT}),
    ("a branch of oneOf that overlaps", {"oneOf": [A]}, {"oneOf": [A, B]}),
    ("oneOf for anyOf", {"anyOf": [A, B]}, {"oneOf": [A, B]}),
    (
        "a pattern with a name that ends a line",
        {"properties": {"b\n": {}}, "additionalProperties": False},
        {"patternProperties": {"^b$": {}}, "additionalProperties": False},
    ),
    ("what a dynamic reference leads to", extended({}), extended(STR)),
    (
        "what an address leads to",
        {"$ref": "urn:x", "definitions": {"a": {"$id": "urn:x", **INT}}},
        {"$ref": "urn:x", "definitions": {"a": {"$id": "urn:x", **STR}}},
    ),
    (
        "what is beside a $ref, since 2019-09",
        {"$ref": "#/$defs/a", "$defs": {"a": STR}},
        {"$ref": "#/$defs/a", "$defs": {"a": STR}, "minLength": 5},
    ),
    (
        "what is beside a $ref that is added",
        {"properties": {"a": STR}},
        {"properties": {"a": {"$ref": "#/$defs/s", "enum": ["x"]}}, "$defs": {"s": STR}},
    ),
    ("minContains without $schema", {"minContains": 0, "contains": STR}, {"contains": {}}),
    (
        "maxContains without $schema",
        {"contains": INT, "maxContains": 1},
        {"contains": {"type": "number"}, "maxContains": 1},
    ),
    (
        "what is beside a $ref, and a tuple elsewhere, as 2019-09 has it",
        {"$ref": "#/$defs/a", "$defs": {"a": STR, "t": {"items": [STR]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": STR, "t": {"items": [STR]}}, "minLength": 5},
    ),
    ("what draft 7 alone has", {"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["b", "c"]}}),
    ("a default does not make up for it", {"required": []}, {"required": ["a"], "properties": {"a": {"default": 1}}}),
]
"""What each new schema rejects of what the old one takes."""


@each_case("case", NARROWED, ids=lambda case: case[0])
def test_what_rejects_documents_of_before_is_refused(case: tuple[str, Any, Any]) -> None:
    _, old, new = case
    assert incompatible("JSON", "BACKWARD", (json.dumps(new), ()), [(json.dumps(old), ())])


CARD, CASH = (
    {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in ("card", "cash")
)
WIDENED: list[tuple[str, Any, Any]] = [
    ("1 is 1.0", {"enum": [1, [2]]}, {"enum": [1.0, [2.0]]}),
    ("another draft", {**D4, "type": "number", "maximum": 1, "exclusiveMaximum": True}, {**D7, "exclusiveMaximum": 1}),
    ("a tuple of another draft", {**D7, "items": [STR], "additionalItems": INT}, {**D2020, **TUPLE}),
    ("a value of its type", {"const": "a"}, STR),
    ("a tuple opened", {**D2020, **TUPLE, "items": False}, {**D2020, "prefixItems": [STR]}),
    ("a tuple continued", {**D2020, **TUPLE, "items": False}, {**D2020, "prefixItems": [STR, INT], "items": False}),
    ("unevaluated as additional", {**D2020, **CLOSED}, {**D2020, **CLOSED, "properties": {"a": INT}}),
    ("a factor", {"multipleOf": 6}, {"multipleOf": 3}),
    ("limits of what never occurs", {"type": "object"}, {"type": "object", "minLength": 3, "items": INT}),
    ("nullable, as it is written otherwise", {"type": ["string", "null"]}, {"anyOf": [NULL, STR]}),
    ("a branch of oneOf with a tag", {"oneOf": [CARD]}, {"oneOf": [CARD, CASH]}),
    ("a branch of oneOf that widens", {"oneOf": [A, B]}, {"oneOf": [{**A, "title": "a"}, B, NULL]}),
    (
        "parts said together",
        {"allOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}]},
        {"properties": {"a": INT, "b": INT}},
    ),
    ("fewer excluded", {"not": {"type": ["string", "null"]}}, {"not": NULL}),
    ("a wider then", {**IF_A, "then": {"maxProperties": 1}}, {**IF_A, "then": {"maxProperties": 2}}),
    ("fewer dependencies", {"dependencies": {"a": ["b", "c"]}}, {"dependencies": {"a": ["b"]}}),
    ("wider names", {"propertyNames": {"maxLength": 1}}, {"propertyNames": {"maxLength": 2}}),
    ("fewer that it contains", {**D2020, "contains": {"const": 1}, "minContains": 2}, {**D2020, "contains": INT}),
    (
        "definitions renamed",
        {"$ref": "#/definitions/x", "definitions": {"x": INT}},
        {"$ref": "#/definitions/y", "definitions": {"y": INT}},
    ),
    ("a tuple's element, without $schema", {"items": [INT, STR]}, {"items": [{"type": "number"}, STR]}),
    (
        "a tuple continued, without $schema",
        {"items": [STR], "additionalItems": False},
        {"items": [STR, INT], "additionalItems": False},
    ),
    ("a tuple with a wider rest", {"items": [STR], "additionalItems": INT}, {"items": [STR], "additionalItems": {}}),
    (
        "a tuple that is added",
        {"properties": {}, "additionalProperties": False},
        {"properties": {"a": {"items": [INT]}}, "additionalProperties": False},
    ),
    ("a rest of no tuple", {"additionalItems": INT}, {"additionalItems": STR}),
    ("a wider element of prefixItems", {"prefixItems": [INT]}, {"prefixItems": [{"type": "number"}]}),
    (
        "what 2019-09 calls the dependencies",
        {"dependentRequired": {"a": ["b", "c"]}},
        {"dependentRequired": {"a": ["b"]}},
    ),
    (
        "what is beside a $ref, and is wider",
        {"properties": {"a": {"$ref": "#/definitions/x", "maxLength": 3}}, "definitions": {"x": STR}},
        {"properties": {"a": {"$ref": "#/definitions/x", "maxLength": 5}}, "definitions": {"x": STR}},
    ),
    ("annotations", {"x-unit": "m", "title": "a"}, {"x-unit": "km", "deprecated": True, "readOnly": True}),
]


@each_case("case", WIDENED, ids=lambda case: case[0])
def test_usual_changes_are_taken(case: tuple[str, Any, Any]) -> None:
    _, old, new = case
    assert incompatible("JSON", "BACKWARD", (json.dumps(new), ()), [(json.dumps(old), ())]) == []


ONE_DRAFT = [each for each in WIDENED if "$schema" in each[1] and each[1]["$schema"] == each[2].get("$schema")]


@each_case("case", ONE_DRAFT, ids=lambda case: case[0])
def test_usual_changes_are_taken_without_a_draft(case: tuple[str, Any, Any]) -> None:
    """Draft 7 ignores keywords of newer ones; without ``unevaluatedProperties`` an object is open for it."""
    name, old, new = case
    texts = [json.dumps({name: part for name, part in each.items() if name != "$schema"}) for each in (old, new)]
    found = incompatible("JSON", "BACKWARD", (texts[1], ()), [(texts[0], ())])
    assert bool(found) == (name == "unevaluated as additional")


REFERRING: list[tuple[str, Any]] = [
    ("an $id", {"properties": {"a": {"$ref": "urn:x"}}, "definitions": {"a": {"$id": "urn:x", **INT}}}),
    ("an $id below another", {**D2020, "$id": "http://x/a", "$ref": "b", "$defs": {"b": {"$id": "b", **INT}}}),
    ("an anchor", {**D2020, "$ref": "#x", "$defs": {"y": {"$anchor": "x", **INT}}}),
    ("an anchor of draft 4", {**D4, "items": {"$ref": "#x"}, "definitions": {"y": {"id": "#x", **INT}}}),
    ("a pointer with escapes", {"$ref": "#/definitions/a~1b%25~0", "definitions": {"a/b%~": INT}}),
    (
        "a pointer with empty steps",
        {"$ref": "#/definitions//definitions/", "definitions": {"": {"definitions": {"": INT}}}},
    ),
    ("a metaschema", {"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}}),
    ("a recursive reference", {**D2019, "properties": {"a": {"$recursiveRef": "#"}}}),
    ("a file of a list that was sent along", {"properties": {"a": {"$ref": "other.json#/definitions/x"}}}),
]


@each_case("case", REFERRING, ids=lambda case: case[0])
def test_what_references_lead_to(case: tuple[str, Any]) -> None:
    """A change beside them is found harmless, and the schema is compatible with itself."""
    _, schema = case
    other = [("other.json", json.dumps({"definitions": {"x": INT}}))]
    for new in (schema, {**schema, "title": "new"}):
        assert incompatible("JSON", "FULL", (json.dumps(new), other), [(json.dumps(schema), other)]) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://x.example/unknown.json"},
        {"$ref": "#/definitions/none"},
        {"$ref": "#"},
        extended(INT),
        {"$schema": "http://json-schema.org/draft-03/schema#", "extends": {"type": "string"}},
        {**D7, "properties": {"a": {**D2020, "prefixItems": [INT]}}},
    ],
)
def test_what_cannot_be_compared_is_compatible_with_itself_only(schema: Any) -> None:
    text = json.dumps(schema)
    assert incompatible("JSON", "FULL", (text, ()), [(text, ())]) == []
    assert incompatible("JSON", "BACKWARD", (json.dumps({**schema, "title": "new"}), ()), [(text, ())])


def test_what_counts_as_compatible_takes_the_documents_of_before() -> None:
    """The same, for 60 times as many, is in the laboratory."""
    judged = [judge(seed, documents=25) for seed in range(examples(400))]
    assert [each for _, found in judged for each in found] == []
    assert sum(compatible for compatible, _ in judged) > len(judged) // 3, "it would be right to refuse all, and no use"
