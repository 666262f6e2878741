"""One form for JSON Schemas of all drafts: conjuncts of units, where interdependent keywords are one unit.

1. A document is valid under a schema if it is valid under each unit of each of its conjuncts.
2. A unit means the same in every position: ``properties``, ``patternProperties`` and ``additionalProperties`` are one
   unit, so are ``if``, ``then`` and ``else``, and draft 4's ``exclusiveMaximum`` is part of ``maximum``.
3. Omitted parts never reject a document: annotations, names unknown to all drafts, and units that always hold.
4. An unknown keyword is a unit, too; it equals only itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urldefrag, urljoin

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

_DRAFTS: dict[Any, tuple[int, Specification[Any]]] = {
    Draft4Validator: (4, DRAFT4),
    Draft6Validator: (6, DRAFT6),
    Draft7Validator: (7, DRAFT7),
    Draft201909Validator: (2019, DRAFT201909),
    Draft202012Validator: (2020, DRAFT202012),
}
_METASCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    **dict.fromkeys(("if", "then", "else", "contentEncoding", "contentMediaType"), 7),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "minContains", "maxContains", "contentSchema"), 2019),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "$recursiveRef"), 2019),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), 2020),
}
_UNTIL = {"dependencies": 7, "additionalItems": 2019, "$recursiveRef": 2019}
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_SCALARS = ("pattern", "format", "multipleOf", "uniqueItems", "contentEncoding", "contentMediaType", "contentSchema")
"""Units that are compared for equality, besides numbers."""
_KEYWORDS = {
    *(*_SINCE, *_UNTIL, *_COUNTS, *_SCALARS, "$ref", "type", "enum", "required", "properties", "patternProperties"),
    *("additionalProperties", "items", "allOf", "anyOf", "oneOf", "not"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_IN_PLACE = {*_REFERENCES, "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "contains"}
_EVALUATES = {
    "unevaluatedProperties": _IN_PLACE | {"additionalProperties"},
    "unevaluatedItems": _IN_PLACE | {"items", "additionalItems"},
}
"""Besides these, ``unevaluated*`` is compared with the whole schema; otherwise it is the rest of the unit."""

NUMBERS = frozenset({"written as integer", "integral", "fraction"})
KINDS = frozenset({"null", "boolean", "object", "array", "string", *NUMBERS})
"""The kinds of values: each value has one. In draft 4 1.0 is not an integer, in all others it is."""

Part = Any
"""A schema, true or false, or another part of a document."""
Conjunct = dict[str, Any]
"""Units by their names."""


@dataclass(frozen=True, eq=False)
class Subschema:
    """A part of a document at its location, which determines the target of its references."""

    part: Part
    resolver: Any
    documents: Documents

    def below(self, part: Part) -> Subschema:
        """Return a part of this one."""
        resolver = self.resolver
        if isinstance(part, Mapping) and isinstance(part.get("$id", part.get("id")), str):
            resolver = resolver.in_subresource(self.documents.specification.create_resource(part))
        return Subschema(part, resolver, self.documents)

    def target(self, keyword: str) -> Subschema | None:
        """Return the target of a reference; None if unknown.

        A metaschema is represented by its address: it is the same for all.
        """
        return self.documents.target(self, keyword)


class Bound(NamedTuple):
    """A limit of numbers."""

    value: float
    exclusive: bool


@dataclass(frozen=True, eq=False)
class Properties:
    """The schemas of the values in an object."""

    listed: Mapping[str, Subschema]
    patterns: Mapping[str, Subschema]
    additional: Subschema


@dataclass(frozen=True, eq=False)
class Items:
    """The schemas of the elements of an array."""

    prefix: Sequence[Subschema]
    rest: Subschema

    def at(self, index: int) -> Subschema:
        """Return the schema of one element."""
        return self.prefix[index] if index < len(self.prefix) else self.rest


class Documents:
    """A schema and its references, read as one draft: that of ``$schema``, else the first supposed one.

    Keywords of the other supposed drafts are ignored here: they are compared as those drafts.
    """

    def __init__(
        self, text: str, references: Sequence[tuple[str, str]], supposed: Sequence[Any] = (Draft7Validator,)
    ) -> None:
        self.names = [name for name, _ in references]
        self.contents = [json.loads(each) for each in (text, *(reference for _, reference in references))]
        kind = validator_for(self.contents[0], default=supposed[0])
        self.silent = validator_for(self.contents[0], default=None) is None
        """Whether no ``$schema`` names the draft."""
        self._others = [_DRAFTS[each][0] for each in supposed if self.silent and each is not kind]
        said = (part for part in _mappings(self.contents) if isinstance(part.get("$schema"), str))
        alike = {kind, Draft7Validator} if self.silent else {kind}
        mixed = any(validator_for(part, default=kind) not in alike for part in said)
        self._validator = kind(kind.META_SCHEMA)
        number, self.specification = _DRAFTS.get(kind, (0, DRAFT7))
        self.draft = 0 if mixed else number
        """0 if the schemas cannot be compared: of draft 3, or of several drafts."""
        self.dynamic = any("$dynamicAnchor" in part or "$recursiveAnchor" in part for part in _mappings(self.contents))
        root = self.specification.create_resource(self.contents[0])
        registry: Registry[Any] = Registry()
        self._addresses: dict[str, str] = {}
        for (name, _), contents in zip(references, self.contents[1:], strict=True):
            other = self.specification.create_resource(contents)
            self._addresses[name] = urljoin(_id(root), _id(other) or name)
            registry = registry.with_resource(self._addresses[name], other)
        self.root = Subschema(self.contents[0], registry.resolver_with_root(root), self)
        self._targets: dict[tuple[int, str], Subschema | None] = {}
        self._valid: dict[int, bool] = {}
        self._conjuncts: dict[int, list[Conjunct]] = {}

    def target(self, place: Subschema, keyword: str) -> Subschema | None:
        """Return the target of a reference, as `Subschema.target`."""
        key = (id(place.part), keyword)
        if key not in self._targets:
            self._targets[key] = self._find(place, place.part[keyword], keyword)
        return self._targets[key]

    def _find(self, place: Subschema, reference: Any, keyword: str) -> Subschema | None:
        if not isinstance(reference, str) or (self.dynamic and keyword != "$ref"):
            return None
        address, fragment = urldefrag(reference)
        for each in (reference, f"{self._addresses.get(address, address)}#{fragment}"):
            try:
                found = place.resolver.lookup(each)
            except Unresolvable as error:
                if type(error) is Unresolvable:
                    continue  # the document is missing
                return None
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                return None  # the package cannot resolve the reference
            except BaseException as error:
                raise _of_stack(error) from None
            key = id(found.contents)
            if key not in self._valid:
                self._valid[key] = _is_valid(self._validator, found.contents)
            return Subschema(found.contents, found.resolver, self) if self._valid[key] else None
        known = reference.startswith(_METASCHEMAS) and not self.dynamic
        return Subschema(reference.removesuffix("#"), None, self) if known else None

    def conjuncts(self, place: Subschema) -> list[Conjunct]:
        """Return a schema's conjuncts."""
        if isinstance(place.part, bool):
            return [] if place.part else [NEVER]
        key = id(place.part)
        if key not in self._conjuncts:
            self._conjuncts[key] = [{"$ref": place}]  # for a reference to itself
            self._conjuncts[key] = [each for each in self._build(place) if each]
        return self._conjuncts[key]

    def _build(self, place: Subschema) -> Iterator[Conjunct]:
        if not self.draft or not isinstance(place.part, Mapping):
            yield {"$schema" if not self.draft else "$ref": place}
            return
        part = {name: each for name, each in place.part.items() if name in _KEYWORDS}
        if "$ref" in part and self.draft < 2019:
            part = {"$ref": part["$ref"]}
        for name in list(part):
            if not _has(self.draft, name):
                each = place.below(part.pop(name))
                if not any(_has(draft, name) for draft in self._others):
                    yield {f"other_draft_{name}": each}
        for name in ("unevaluatedProperties", "unevaluatedItems"):
            if name in part and _EVALUATES[name] & part.keys() and part[name] not in (True, {}):
                yield {name: place.below(part)}
        for name in filter(part.__contains__, _REFERENCES):
            target = place.target(name)
            if target is None or isinstance(target.part, str):
                yield {"$ref": target or place}
            else:
                yield from self.conjuncts(target)
        for each in part.get("allOf", ()):
            yield from self.conjuncts(place.below(each))
        for name in filter(part.__contains__, ("anyOf", "oneOf")):
            branches = [place.below(each) for each in part[name]]
            yield {"anyOf": branches}
            if name == "oneOf":
                yield {"exclusive": branches}
        yield {**_of_values(part, self.draft), **_of_objects(part, place), **_of_arrays(part, place)}
        yield {**_conditional(part, place), **_as_it_stands(part, place)}


