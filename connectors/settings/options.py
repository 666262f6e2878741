"""Options of the connectors: declared once, and from that declaration checked, documented and completed.

An `Option` has everything about one: how its text is read, its allowed values, its default, the kind of query that
accepts it, and a line for the reference. `OptionSet.read` checks the options of a user; `jobs.cli.options` prints the
reference; docs/options_*.md hold the same.

Spark passes options with their keys in lower case (the source keeps the user's spelling in some versions), so
names are compared without case and shown as declared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_LARGEST_INT32 = 2**31 - 1

STORAGE_PREFIX = "storage."
"""The prefix of options that are passed to delta-rs, for the store of a table."""


class OptionError(ValueError):
    """An option that is unknown, missing, in conflict or without a readable value."""


class Scope(StrEnum):
    """Which kind of query accepts an option."""

    BOTH = "both"
    STREAM = "streams"
    BATCH = "batches"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as documented, how its text is read, its default, and its line of the reference."""

    name: str
    doc: str
    parse: Callable[[str], Any] = str
    default: Any = None
    required: bool = False
    value: str = ""
    """The allowed values, for the reference; if empty, those of the parser."""
    default_text: str = ""
    """The default in the reference, where that is not the plain text of ``default``."""
    scope: Scope = Scope.BOTH
    spark: bool = False
    """Whether Spark's own connector has it, under this name and with this meaning."""
    group: str = ""
    """The heading under which it stands in the reference."""
    secret: bool = False
    """Whether its text must not be in any message."""

    @property
    def form(self) -> str:
        """The allowed values in a few words: ``true|false``, or ``whole number >= 1``."""
        return self.value or _FORMS.get(self.parse, "") or getattr(self.parse, "form", "")

    @property
    def words(self) -> tuple[str, ...]:
        """The values that are words, where there are several, for a shell to complete."""
        words = self.form.split("|")
        return tuple(filter(_WORD.fullmatch, words)) if len(words) > 1 else ()

    @property
    def shown_default(self) -> str:
        """The default as the user would write it, or what stands for it; empty if there is none."""
        if self.required:
            return "required"
        if self.default_text or self.default is None:
            return self.default_text
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)

    def read(self, text: str, format_name: str, prefix: str = "") -> Any:
        """Read the text of an option.

        Raises:
            OptionError: if it cannot be read, with name and text; of a secret the name only.
        """
        try:
            return self.parse(text)
        except OptionError:
            raise
        except ValueError as error:
            if self.secret:
                expected = f"expected {self.form}" if self.form else "see the reference"
                raise OptionError(f"{format_name}: option {prefix}{self.name} cannot be read: {expected}") from None
            raise OptionError(f"{format_name}: option {prefix}{self.name}={text!r} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class OptionSet:
    """The options of one format. Names that start with a prefix of ``passed_through`` are passed on unread."""

    format: str
    options: Sequence[Option]
    passed_through: Sequence[str] = ()
    ignored: Sequence[str] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Names of options of something else, with the hint for the error; ``name.*`` stands for all of that kind."""
    reference: str = ""
    """What `sparkonce options` calls them; with it, errors name the options of other formats, too."""

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
                raise OptionError(f"{self.format}: {self._unknown(key, list(by_key))}")
            option = by_key[lower]
            seen.add(option.name)
            values[option.name] = option.read(text, self.format)
        for option in self.options:
            if option.required and option.name not in seen:
                raise OptionError(f"{self.format}: option {option.name} is required: {option.doc}")
        return values

    def _unknown(self, key: str, known: list[str]) -> str:
        lower = key.lower()
        for name, what in self.elsewhere.items():
            if lower == name.lower() or (name.endswith("*") and lower.startswith(name[:-1].lower())):
                return f"option {key if name.endswith('*') else name} {what}"
        if self.reference:
            from sparkonce.connectors.reference.hints import option_hint  # which imports all formats

            return option_hint(self, key)
        near = nearest(lower, known)
        names = {option.name.lower(): option.name for option in self.options}
        hint = f"did you mean {names[near]!r}?" if near else "known: " + ", ".join(sorted(names.values()))
        return f"unknown option {key!r}; {hint}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` that is most like ``name``, if any is like it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def storage_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return delta-rs's options among ``given``, in the user's spelling. They may hold keys to a store: never shown."""
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


def positive_int32(text: str) -> int:
    """Read a whole number above zero that Kafka's requests have room for, which is 32 bits with a sign."""
    return _whole_number(text, 1, f"expected a whole number above zero, at most {_LARGEST_INT32}", _LARGEST_INT32)


def not_negative_int32(text: str) -> int:
    """Read such a number, or zero."""
    return _whole_number(text, 0, f"expected a whole number, zero or above, at most {_LARGEST_INT32}", _LARGEST_INT32)


def _whole_number(text: str, least: int, expected: str, most: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(expected) from None
    if number < least or (most is not None and number > most):
        raise ValueError(expected)
    return number


_UNIT_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def milliseconds(text: str) -> int:
    """Read a duration as Spark's ``JavaUtils.timeStringAsMs`` does, and return whole milliseconds."""
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    unit = found and _UNIT_MICROSECONDS.get(found[2] or "ms")
    if not found or not unit:
        raise ValueError(
            "expected a time in seconds (s), milliseconds (ms), microseconds (us), minutes (m or min), hours (h) or "
            "days (d), such as 50s, 100ms or 15m"
        )
    return int(found[1]) * unit // 1_000


@dataclass(frozen=True, slots=True)
class OneOf:
    """Reads one of a few words."""

    allowed: tuple[str, ...]

    @property
    def form(self) -> str:
        """The words."""
        return "|".join(self.allowed)

    def __call__(self, text: str) -> str:
        """Return the text, if it is one of the words."""
        if text not in self.allowed:
            raise ValueError("expected one of " + ", ".join(self.allowed))
        return text


def one_of(*allowed: str) -> OneOf:
    """Read one of the ``allowed`` words."""
    return OneOf(allowed)


_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_FORMS: Mapping[Callable[[str], Any], str] = {
    boolean: "true|false",
    positive: "whole number >= 1",
    positive_int32: "whole number >= 1",
    not_negative: "whole number >= 0",
    not_negative_int32: "whole number >= 0",
}
