"""Options of the connectors: declared once, checked, and documented from the declaration.

Spark hands options over with their keys in lower case (the source keeps the user's spelling in some versions), so
names are compared without case and shown as declared.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STORAGE_PREFIX = "storage."
"""How the names of options begin that are delta-rs's own, for the store that a table lies in."""


class OptionError(ValueError):
    """An option that is unknown, missing, in conflict or without a readable value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as documented, how its text is read, its default, and a line for the reference."""

    name: str
    doc: str
    parse: Callable[[str], Any] = str
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class OptionSet:
    """The options of one format. Names that start with a prefix of ``passed_through`` are handed on unread."""

    format: str
    options: Sequence[Option]
    passed_through: Sequence[str] = ()
    ignored: Sequence[str] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Names that belong to something else, and what to say to who gives one."""

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Check ``given`` and return a value for every declared option, by its declared name.

        Raises:
            OptionError: for a name that is not declared (with the nearest one that is), a value that does not
                parse, or a required option that is missing.
        """
        by_key = {option.name.lower(): option for option in self.options}
        values = {option.name: option.default for option in self.options}
        seen = set()
        for key, text in given.items():
            lower = key.lower()
            if lower in self.ignored or any(lower.startswith(prefix) for prefix in self.passed_through):
                continue
            if lower not in by_key:
                raise OptionError(self._unknown(key, list(by_key)))
            option = by_key[lower]
            seen.add(option.name)
            try:
                values[option.name] = option.parse(text)
            except OptionError:
                raise
            except ValueError as error:
                raise OptionError(f"{self.format}: option {option.name}={text!r} cannot be read: {error}") from error
        for option in self.options:
            if option.required and option.name not in seen:
                raise OptionError(f"{self.format}: option {option.name} is required: {option.doc}")
        return values

    def _unknown(self, key: str, known: list[str]) -> str:
        for name, what in self.elsewhere.items():
            if key.lower() == name.lower():
                return f"{self.format}: option {name} {what}"
        near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.6)
        names = {option.name.lower(): option.name for option in self.options}
        hint = f"did you mean {names[near[0]]!r}?" if near else "known: " + ", ".join(sorted(names.values()))
        return f"{self.format}: unknown option {key!r}; {hint}"


def storage_options(given: Mapping[str, str]) -> dict[str, str]:
    """Give delta-rs's options among ``given``, in the user's spelling. They may hold keys to a store: never shown."""
    return {key[len(STORAGE_PREFIX) :]: text for key, text in given.items() if key.lower().startswith(STORAGE_PREFIX)}


def boolean(text: str) -> bool:
    """Read ``true`` or ``false``, in any case."""
    lower = text.strip().lower()
    if lower not in ("true", "false"):
        raise ValueError("expected true or false")
    return lower == "true"


def positive(text: str) -> int:
    """Read a whole number above zero."""
    return _whole_number(text, 1, "expected a whole number above zero")


def not_negative(text: str) -> int:
    """Read a whole number, zero or above."""
    return _whole_number(text, 0, "expected a whole number, zero or above")


def _whole_number(text: str, least: int, expected: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(expected) from None
    if number < least:
        raise ValueError(expected)
    return number


def one_of(*allowed: str) -> Callable[[str], str]:
    """Read one of the ``allowed`` words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError("expected one of " + ", ".join(allowed))
        return text

    return parse
