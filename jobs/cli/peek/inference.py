"""A schema for JSON values, inferred from samples: DDL for the option valueSchema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

MAX_FIELDS = 400
"""The maximal number of names of an object; one with more is a map, if its values have one type."""
MAX_DEPTH = 24
"""The maximal nesting of types; deeper values are text."""
_LONG = range(-(2**63), 2**63)
_DECIMAL_DIGITS = 38
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

BOOLEAN, BIGINT, DECIMAL, DOUBLE, STRING = "BOOLEAN", "BIGINT", "DECIMAL(38,0)", "DOUBLE", "STRING"
_WIDER = {
    frozenset((BIGINT, DECIMAL)): DECIMAL,
    frozenset((BIGINT, DOUBLE)): DOUBLE,
    frozenset((DECIMAL, DOUBLE)): DOUBLE,
}


@dataclass(frozen=True, slots=True)
class Unknown:
    """Only nulls were seen."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array."""

    element: Type


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object."""

    fields: Mapping[str, Type] = field(default_factory=dict)


Type = str | Unknown | ArrayOf | ObjectOf


def type_of(value: Any, depth: int = 0) -> Type:
    """Return the type of a value from ``json.loads``."""
    if value is None:
        return Unknown()
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT if value in _LONG else DECIMAL if len(str(abs(value))) <= _DECIMAL_DIGITS else STRING
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, str) or depth >= MAX_DEPTH:
        return STRING
    if isinstance(value, list):
        return ArrayOf(_holding(type_of(each, depth + 1) for each in value))
    return ObjectOf({name: type_of(each, depth + 1) for name, each in value.items()})


def merged(one: Type, other: Type) -> Type:
    """Return the common type of two; text can represent anything."""
    if one == other or isinstance(other, Unknown):
        return one
    if isinstance(one, Unknown):
        return other
    if isinstance(one, ArrayOf) and isinstance(other, ArrayOf):
        return ArrayOf(merged(one.element, other.element))
    if isinstance(one, ObjectOf) and isinstance(other, ObjectOf):
        both = dict(one.fields)
        for name, kind in other.fields.items():
            both[name] = merged(both[name], kind) if name in both else kind
        return ObjectOf(both)
    if isinstance(one, str) and isinstance(other, str):
        return _WIDER.get(frozenset((one, other)), STRING)
    return STRING


def _holding(types: Iterable[Type], first: Type = Unknown()) -> Type:
    return reduce(merged, types, first)


def ddl(samples: Iterable[Mapping[str, Any]]) -> str:
    """Return the fields of objects as DDL; empty if none has any."""
    found = _holding(map(type_of, samples), ObjectOf())
    assert isinstance(found, ObjectOf), "objects make an object"
    return ", ".join(f"{_name(name)} {_text(kind)}" for name, kind in found.fields.items() if name)


def _text(kind: Type) -> str:
    if isinstance(kind, Unknown):
        return STRING
    if isinstance(kind, ArrayOf):
        return f"ARRAY<{_text(kind.element)}>"
    if isinstance(kind, str):
        return kind
    fields = {name: each for name, each in kind.fields.items() if name}
    if len(fields) > MAX_FIELDS:
        value = _text(_holding(fields.values()))
        return f"MAP<STRING, {value}>"
    return (
        f"STRUCT<{', '.join(f'{_name(name)}: {_text(each)}' for name, each in fields.items())}>" if fields else STRING
    )


def _name(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    quoted = name.replace("`", "``")
    return f"`{quoted}`"
