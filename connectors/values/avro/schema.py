"""Schemas of Avro as a tree, with all names resolved.

Source: the specification of Avro 1.12, "Schema Declaration", "Names", "Aliases" and "Logical Types". A logical type
that is not valid is ignored, as the specification wants it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "uuid": "string",
}
"""The primitive type below each logical type but ``decimal`` and ``duration``."""
MAX_PRECISION = 38
"""The digits of Spark's decimals; decimals with more digits are bytes."""
MAX_DEPTH = 200
"""The maximal nesting of schemas."""
MAX_PARTS = 100_000
"""The maximal number of schemas in one, counted at each use: twenty types that name each other twice are a million."""
NO_DEFAULT = object()


class AvroSchemaError(ValueError):
    """A schema that cannot be read; the message says what and where."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """The logical type ``decimal``."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of `PRIMITIVES`."""

    kind: str
    logical: str | None = None
    decimal: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """``size`` bytes."""

    name: str
    aliases: tuple[str, ...]
    size: int
    decimal: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some symbols."""

    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one schema."""

    items: Schema


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one schema, by texts."""

    values: Schema


@dataclass(frozen=True, slots=True)
class Union:
    """One of several schemas."""

    branches: tuple[Schema, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: Schema
    default: Any = NO_DEFAULT
    """As the schema's JSON has it; `NO_DEFAULT` if there is none."""


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """Named fields, in order."""

    name: str
    aliases: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Recursion:
    """A record within itself: a tree has it in place of the record."""

    name: str
    known: Mapping[str, Named | None] = field(repr=False, compare=False)

    @property
    def record(self) -> RecordSchema:
        """The record, which has this in it."""
        found = self.known[self.name]
        assert isinstance(found, RecordSchema)
        return found


Schema = Primitive | Fixed | Enum | Array | Map | Union | RecordSchema | Recursion
Named = Fixed | Enum | RecordSchema


def parse(text: str, references: Sequence[str] = (), *, recursive: bool = False) -> Schema:
    """Return the tree of a schema; ``references`` are the texts of the schemas that it names, those before others.

    Raises:
        AvroSchemaError: it is not a schema, names a type that is unknown, is too deep or too large, or is recursive and
            may not be.
    """
    reader = _Reader(recursive)
    try:
        for reference in references:
            reader.read(_json(reference), "", "the reference")
        found = reader.read(_json(text), "", "the schema")
        depth, parts = _measured(found, {})
    except RecursionError:
        depth, parts = MAX_DEPTH + 1, 0
    if depth > MAX_DEPTH:
        raise AvroSchemaError(f"the schema is nested more than {MAX_DEPTH} levels deep")
    if parts > MAX_PARTS:
        raise AvroSchemaError(f"the schema has {parts} parts, types counted wherever they are named, not {MAX_PARTS}")
    return found


