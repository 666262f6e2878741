"""Pairs of JSON Schemas of each draft by a seed, the new one often a small change of the old, and documents for them.

Each keyword of each draft occurs, also those of other drafts, with values that make a difference where they are wrong:
``false``, 1 beside 1.0 beside true, nested ones, references in all their forms, and neighbours that depend on each
other.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from sparkonce.registry_lite.compatibility import incompatible

DRAFTS: dict[int, tuple[str, Any]] = {
    4: ("http://json-schema.org/draft-04/schema#", Draft4Validator),
    6: ("http://json-schema.org/draft-06/schema#", Draft6Validator),
    7: ("http://json-schema.org/draft-07/schema#", Draft7Validator),
    2019: ("https://json-schema.org/draft/2019-09/schema", Draft201909Validator),
    2020: ("https://json-schema.org/draft/2020-12/schema", Draft202012Validator),
}
NAMES = ("a", "b", "ab", "a", "b", "ab", "a/b", "~", "", "b\n")
PATTERNS = ("^a", "b", "^a", "b", "^b$", "^(a|b)*$", "(?=a)", "(?=b)", "[^a]")
TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
VALUES = (None, True, False, 0, 1, 1.0, 1.5, 2, 3, -1, "", "a", "ab", "abc", [], [1], [True], [1, 1.0], {}, {"a": 1})
VALUES += ({"a": True}, {"a": [1.0]}, [0, False], ["a"], ["a", 1], {"a": "a", "b": 1}, {"b": None}, {"a/b": 1, "": "a"})
SCALAR = ("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
SCALAR += ("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties")
SCALAR += ("maxProperties", "required", "contentEncoding", "x-unknown", "title", "dependentRequired")
ONE = ("not", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "unevaluatedItems")
ONE += ("unevaluatedProperties", "additionalItems", "items")
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies")
SIMPLE = ({}, {"type": "integer"}, {"type": "string"}, {"enum": [1]}, {"enum": [1, "a"]}, {"not": {}})
"""Of which each has a chance to take what another takes, and to reject it."""
KEYWORDS = (*SCALAR, "minContains", "maxContains", *ONE, *SEVERAL, *NAMED)
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("properties", "additionalProperties", "patternProperties", "required", "unevaluatedProperties"),
    ("properties", "additionalProperties", "patternProperties"),
    ("items", "prefixItems", "additionalItems", "unevaluatedItems", "maxItems"),
    ("contains", "minContains", "maxContains", "maxItems", "unevaluatedItems"),
    ("contains", "minContains", "maxContains"),
    ("if", "then", "else", "properties", "required", "type"),
    ("dependencies", "dependentSchemas", "dependentRequired", "required"),
    ("propertyNames", "properties", "maxProperties", "not"),
    ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "type"),
    ("type", "enum", "const"),
    ("allOf", "anyOf", "oneOf", "unevaluatedProperties", "unevaluatedItems"),
)
BETWEEN_DRAFTS: tuple[tuple[str, ...], ...] = (
    ("contains", "minContains", "maxContains"),
    ("type", "enum", "minLength", "minimum", "required", "maxProperties"),
    ("dependencies", "dependentRequired", "dependentSchemas", "required"),
    ("items", "prefixItems", "additionalItems", "maxItems"),
)
"""What drafts read in different ways, and what may be beside a ``$ref``."""
REFERENCES = ("#/definitions/x", "#/definitions/a~1b", "#/definitions//definitions/", "#here", "urn:x:part")
REFERENCES += ("#/allOf/0", "#", "#/definitions/t%7E0", "other.json", "other.json#/definitions/y")


@dataclass(frozen=True)
class Pair:
    old: dict[str, Any]
    new: dict[str, Any]
    others: tuple[dict[str, Any], dict[str, Any]]
    """What ``other.json`` is for each of them."""
    draft: tuple[int, int]
    silent: bool = False
    """Whether neither has ``$schema``: they are of draft 7, and may be read as the newest that they are valid for."""


class Schemas:
    """Draws schemas of a draft."""

    def __init__(self, chance: random.Random, draft: int) -> None:
        self._chance, self._draft = chance, draft

    def small(self, groups: tuple[tuple[str, ...], ...] = TOGETHER) -> dict[str, Any]:
        """Return a schema of neighbours, with simple schemas in it: then a difference hardly hides behind another."""
        made: dict[str, Any] = {}
        group = self._chance.choice(groups)
        for name in self._chance.sample(group, self._chance.randint(2, min(4, len(group)))):
            self.set(made, name, 1)
        return made

    def between_drafts(self) -> dict[str, Any]:
        """Return a schema that drafts read in different ways, perhaps with something beside a ``$ref``."""
        made = self.small(BETWEEN_DRAFTS)
        if self._chance.random() < 0.5:
            self._chance.choice([each for each in parts(made) if isinstance(each, dict)])["$ref"] = "#/$defs/x"
            made["$defs"] = {"x": self.leaf()}
        return made

    def whole(self) -> dict[str, Any]:
        made = self.part(3)
        made = made if isinstance(made, dict) else {"allOf": [made]}
        if self._chance.random() < 0.4 and "$ref" not in made:
            self._refer(made)
        return made

    def _refer(self, made: dict[str, Any]) -> None:
        """Add what references lead to, and a few of them."""
        name = "id" if self._draft == 4 else "$id"
        anchor = {name: "#here"} if self._draft < 2019 else {"$anchor": "here"}
        made["definitions"] = {
            "x": self.part(1),
            "a/b": {**self.leaf(), **anchor},
            "": {"definitions": {"": self.part(0)}},
            "t~": {**self.leaf(), name: "urn:x:part"},
        }
        for _ in range(self._chance.randint(1, 2)):
            place = self._chance.choice([each for each in parts(made) if isinstance(each, dict)])
            reference = {"$ref": self._chance.choice(REFERENCES)}
            if place is not made:
                place.update(reference)
            else:
                made.setdefault("properties", {})[self._chance.choice(NAMES)] = reference

    def part(self, depth: int) -> Any:
        if self._draft > 4 and self._chance.random() < (0.1 if depth > 0 else 0.4):
            return self._chance.random() < 0.3
        if depth <= 0:
            return self.leaf()
        made: dict[str, Any] = {}
        if self._chance.random() < 0.5:
            names = self._chance.sample(self._chance.choice(TOGETHER), self._chance.randint(2, 3))
        else:
            names = self._chance.choices(KEYWORDS, k=self._chance.randint(1, 3))
        for name in names:
            self.set(made, name, depth)
        return made

    def leaf(self) -> dict[str, Any]:
        if self._chance.random() < 0.7:
            return copy.deepcopy(self._chance.choice(SIMPLE))
        made: dict[str, Any] = {}
        for name in self._chance.choices(SCALAR, k=self._chance.choice((0, 1, 1, 2))):
            self.set(made, name, 0)
        return made

    def set(self, made: dict[str, Any], name: str, depth: int) -> None:
        """Add a keyword to a schema, and the keywords that the draft requires beside it."""
        made[name] = self._value(name, depth)
        if self._draft == 4 and name in ("exclusiveMinimum", "exclusiveMaximum"):
            made.setdefault(name.removeprefix("exclusive").lower(), self._chance.randint(0, 2))
        if self._draft == 2020 and isinstance(made.get("items"), list):
            made["items"] = made["items"][0]

    def _value(self, name: str, depth: int) -> Any:
        choose = self._chance.choice
        if name in NAMED:
            keys = PATTERNS if name == "patternProperties" else NAMES
            listed = name == "dependencies" and choose((True, False))
            return {choose(keys): [choose(NAMES)] if listed else self.part(depth - 1) for _ in range(choose((1, 1, 2)))}
        if name == "items" and choose((True, False)):
            return self.part(depth - 1)
        if name in SEVERAL:
            return [self.part(depth - 1) for _ in range(choose((1, 2, 2, 3)))]
        if name in ONE:
            narrow = self._draft == 4 and name in ("additionalProperties", "additionalItems")
            return False if narrow and choose((True, False)) else self.part(depth - 1)
        return self._scalar(name)

    def _scalar(self, name: str) -> Any:
        choose = self._chance.choice
        if name == "type":
            return choose(TYPES) if choose((True, True, False)) else self._chance.sample(TYPES, 2)
        if name == "enum":
            values: list[Any] = []
            for each in self._chance.sample(VALUES, choose((1, 2, 3))):
                values += [] if any(json.dumps(each) == json.dumps(one) or each == one for one in values) else [each]
            return values
        if name == "const":
            return choose(VALUES)
        if name.startswith("exclusive"):
            return choose((True, False)) if self._draft == 4 else choose((0, 1, 1.0, 1.5, 2))
        if name in ("minimum", "maximum", "multipleOf"):
            return choose((1, 2, 3, 1.0, 1.5, 6)) if name == "multipleOf" else choose((0, 1, 1.0, 1.5, 2))
        texts = {"pattern": PATTERNS, "format": ("date", "ipv4"), "contentEncoding": ("base64",)}
        if name in texts:
            return choose(texts[name])
        if name == "uniqueItems":
            return choose((True, False))
        if name == "required":
            return sorted(set(self._chance.sample(NAMES, choose((1, 1, 2)))))
        if name == "dependentRequired":
            return {choose(NAMES): [choose(NAMES)]}
        return "text" if name in ("title", "x-unknown") else choose((0, 1, 2, 3))

    def changed(self, schema: Any, more: int) -> Any:
        """Return a copy with a few changes."""
        new = copy.deepcopy(schema)
        for _ in range(more):
            places = [each for each in parts(new) if isinstance(each, dict)]
            place = places[0] if self._chance.random() < 0.5 else self._chance.choice(places)
            here = [name for name in place if name not in ("$schema", "definitions", "$defs", "id", "$id", "$anchor")]
            action = self._chance.choice(
                ("drop", "replace", "add", "inside", "twin", "neighbour", "neighbour", "neighbour")
            )
            if action == "twin":
                place.update({name: twin(place[name]) for name in ("enum", "const") if name in place})
            elif here and action == "drop":
                del place[self._chance.choice(here)]
            elif here and action == "replace" and (name := self._chance.choice(here)) in KEYWORDS:
                self.set(place, name, 1)
            elif here and action == "inside" and isinstance(inside := place[self._chance.choice(here)], dict | list):
                self._inside(inside)
            elif action == "neighbour":
                together = [group for group in TOGETHER if any(name in place for name in group)] or [SCALAR]
                self.set(place, self._chance.choice(self._chance.choice(together)), 1)
            elif "$ref" not in place:
                self.set(place, self._chance.choice(KEYWORDS), 1)
        return new

    def _inside(self, inside: Any) -> None:
        """Reorder, remove or repeat something inside a keyword's value."""
        if isinstance(inside, list) and inside:
            action = self._chance.randint(0, 2)
            if action == 0:
                self._chance.shuffle(inside)
            elif action == 1 and len(inside) > 1:
                inside.pop()
            elif all(isinstance(each, dict) for each in inside):
                inside.append(self.leaf())
        elif isinstance(inside, dict) and len(inside) > 1 and set(inside) <= {*NAMES, *PATTERNS}:
            del inside[self._chance.choice(sorted(inside))]


