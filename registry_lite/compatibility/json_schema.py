"""Schemas of JSON Schema: checked by the package ``jsonschema``, compared by the rules that Confluent documents.

A reader can read all that a writer writes if each document that the writer's schema takes is one that the reader's
takes. That is decided part by part; what is unclear counts as incompatible. The content model of an object is open
where ``additionalProperties`` is not false: then a property that only the reader has may already be written, with any
value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.registry_lite.compatibility.strict_json import strict_json

_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SAME = ("pattern", "multipleOf", "format", "not", "uniqueItems", "const")
_UNCLEAR = (
    *("dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "contains", "minContains"),
    *("maxContains", "if", "then", "else", "prefixItems", "additionalItems", "unevaluatedProperties"),
    "unevaluatedItems",
)
"""What is compared by its text."""
_COMBINED = ("oneOf", "anyOf")
_NOTES = {"$schema", "$id", "id", "$comment", "title", "description", "default", "examples", "definitions", "$defs"}
"""What says nothing of the values."""
_TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
MAX_COMPARISONS = 50_000
"""Pairs of parts that are compared: alternatives of alternatives would be endless otherwise."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_WITH_SIBLINGS = ("2019-09", "2020-12")
"""The drafts where what is beside ``$ref`` counts, too."""
Part = Any
"""A schema, or true or false."""


