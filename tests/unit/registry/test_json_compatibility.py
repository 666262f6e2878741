"""Random pairs of JSON Schemas: each document that the old one takes, the new one takes if it counts as compatible."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft7Validator, Draft202012Validator

from sparkonce.registry_lite.compatibility import incompatible
from tests.chance import examples

NAMES = st.sampled_from(["a", "b", "ab", "a/b"])
PATTERNS = st.sampled_from(["^a", "b", "^b$", "^(a|b)*$"])
DRAFTS = {
    "http://json-schema.org/draft-07/schema#": Draft7Validator,
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
}
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.just({}),
    st.sampled_from(["null", "integer", "number", "string", "boolean"]).map(lambda kind: {"type": kind}),
    st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": st.integers(0, 2)}),
    st.fixed_dictionaries({"type": st.just("string")}, optional={"maxLength": st.integers(0, 2)}),
    st.lists(st.sampled_from([None, 1, "a"]), min_size=1, unique=True).map(lambda values: {"enum": values}),
    st.fixed_dictionaries({"$ref": st.just("#/definitions/x")}, optional={"maxLength": st.integers(0, 2)}),
)


def _above(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(NAMES, below, max_size=2),
            "patternProperties": st.dictionaries(PATTERNS, below, max_size=2),
            "additionalProperties": st.one_of(st.just(False), below),
            "required": st.lists(NAMES, max_size=1),
        },
    )
    arrays = st.fixed_dictionaries({"type": st.just("array"), "items": below})
    combined = st.sampled_from(["anyOf", "allOf"]).flatmap(
        lambda name: st.fixed_dictionaries({name: st.lists(below, min_size=1, max_size=2)})
    )
    return st.one_of(objects, arrays, combined)


SCHEMAS = st.recursive(LEAVES, _above, max_leaves=5)
DOCUMENTS = [
    *(None, 0, 1, 1.5, "", "a", "aaa", True, [], [1], ["a"], {}),
    *({name: value} for name in ("a", "b", "ab", "a/b", "c") for value in (None, 1, "a", "aaa", {"a": 1})),
    *({"a": one, "b": other} for one in (1, "a") for other in (1, "a")),
]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(sorted(DRAFTS)), SCHEMAS, SCHEMAS, LEAVES.filter(lambda leaf: "$ref" not in str(leaf)))
def test_what_counts_as_compatible_takes_the_documents_of_before(draft: str, old: Any, new: Any, leaf: Any) -> None:
    whole = [
        {"$schema": draft, "definitions": {"x": leaf}, "allOf": [each]}
        if isinstance(each, bool)
        else {"$schema": draft, "definitions": {"x": leaf}, **each}
        for each in (old, new)
    ]
    texts = [json.dumps(each) for each in whole]
    if incompatible("JSON", "BACKWARD", (texts[1], ()), [(texts[0], ())]):
        return
    before, after = (DRAFTS[draft](each) for each in whole)
    for document in DOCUMENTS:
        assert not before.is_valid(document) or after.is_valid(document), (document, texts)