def twin(value: Any) -> Any:
    """Return what Python takes for the same value: true for 1, 1 for true."""
    if isinstance(value, list):
        return [twin(each) for each in value]
    if isinstance(value, dict):
        return {name: twin(each) for name, each in value.items()}
    if isinstance(value, bool):
        return int(value)
    return bool(value) if value in (0, 1) else value


def parts(schema: Any) -> Iterator[Any]:
    """Return a schema and those in it."""
    yield schema
    for name, each in schema.items() if isinstance(schema, dict) else ():
        inside: list[Any] = []
        if name in (*NAMED, "definitions") and isinstance(each, dict):
            inside = [one for one in each.values() if isinstance(one, dict)]
        elif name in SEVERAL and isinstance(each, list):
            inside = each
        elif name in ONE and isinstance(each, dict):
            inside = [each]
        for one in inside:
            yield from parts(one)


def random_pair(seed: int) -> Pair:
    """Return a pair whose schemas are valid for their drafts."""
    chance = random.Random(seed)
    while True:
        pair = _pair(chance)
        if _is_of(pair, pair.draft):
            return pair


def _is_of(pair: Pair, drafts: tuple[int, int]) -> bool:
    return all(
        DRAFTS[draft][1](DRAFTS[draft][1].META_SCHEMA).is_valid(schema)
        for draft, schemas in zip(drafts, ((pair.old, pair.others[0]), (pair.new, pair.others[1])), strict=True)
        for schema in schemas
    )