def check(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text without spaces; raise ValueError if it is no schema."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    for each in (*(reference for _, reference in references), text):
        document = strict_json(each)
        kind = validator_for(document, default=Draft7Validator)
        try:
            kind.check_schema(document, format_checker=_formats(kind.FORMAT_CHECKER))
        except SchemaError as error:
            raise ValueError(error.message) from None
    return _dump(strict_json(text))


def _formats(checker: Any) -> Any:
    """Return a checker of formats that takes the patterns of JavaScript, too, as far as RE2 reads them."""
    made = type(checker)(())
    made.checkers = {**checker.checkers, "regex": (_is_pattern, ())}
    return made


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return _fits(value, "") is not None
    return True


def same(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return what is equal for equal schemas: the order of names makes no difference."""
    return normal(text, references)


def normal(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text with names in alphabetical order; raise ValueError if it is no schema."""
    check(text, references)
    return _dump(strict_json(text), sort=True)


def _dump(document: Any, *, sort: bool = False) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def incompatible(reader: tuple[str, Any], writer: tuple[str, Any]) -> list[str]:
    """Return why a reader cannot read all that a writer writes."""
    comparison = _Comparison(_Documents(*reader), _Documents(*writer))
    try:
        comparison.compare(comparison.reader.root, comparison.writer.root, "#")
    except _TooComplexError:
        return [f"the schemas are too complex: more than {MAX_COMPARISONS} pairs of their parts would be compared"]
    return comparison.found


class _TooComplexError(Exception):
    """More is to be compared than `MAX_COMPARISONS`."""


class _Documents:
    """A schema and those that it refers to."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]]) -> None:
        self.root: Part = json.loads(text)
        self._others = {name: json.loads(reference) for name, reference in references}
        said = str(self.root.get("$schema")) if isinstance(self.root, Mapping) else ""
        self._with_siblings = any(draft in said for draft in _WITH_SIBLINGS)
        self._both: dict[int, Part] = {}
        """By the identity of a part with ``$ref`` and siblings, what stands for it."""

    def resolve(self, part: Part, seen: frozenset[str] = frozenset()) -> Part:
        """Return what a part with ``$ref`` stands for; the part itself if that is not known."""
        if not isinstance(part, Mapping) or "$ref" not in part or part["$ref"] in seen:
            return part
        siblings = {name: each for name, each in part.items() if name != "$ref" and name not in _NOTES}
        if siblings and self._with_siblings:
            both = {"allOf": [{"$ref": part["$ref"]}, siblings]}
            return self._both.setdefault(id(part), both)
        place, _, pointer = str(part["$ref"]).partition("#")
        found: Any = self._others.get(place) if place else self.root
        if pointer and not pointer.startswith("/"):
            return part  # an anchor
        for step in filter(None, pointer.split("/")):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(name)] if name in map(str, range(len(found))) else None
            else:
                found = found.get(name) if isinstance(found, Mapping) else None
        return part if found is None else self.resolve(found, seen | {part["$ref"]})


class _Comparison:
    def __init__(self, reader: _Documents, writer: _Documents) -> None:
        self.reader, self.writer = reader, writer
        self.found: list[str] = []
        self._open: set[tuple[int, int]] = set()
        self._left = MAX_COMPARISONS

    def compare(self, r: Part, w: Part, at: str) -> None:
        """Note at which places the reader does not take what the writer writes.

        Raises:
            _TooComplexError: that would take too long.
        """
        self._left -= 1
        if self._left < 0:
            raise _TooComplexError
        r, w = self.reader.resolve(r), self.writer.resolve(w)
        if r is True or r == {} or w is False or (r == w and "$ref" not in _dump(r)):
            return
        if (id(r), id(w)) in self._open:
            return
        if r is False or w is True or w == {}:
            self._say("TYPE_NARROWED", at)
            return
        if any(name in r for name in _REFERENCES):
            self._say("REFERENCE_UNKNOWN", at)
            return
        self._open.add((id(r), id(w)))
        ours, theirs = _conjuncts(r), _conjuncts(w)
        if len(ours) != 1 or len(theirs) != 1 or "allOf" in r or "allOf" in w:
            if not all(any(self._takes(one, each, at) for each in theirs) for one in ours):
                self._say("COMBINED_TYPE_CHANGED", at)
        elif any(name in r or name in w for name in _COMBINED):
            self._combined(r, w, at)
        else:
            self._types(r, w, at)
        self._open.discard((id(r), id(w)))

    def _say(self, what: str, at: str) -> None:
        self.found.append(f"{what} at {at}")

    def _takes(self, r: Part, w: Part, at: str) -> bool:
        """Return whether the reader's part takes all that the writer's writes, without noting anything."""
        found, self.found = self.found, []
        self.compare(r, w, at)
        taken, self.found = not self.found, found
        return taken

    def _combined(self, r: Mapping[str, Any], w: Mapping[str, Any], at: str) -> None:
        """Compare schemas of which one has alternatives: each of the writer's must fit one of the reader's."""
        ours = _alternatives(r)
        if not all(any(self._takes(each, one, at) for each in ours) for one in _alternatives(w)):
            self._say("COMBINED_TYPE_SUBSCHEMAS_CHANGED", at)

    def _types(self, r: Mapping[str, Any], w: Mapping[str, Any], at: str) -> None:
        ours, theirs = _types_of(r), _types_of(w)
        missing = {each for each in theirs if each not in ours and not (each == "integer" and "number" in ours)}
        if missing:
            self._say("TYPE_NARROWED" if len(ours) < len(theirs) else "TYPE_CHANGED", at)
            return
        if "enum" in r and not ("enum" in w and all(each in r["enum"] for each in w["enum"])):
            self._say("ENUM_ARRAY_NARROWED", at)
        for name in _LEAST:
            if name in r and not (name in w and w[name] >= r[name]):
                self._say(f"{name.upper()}_INCREASED" if name in w else f"{name.upper()}_ADDED", at)
        for name in _MOST:
            if name in r and not (name in w and w[name] <= r[name]):
                self._say(f"{name.upper()}_DECREASED" if name in w else f"{name.upper()}_ADDED", at)
        for name in (*_SAME, *_UNCLEAR):
            if name in r and r[name] is not False and r[name] != w.get(name):
                self._say(f"{name.upper()}_CHANGED", at)
        if "object" in theirs:
            self._object(r, w, at)
        if "array" in theirs:
            self._array(r, w, at)

    def _object(self, r: Mapping[str, Any], w: Mapping[str, Any], at: str) -> None:
        ours, theirs = r.get("properties", {}), w.get("properties", {})
        needed = set(r.get("required", ())) - set(w.get("required", ()))
        for name in sorted(needed):
            default = self.reader.resolve(ours.get(name, {}))
            if not (isinstance(default, Mapping) and "default" in default):
                self._say("REQUIRED_ATTRIBUTE_ADDED", f"{at}/properties/{name}")
        for name in sorted(ours.keys() | theirs.keys()):
            place = f"{at}/properties/{name}"
            if name in ours and name in theirs:
                self.compare(ours[name], theirs[name], place)
                self._by_patterns(name, r, [theirs[name]], place)
            elif name in ours:
                self._only_reader(name, ours[name], w, place)
            else:
                self._only_writer(name, theirs[name], r, place)
        self._patterns(r, w, at)
        additional = w.get("additionalProperties", True), r.get("additionalProperties", True)
        if additional[0] is not False and not self._takes(additional[1], additional[0], at):
            self._say("ADDITIONAL_PROPERTIES_NARROWED", at)

    def _patterns(self, r: Mapping[str, Any], w: Mapping[str, Any], at: str) -> None:
        """Compare what is said of names that fit a pattern; other patterns may fit the same names."""
        ours, theirs = r.get("patternProperties", {}), w.get("patternProperties", {})
        for pattern in sorted(ours.keys() | theirs.keys()):
            place = f"{at}/patternProperties/{pattern}"
            if pattern in ours and pattern in theirs:
                self.compare(ours[pattern], theirs[pattern], place)
            elif pattern in theirs:
                taken = r.get("additionalProperties", True)
                if not self._takes(taken, theirs[pattern], place):
                    self._say("PATTERN_PROPERTY_REMOVED", place)
            elif theirs or w.get("additionalProperties", True) is not False:
                self._say("PATTERN_PROPERTY_ADDED", place)

    def _only_reader(self, name: str, part: Part, w: Mapping[str, Any], at: str) -> None:
        """Compare a property that only the reader names with what the writer allows for names it does not list."""
        fitting = [w["patternProperties"][each] for each in _fitting(name, w)]
        unclear = any(_fits(each, name) is None for each in w.get("patternProperties", {}))
        open_to = fitting or ([True] if unclear else [w.get("additionalProperties", True)])
        if not any(each is False or self._takes(part, each, at) for each in open_to):
            self._say("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", at)

    def _only_writer(self, name: str, part: Part, r: Mapping[str, Any], at: str) -> None:
        """Compare a property that only the writer names with what the reader allows for names it does not list."""
        if any(_fits(each, name) is not False for each in r.get("patternProperties", {})):
            self._by_patterns(name, r, [part], at)
        if not _fitting(name, r) and not self._takes(r.get("additionalProperties", True), part, at):
            self._say("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", at)

    def _by_patterns(self, name: str, r: Mapping[str, Any], theirs: Sequence[Part], at: str) -> None:
        """Compare what the writer says of a name with what the reader says of names that fit a pattern."""
        for pattern, part in r.get("patternProperties", {}).items():
            if _fits(pattern, name) is not False and not any(self._takes(part, each, at) for each in theirs):
                self._say("PATTERN_PROPERTY_NARROWED", at)

    def _array(self, r: Mapping[str, Any], w: Mapping[str, Any], at: str) -> None:
        ours, theirs = r.get("items", True), w.get("items", True)
        if isinstance(ours, list) or isinstance(theirs, list):
            if ours != theirs:
                self._say("ITEMS_CHANGED", at)
        else:
            self.compare(ours, theirs, f"{at}/items")


def _conjuncts(part: Mapping[str, Any]) -> list[Part]:
    """Return the schemas that must all take a value: what a part says itself, and what it combines."""
    combined = [name for name in _COMBINED if name in part]
    own = {name: each for name, each in part.items() if name not in (*_COMBINED, "allOf")}
    says_more = bool(own.keys() - _NOTES)
    if "allOf" not in part and len(combined) + says_more <= 1:
        return [part]
    alone = [own] if says_more else []
    return [*alone, *part.get("allOf", ()), *({name: part[name]} for name in combined)]


def _alternatives(part: Mapping[str, Any]) -> list[Part]:
    for name in _COMBINED:
        if name in part:
            return list(part[name])
    return [part]


def _types_of(part: Mapping[str, Any]) -> set[str]:
    kind = part.get("type", _TYPES)
    return {kind} if isinstance(kind, str) else set(kind)


def _fitting(name: str, part: Mapping[str, Any]) -> list[str]:
    """Return the patterns of an object that a property's name fits."""
    return [pattern for pattern in part.get("patternProperties", {}) if _fits(pattern, name)]


@lru_cache(4096)
def _fits(pattern: str, name: str) -> bool | None:
    """Return whether a name fits a pattern; None where that is not known.

    Arrow's regular expressions (RE2) take a time that grows with the name alone. Python's could take years for
    ``(a+)+``; their syntax is not that of JavaScript either, which JSON Schema's patterns are written in.
    """
    try:
        return bool(pc.match_substring_regex(pa.scalar(name), pattern).as_py())
    except (pa.ArrowException, UnicodeEncodeError):
        return None