def _measured(schema: Schema, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how deep a schema is and how many parts it has; ``known`` has that of types, by their identity."""
    if id(schema) not in known:
        found = [_measured(each, known) for each in _below(schema)]
        known[id(schema)] = 1 + max((depth for depth, _ in found), default=0), 1 + sum(parts for _, parts in found)
    return known[id(schema)]


def _below(schema: Schema) -> Sequence[Schema]:
    if isinstance(schema, RecordSchema):
        return [each.type for each in schema.fields]
    if isinstance(schema, Union):
        return schema.branches
    if isinstance(schema, Array):
        return (schema.items,)
    return (schema.values,) if isinstance(schema, Map) else ()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        stripped = text.strip()
        if stripped in PRIMITIVES:
            return stripped  # registries return the shortest form of a primitive schema with quotes or without
        raise AvroSchemaError(f"the schema is not JSON: {error}") from None


class _Reader:
    """Reads schemas that may name each other's types."""

    def __init__(self, recursive: bool) -> None:
        self._recursive = recursive
        self._named: dict[str, Named | None] = {}
        """None while a type is being read: naming it there makes it recursive."""

    def read(self, part: Any, space: str, where: str) -> Schema:
        """Return the tree of a part of the JSON; ``space`` is the namespace around it."""
        if isinstance(part, str):
            return Primitive(part) if part in PRIMITIVES else self._known(part, space, where)
        if isinstance(part, list):
            return self._union(part, space, where)
        if not isinstance(part, Mapping) or "type" not in part:
            raise AvroSchemaError(f"{where}: expected a type, found {_shown(part)}")
        kind = part["type"]
        if kind == "array":
            return Array(self.read(_required(part, "items", where), space, f"{where}, items"))
        if kind == "map":
            return Map(self.read(_required(part, "values", where), space, f"{where}, values"))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(part, space, where)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _logical(kind, part)
        return self.read(kind, space, where)

    def _known(self, name: str, space: str, where: str) -> Named | Recursion:
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._named else name
        found = self._named.get(full, NO_DEFAULT)
        if found is None and self._recursive:
            return Recursion(full, self._named)
        if found is None:
            raise AvroSchemaError(f"{where}: {full} contains itself; columns cannot hold recursive types")
        if found is NO_DEFAULT:
            raise AvroSchemaError(f"{where}: unknown type {name!r}")
        assert isinstance(found, Named)
        return found

    def _union(self, parts: list[Any], space: str, where: str) -> Union:
        branches = tuple(self.read(each, space, f"{where}, branch {at}") for at, each in enumerate(parts))
        names = [kind_of(branch) for branch in branches]
        twice = [name for name in names if names.count(name) > 1]
        if twice or "union" in names or not branches:
            wrong = f"has {twice[0]} twice" if twice else "is empty" if not branches else "has a union in it"
            raise AvroSchemaError(f"{where}: a union {wrong}")
        return Union(branches)

    def _define(self, part: Mapping[str, Any], space: str, where: str) -> Named:
        _required(part, "name", where)
        full = _full_name(part, space)
        space = full.rpartition(".")[0]
        if not all(_NAME.fullmatch(each) for each in full.split(".")):
            raise AvroSchemaError(f"{where}: {full!r} is not a name")
        if full in self._named:
            raise AvroSchemaError(f"{where}: {full} is defined twice")
        named = _texts(part.get("aliases", []), f"{where}: the aliases of {full}")
        aliases = tuple(each if "." in each or not space else f"{space}.{each}" for each in named)
        self._named[full] = None
        made: Named
        if part["type"] == "enum":
            made = _enum(full, aliases, part, where)
        elif part["type"] == "fixed":
            made = _fixed(full, aliases, part, where)
        else:
            fields = _required(part, "fields", where)
            if not isinstance(fields, list):
                raise AvroSchemaError(f"{where}: the fields of {full} are {_shown(fields)}")
            made = RecordSchema(full, aliases, tuple(self._field(each, space, full) for each in fields))
            names = [field.name for field in made.fields]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise AvroSchemaError(f"{where}: {full} has the field {twice} twice")
        self._named[full] = made
        return made

    def _field(self, part: Any, space: str, record: str) -> Field:
        if not isinstance(part, Mapping) or not isinstance(part.get("name"), str):
            raise AvroSchemaError(f"{record}: expected a field with a name, found {_shown(part)}")
        where = f"{record}, field {part['name']}"
        if not _NAME.fullmatch(part["name"]):
            raise AvroSchemaError(f"{where}: {part['name']!r} is not a name")
        kind = self.read(_required(part, "type", where), space, where)
        aliases = _texts(part.get("aliases", []), f"{where}: the aliases")
        return Field(part["name"], aliases, kind, part.get("default", NO_DEFAULT))


def _texts(part: Any, what: str) -> tuple[str, ...]:
    if not isinstance(part, list) or not all(isinstance(each, str) for each in part):
        raise AvroSchemaError(f"{what} are {_shown(part)}")
    return tuple(part)


def _enum(name: str, aliases: tuple[str, ...], part: Mapping[str, Any], where: str) -> Enum:
    symbols = _texts(_required(part, "symbols", where), f"{where}: the symbols of {name}")
    if not symbols or len(set(symbols)) < len(symbols):
        raise AvroSchemaError(f"{where}: the symbols of {name} are {_shown(list(symbols))}")
    default = part.get("default")
    if default is not None and default not in symbols:
        raise AvroSchemaError(f"{where}: the default {default!r} of {name} is not one of its symbols")
    return Enum(name, aliases, symbols, default)


def _fixed(name: str, aliases: tuple[str, ...], part: Mapping[str, Any], where: str) -> Fixed:
    size = _required(part, "size", where)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise AvroSchemaError(f"{where}: the size of {name} is {_shown(size)}")
    return Fixed(name, aliases, size, _decimal(part, _digits_in(size)))


def _digits_in(size: int) -> int:
    """Return how many decimal digits always fit ``size`` bytes, none above `MAX_PRECISION` counted."""
    return min(len(str(2 ** (8 * min(size, MAX_PRECISION) - 1))) - 1, MAX_PRECISION) if size else 0


def _logical(kind: str, part: Mapping[str, Any]) -> Primitive:
    logical = part.get("logicalType")
    if logical == "decimal" and kind == "bytes":
        return Primitive(kind, decimal=_decimal(part, MAX_PRECISION))
    return Primitive(kind, logical if isinstance(logical, str) and _LOGICAL.get(logical) == kind else None)


def _decimal(part: Mapping[str, Any], most: int) -> Decimal | None:
    """Return the decimal that a part describes; None if it is none, or one that is not valid."""
    precision, scale = part.get("precision"), part.get("scale", 0)
    if part.get("logicalType") != "decimal" or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    fits = 0 <= scale <= precision and 1 <= precision <= min(most, MAX_PRECISION)
    return Decimal(precision, scale) if fits else None


def _required(part: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in part:
        raise AvroSchemaError(f"{where}: {_shown(part)} has no {name}")
    return part[name]


def _shown(part: Any) -> str:
    text = json.dumps(part)
    return text if len(text) <= 80 else f"{text[:77]}..."


def expanded(schema: Schema) -> Primitive | Fixed | Enum | Array | Map | Union | RecordSchema:
    """Return a schema, of a record within itself the record."""
    return schema.record if isinstance(schema, Recursion) else schema


def kind_of(schema: Schema) -> str:
    """Return what distinguishes the branches of a union: the full name of a named type, the type of others."""
    if isinstance(schema, Named | Recursion):
        return schema.name
    if isinstance(schema, Primitive):
        return schema.kind
    return type(schema).__name__.lower()


def is_default(schema: Schema, value: Any) -> bool:
    """Return whether a value of JSON is one of a schema's, as defaults are written."""
    schema = expanded(schema)
    if isinstance(schema, Union):
        return any(is_default(each, value) for each in schema.branches)
    if isinstance(schema, RecordSchema):
        return isinstance(value, Mapping) and all(
            is_default(each.type, value[each.name]) if each.name in value else each.default is not NO_DEFAULT
            for each in schema.fields
        )
    if isinstance(schema, Array):
        return isinstance(value, list) and all(is_default(schema.items, each) for each in value)
    if isinstance(schema, Map):
        return isinstance(value, Mapping) and all(is_default(schema.values, each) for each in value.values())
    if isinstance(schema, Enum):
        return isinstance(value, str) and value in schema.symbols
    if isinstance(schema, Fixed):
        return _is_bytes(value) and len(value) == schema.size
    return _is_primitive_default(schema.kind, value)


def _is_primitive_default(kind: str, value: Any) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("string", "bytes"):
        return isinstance(value, str) if kind == "string" else _is_bytes(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in ("float", "double"):
        return True
    bits = 31 if kind == "int" else 63
    return isinstance(value, int) and -(1 << bits) <= value < 1 << bits


def _is_bytes(value: Any) -> bool:
    """Return whether each character of a text is one byte."""
    return isinstance(value, str) and all(ord(each) < 256 for each in value)


def inlined(text: str, references: Sequence[str]) -> str:
    """Return a schema with what it refers to, each type where it is named first. Raises AvroSchemaError as `parse`."""
    parse(text, references, recursive=True)
    known: dict[str, Any] = {}
    for reference in references:
        _collect(_json(reference), "", known)
    return json.dumps(_with_definitions(_json(text), "", known, set()))


def _collect(part: Any, space: str, known: dict[str, Any]) -> None:
    """Note the definitions of named types, by their full names, with those names in them."""
    if isinstance(part, list):
        for each in part:
            _collect(each, space, known)
    if not isinstance(part, Mapping):
        return
    if part.get("type") in ("record", "error", "enum", "fixed"):
        full = _full_name(part, space)
        space = full.rpartition(".")[0]
        known[full] = {**part, "name": full.rpartition(".")[2], "namespace": space}
        for field in part.get("fields", ()):
            _collect(field["type"], space, known)
    else:
        for key in ("items", "values", "type"):
            _collect(part.get(key), space, known)


def _with_definitions(part: Any, space: str, known: Mapping[str, Any], made: set[str]) -> Any:
    """Return a part with the definitions of types where they are named first, and names elsewhere.

    ``made`` has the names of the types that are defined already.
    """
    if isinstance(part, str):
        names = [part] if "." in part or not space else [f"{space}.{part}", part]
        full = next((name for name in names if name in known), None)
        return part if full is None or full in made else _with_definitions(known[full], space, known, made)
    if isinstance(part, list):
        return [_with_definitions(each, space, known, made) for each in part]
    if not isinstance(part, Mapping):
        return part
    changed = dict(part)
    if part.get("type") in ("record", "error", "enum", "fixed"):
        full = _full_name(part, space)
        if full in made:
            return full
        made.add(full)
        space = full.rpartition(".")[0]
        changed |= {"name": full.rpartition(".")[2], "namespace": space}
        if "fields" in part:
            fields = [{**each, "type": _with_definitions(each["type"], space, known, made)} for each in part["fields"]]
            changed["fields"] = fields
        return changed
    for key in ("items", "values", "type"):
        if key in part:
            changed[key] = _with_definitions(part[key], space, known, made)
    return changed


def _full_name(part: Mapping[str, Any], space: str) -> str:
    name = str(part["name"])
    if "." in name:
        return name
    space = part.get("namespace", space) or ""
    return f"{space}.{name}" if space else name
