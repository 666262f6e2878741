"""Compatibility of a new schema version with earlier ones, in the seven modes of Confluent's registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparkonce.registry_lite.compatibility import avro, json_schema, protobuf
from sparkonce.registry_lite.errors import ApiError

MODES = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
References = Sequence[tuple[str, str]]
"""(name, text) of a schema's references, each after its own references."""
Schema = tuple[str, References]


class Format(Protocol):
    """The operations of one schema type."""

    def check(self, text: str, references: References) -> str:
        """Return the text in the form that is stored; raise ValueError if the schema is invalid."""

    def same(self, text: str, references: References) -> str:
        """Return a text that is equal for equal schemas; raise ValueError if the schema is invalid."""

    def normal(self, text: str, references: References) -> str:
        """Return the normalized text; raise ValueError if the schema is invalid."""

    def incompatible(self, reader: Schema, writer: Schema) -> list[str]:
        """Return why a reader cannot read all data of a writer; empty if it can."""


FORMATS: dict[str, Format] = {"AVRO": avro, "JSON": json_schema, "PROTOBUF": protobuf}


def format_of(kind: str) -> Format:
    """Return the operations of a schema type. Raises ApiError if it is unknown."""
    if kind not in FORMATS:
        raise ApiError(422, 42201, f"Invalid schema type {kind}: this registry has {', '.join(FORMATS)}")
    return FORMATS[kind]


def incompatible(kind: str, mode: str, new: Schema, before: Sequence[Schema]) -> list[str]:
    """Return why a schema is incompatible with earlier ones, given oldest first; empty if it is compatible."""
    rules = format_of(kind)
    try:
        return _incompatible(rules, mode, new, before)
    except RecursionError:
        return ["the schemas are nested too deeply to be compared"]


def _incompatible(rules: Format, mode: str, new: Schema, before: Sequence[Schema]) -> list[str]:
    compared = before if mode.endswith("_TRANSITIVE") else before[-1:]
    found: list[str] = []
    for old in reversed(compared if mode != "NONE" else []):
        if mode.startswith(("BACKWARD", "FULL")):
            found += rules.incompatible(new, old)
        if mode.startswith(("FORWARD", "FULL")):
            found += rules.incompatible(old, new)
    return found
