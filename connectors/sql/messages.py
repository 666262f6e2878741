"""What the engine says of a row that it fails for, in words of Spark: value, type, and the type that it should have.

The engine's own words are kept where none of the forms below fits: for new versions of it, and for a value that has
such words itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MOST_SHOWN = 200
"""Characters of a value: a reason is stored with each dead letter."""

_TYPES = {
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "BOOL": "BOOLEAN",
    "VARCHAR": "STRING",
    "BLOB": "BINARY",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
}
_SIGNS = {"addition": "+", "subtraction": "-", "multiplication": "*"}
_TYPE = r"([A-Z0-9]+(?:\(\d+,\d+\))?)"
_NUMERIC = re.compile(r"[\x00-\x20]*[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?[\x00-\x20]*")


def _type(name: str) -> str:
    return _TYPES.get(name, name)


def _shown(value: str) -> str:
    return value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]}…"


def _no_cast(source: str, value: str, target: str, why: str = "it is out of range") -> str:
    return f"{_type(source)} {value} cannot be cast to {_type(target)}: {why}"


def _no_cast_of_text(value: str, target: str, why: str = "it is out of range") -> str:
    return _no_cast("STRING", f"'{_shown(value)}'", target, why)


def _of_text(found: re.Match[str]) -> str:
    value, why, target = found.groups()
    if value.startswith("year ") and why == "1 to 9999":
        return f"{value} is not of {why}, and cannot be cast to STRING"
    return _no_cast_of_text(value, target, f"it is not {why}")


def _of_number(found: re.Match[str]) -> str:
    value, target = found.groups()
    # Other text is none of a row: a form fails with what it has to say.
    return _no_cast_of_text(value, target) if _NUMERIC.fullmatch(value) else _shown(value)


def _of_time(found: re.Match[str]) -> str:
    target, value = found.groups()
    return _no_cast_of_text(value, target.upper(), "there is no such day, or it is out of range")


_FORMS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (rf"Could not convert string ['\"](.*) \(not ([^()]*)\)['\"] to {_TYPE}", _of_text),
    (rf"Could not convert string ['\"](.*)['\"] to {_TYPE}", _of_number),
    (
        r"invalid (date|timestamp) field format: \"(.*) \(not ([^()]*)\)\", expected",
        lambda found: _no_cast_of_text(found[2], found[1].upper(), f"it is not {found[3]}"),
    ),
    (r"(date|timestamp) field value out of range: \"([^\"]*)\"", _of_time),
    (
        rf"Type {_TYPE} with value (\S+) can't be cast because .* the destination type {_TYPE}",
        lambda found: _no_cast(*found.groups()),
    ),
    (rf"Could not cast value (\S+) to {_TYPE}", lambda found: _no_cast("the number", found[1], found[2])),
    (
        rf"Failed to cast decimal value (\S+) to type {_TYPE}",
        lambda found: _no_cast("DECIMAL", found[1], found[2]),
    ),
    (
        rf"Casting value \"(\S+)\" to type {_TYPE} failed",
        lambda found: _no_cast("DECIMAL", found[1], found[2]),
    ),
    (
        r"Failure in decode: could not convert blob to UTF8 string",
        lambda _: "BINARY cannot be cast to STRING: its bytes are not UTF-8",
    ),
    (
        rf"Overflow in (addition|subtraction|multiplication) of {_TYPE} \((\S+) . (\S+)\)!",
        lambda found: f"overflow of {_type(found[2])}: {found[3]} {_SIGNS[found[1]]} {found[4]}",
    ),
    (r"Overflow on abs\((\S+)\)", lambda found: f"overflow: abs({found[1]})"),
    (r"Division by zero", lambda _: "division by zero"),
)
_ERRORS = tuple((re.compile(rf"[A-Z][A-Za-z ]+ Error: {form}", re.DOTALL), say) for form, say in _FORMS)


def in_words_of_spark(message: str) -> str | None:
    """Return what an error of the engine's says; None of one that has another form."""
    for pattern, say in _ERRORS:
        found = pattern.match(message)
        if found is not None:
            return " ".join(say(found).split())
    return None