NEVER: Conjunct = {"type": frozenset()}


def in_each_draft(*schemas: tuple[str, Sequence[tuple[str, str]]]) -> Iterator[list[Documents]]:
    """Yield the schemas as each possible draft.

    Without ``$schema`` that is draft 7, as in Confluent's registry, and 2020-12, as for validators; or 2019-09 if they
    are not valid for that, as with an array as ``items``. Schemas that are valid for neither are of draft 7 only.
    """
    supposed: list[Any] = [Draft7Validator]
    silent = [schema for schema in schemas if Documents(*schema).silent]
    texts = {text for first, others in silent for text in (first, *(other for _, other in others))}
    for kind in (Draft202012Validator, Draft201909Validator) if silent else ():
        if len(supposed) == 1 and all(_is_of(kind, text) for text in texts):
            supposed.append(kind)
    for order in [supposed, supposed[::-1]][: len(supposed)]:
        yield [Documents(*schema, order) for schema in schemas]


@lru_cache(256)
def _is_of(kind: Any, text: str) -> bool:
    """Return whether a schema is valid for a draft; cached, since that takes longer than all else."""
    return _is_valid(kind(kind.META_SCHEMA), json.loads(text))


def _is_valid(validator: Any, part: Part) -> bool:
    try:
        return bool(validator.is_valid(part))
    except BaseException as error:
        raise _of_stack(error) from None


