"""The arguments and the result of an expression: its type, and the engine's expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType

from sparkonce.connectors.sql.casts import cast_of
from sparkonce.connectors.sql.kinds import kind_of, same


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an expression."""

    type: DataType
    constant: str | None = None
    """Its text, of a constant that is text or a number."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The result of an expression."""

    engine: str
    """With the arguments as ``$1``, ``$2`` …"""
    type: DataType
    stricter: tuple[str, ...] = ()
    """Which rows fail that Spark accepts."""
    parts: tuple[str, ...] = ()
    """Instead of an expression: the arguments, in their common type."""


Arguments = Sequence[Argument]
Rule = Callable[[Arguments], Meaning | None]


def widened(given: DataType, target: DataType) -> str:
    """Return ``$1`` in a type that is wider than its own."""
    if same(given, target):
        return "$1"
    if kind_of(target) in ("array", "map", "struct", "other"):
        return "$1"
    cast = cast_of(given, target)
    assert cast is not None
    return cast.engine


def put(template: str, place: int) -> str:
    """Return a template of ``$1``, applied to another argument."""
    return template.replace("$1", f"${place}")


def all_as(arguments: Arguments, target: DataType) -> list[str]:
    """Return the arguments in a type that is wider than theirs."""
    return [put(widened(each.type, target), place) for place, each in enumerate(arguments, 1)]