def _judges(pair: Pair) -> list[tuple[int, int]]:
    """Return the drafts that the two schemas may be read as."""
    newest = [(draft, draft) for draft in (2020, 2019) if pair.silent and _is_of(pair, (draft, draft))]
    return [pair.draft, *newest[:1]]


def _pair(chance: random.Random) -> Pair:
    before = after = chance.choice((*DRAFTS, 2019, 2020, None, None, None))
    silent = before is None
    if before is None or after is None:
        before = after = 7
    schemas = Schemas(chance, chance.choice((7, 2020)) if silent else before)
    old = schemas.small() if chance.random() < 0.6 else schemas.whole()
    old = schemas.between_drafts() if silent and chance.random() < 0.6 else old
    other = {"type": chance.choice(TYPES), "definitions": {"y": schemas.part(1)}}
    new, other_new = old, copy.deepcopy(other)
    how = chance.random()
    if how < 0.65:
        new = schemas.changed(old, chance.choice((1, 1, 2, 3)))
    elif how < 0.75:
        new = schemas.small()
    elif how < 0.85:
        new = {chance.choice(("anyOf", "oneOf", "allOf", "not")): [copy.deepcopy(old), schemas.part(1)]}
        new = {"not": new["not"][0]} if "not" in new else new
    elif how < 0.95 and not silent:
        after = chance.choice(sorted(DRAFTS))
    else:
        other_new = {"type": chance.choice(TYPES), "definitions": {"y": schemas.part(1)}}
    named = [{} if silent else {"$schema": DRAFTS[draft][0]} for draft in (before, after)]
    return Pair({**named[0], **old}, {**named[1], **new}, (other, other_new), (before, after), silent)