def _of_stack(error: BaseException) -> BaseException:
    """Return an error, RecursionError for a panic: Rust's maps panic at the end of Python's stack."""
    return RecursionError() if type(error).__name__ == "PanicException" else error


def _has(draft: int, keyword: str) -> bool:
    return _SINCE.get(keyword, 4) <= draft <= _UNTIL.get(keyword, 2020)


def _id(resource: Resource[Any]) -> str:
    return "" if isinstance(resource.contents, bool) else resource.id() or ""


def _mappings(part: Part) -> Iterator[Mapping[str, Any]]:
    waiting = [part]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _of_values(part: Part, draft: int) -> Conjunct:
    unit: Conjunct = {}
    if "type" in part:
        names = [part["type"]] if isinstance(part["type"], str) else part["type"]
        unit["type"] = frozenset(kind for name in names for kind in _kinds_named(name, draft))
    lists = [each for each in (part.get("enum"), [part["const"]] if "const" in part else None) if each is not None]
    if lists:
        first, *others = ({canonical(each): each for each in values} for values in lists)
        unit["values"] = {key: each for key, each in first.items() if all(key in values for values in others)}
    for name, exclusive, strongest in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        bounds = [Bound(part[name], draft == 4 and bool(part.get(exclusive)))] if name in part else []
        bounds += [Bound(part[exclusive], True)] if draft > 4 and exclusive in part else []
        if bounds:
            unit[name] = max(bounds, key=lambda bound: (strongest * bound.value, bound.exclusive))
    return unit | {name: part[name] for name in _COUNTS if name in part and not (name[:3] == "min" and part[name] <= 0)}


def _kinds_named(name: str, draft: int) -> frozenset[str]:
    if name == "number":
        return NUMBERS
    if name == "integer":
        return NUMBERS - ({"integral", "fraction"} if draft == 4 else {"fraction"})
    return frozenset({name})


