"""Whether a new version of a schema may follow those that are there, in the seven modes of Confluent's registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparkonce.registry_lite.compatibility import avro, json_schema, protobuf
from sparkonce.registry_lite.errors import ApiError

MODES = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
References = Sequence[tuple[str, str]]
"""(name, text) of the schemas that one refers to, each after those that it refers to itself."""
Schema = tuple[str, References]


class Format(Protocol):
    """What a kind of schema must say."""

    def check(self, text: str, references: References) -> str:
        """Return the text as it is kept; raise ValueError if it is no schema."""

    def same(self, text: str, references: References) -> str:
        """Return what is equal for texts that are the same schema; raise ValueError if it is none."""

    def normal(self, text: str, references: References) -> str:
        """Return the text in the one form of all that say the same; raise ValueError if it is no schema."""

    def incompatible(self, reader: Schema, writer: Schema) -> list[str]:
        """Return why a reader cannot read all that a writer writes; nothing if it can."""


FORMATS: dict[str, Format] = {"AVRO": avro, "JSON": json_schema, "PROTOBUF": protobuf}


def format_of(kind: str) -> Format:
    """Return the rules of a kind.

    Raises:
        ApiError: it is unknown.
    """
    if kind not in FORMATS:
        raise ApiError(422, 42201, f"Invalid schema type {kind}: this registry has {', '.join(FORMATS)}")
    return FORMATS[kind]


def incompatible(kind: str, mode: str, new: Schema, before: Sequence[Schema]) -> list[str]:
    """Return why a schema may not follow those before it, the oldest first; nothing if it may."""
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