def random_documents(pair: Pair, seed: int, count: int) -> list[Any]:
    """Return documents that make a difference for such schemas, some from what the schemas say themselves."""
    chance = random.Random(seed)
    made: list[Any] = list(VALUES)
    atoms = [None, True, 1, 1.0, 2, "a", "b", "ab", *made]
    for schema in (pair.old, pair.new):
        made += [value for part in parts(schema) if isinstance(part, dict) for value in part.get("enum", ())]
    atoms += [*made, "aaaa", 4, 6, "2020-01-01"]
    for _ in range(count):
        if chance.random() < 0.6:
            names = chance.sample((*NAMES, "c"), chance.choice((1, 1, 2, 3)))
            made.append({name: chance.choice(atoms) for name in names})
        else:
            made.append([chance.choice(atoms) for _ in range(chance.choice((1, 2, 2, 3, 4)))])
        atoms.append(made[-1])
    return made


def judge(seed: int, documents: int) -> tuple[bool, list[str]]:
    """Return whether a pair counts as compatible, and what is wrong with that by the package ``jsonschema``."""
    pair = random_pair(seed)
    texts = [json.dumps(pair.old), json.dumps(pair.new)]
    others = [[("other.json", json.dumps(each))] for each in pair.others]
    if incompatible("JSON", "BACKWARD", (texts[1], others[1]), [(texts[0], others[0])]):
        equal = json.dumps([texts[0], others[0]]) == json.dumps([texts[1], others[1]])
        return False, [f"seed {seed}: incompatible with itself: {texts[0]}"] if equal else []
    for drafts in _judges(pair):
        before, after = (
            _validator(schema, other, draft)
            for schema, other, draft in zip((pair.old, pair.new), pair.others, drafts, strict=True)
        )
        for document in random_documents(pair, seed, documents):
            try:
                if before.is_valid(document) and not after.is_valid(document):
                    said = f"seed {seed}: {json.dumps(document)} of {drafts}"
                    return True, [f"{said}\n  old {texts[0]}\n  new {texts[1]}\n  {others}"]
            except (Unresolvable, RecursionError, TypeError):
                continue  # a reference that leads nowhere, or to itself; or what the package trips over: items: true
            except BaseException as error:
                if type(error).__name__ != "PanicException":
                    raise  # Rust's maps panic where Python's stack ends
    return True, []


def _validator(schema: Any, other: Any, draft: int) -> Any:
    uri, kind = DRAFTS[draft]
    resource = specification_with(uri).create_resource(other)
    return kind(schema, registry=Registry().with_resource("other.json", resource))