def kinds_of(value: Any) -> frozenset[str]:
    """Return the `KINDS` of the values equal to this one: 1 may be written as 1.0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return frozenset({"fraction"}) if value % 1 else NUMBERS - {"fraction"}
    names = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
    return frozenset({names[type(value)]})


def _of_objects(part: Part, place: Subschema) -> Conjunct:
    unit: Conjunct = {}
    name = "additionalProperties" if _EVALUATES["unevaluatedProperties"] & part.keys() else "unevaluatedProperties"
    additional = part.get(name, True)
    if {"properties", "patternProperties"} & part.keys() or additional is not True:
        unit["properties"] = Properties(
            {name: place.below(each) for name, each in part.get("properties", {}).items()},
            {pattern: place.below(each) for pattern, each in part.get("patternProperties", {}).items()},
            place.below(additional),
        )
    if part.get("required"):
        unit["required"] = frozenset(part["required"])
    if "propertyNames" in part:
        unit["propertyNames"] = place.below(part["propertyNames"])
    if "dependentSchemas" in part:
        unit["dependentSchemas"] = {name: place.below(each) for name, each in part["dependentSchemas"].items()}
    return unit


def _of_arrays(part: Part, place: Subschema) -> Conjunct:
    unit: Conjunct = {}
    prefix, rest = part.get("prefixItems", []), "items"
    if isinstance(part.get("items"), list):
        prefix, rest = part["items"], "additionalItems"
    others = part.get(rest if _EVALUATES["unevaluatedItems"] & part.keys() else "unevaluatedItems", True)
    if prefix or others is not True:
        unit["items"] = Items([place.below(each) for each in prefix], place.below(others))
    least = part.get("minContains", 1)
    if "contains" in part and (least > 0 or "maxContains" in part):
        unit["contains"] = place.below(part["contains"]), least, part.get("maxContains")
    return unit


def _conditional(part: Part, place: Subschema) -> Conjunct:
    unit: Conjunct = {}
    if "if" in part and {"then", "else"} & part.keys():
        unit["if"] = tuple(place.below(part.get(name, True)) for name in ("if", "then", "else"))
    if dependent := part.get("dependencies", {}) | part.get("dependentRequired", {}):
        parts = {name: {"required": each} if isinstance(each, list) else each for name, each in dependent.items()}
        unit["dependentSchemas"] = {name: place.below(each) for name, each in parts.items()}
    if "not" in part:
        unit["not"] = place.below(part["not"])
    return unit


def _as_it_stands(part: Part, place: Subschema) -> Conjunct:
    return {name: place.below(part[name]) for name in _SCALARS if name in part and part[name] is not False}


def canonical(value: Any) -> Any:
    """Return a key that is equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, list):
        return "array", *map(canonical, value)
    return frozenset((name, canonical(each)) for name, each in value.items()) if isinstance(value, dict) else value


def same(a: Subschema, b: Subschema, assumed: set[tuple[int, int]] | None = None) -> bool:
    """Return whether two parts are equal, including all their references.

    References back to a pair that is being compared are ignored.
    """
    if not isinstance(a.part, dict | list) or type(a.part) is not type(b.part):
        return bool(canonical(a.part) == canonical(b.part))
    if not a.documents.draft or a.documents.draft != b.documents.draft:
        return False
    assumed = set() if assumed is None else assumed
    key = (id(a.part), id(b.part))
    if key in assumed:
        return True
    assumed.add(key)
    if isinstance(a.part, list):
        pairs = zip(a.part, b.part, strict=False)
        return len(a.part) == len(b.part) and all(same(a.below(x), b.below(y), assumed) for x, y in pairs)
    names = set(a.part)
    return (
        names == set(b.part)
        and all(same(a.below(a.part[name]), b.below(b.part[name]), assumed) for name in names)
        and all(_same_targets(a, b, name, assumed) for name in _REFERENCES if isinstance(a.part.get(name), str))
    )


def _same_targets(a: Subschema, b: Subschema, keyword: str, assumed: set[tuple[int, int]]) -> bool:
    x, y = a.target(keyword), b.target(keyword)
    return x is not None and y is not None and same(x, y, assumed)
