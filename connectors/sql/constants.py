"""Arguments that must be constants: which are allowed, the engine's form, and examples to compare with Spark."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType, IntegerType

from sparkonce.connectors.sql.regex import RegexError, read_regex

LONGEST = 10_000
"""The limit of characters for padding and repetition."""


class ConstantError(Exception):
    """A constant is not allowed; the text says why."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A kind of constants."""

    what: str
    """The expected constant, for messages."""
    check: Callable[[str, Sequence[str]], str]
    """Return the engine's SQL for a constant, given those before it.

    Raises:
        ConstantError: it is not allowed.
    """
    samples: tuple[str, ...]
    """In the form of a SELECT."""
    is_text: bool = True

    def engine(self, given: DataType, text: str, before: Sequence[str]) -> str:
        """Return the engine's SQL for a constant of a type. Raises ConstantError if it is not allowed."""
        if not self.is_text and given != IntegerType():
            raise ConstantError(f"{self.what} is a constant INT, found {text}, a {given.simpleString()}")
        return self.check(text, before)


def quoted(text: str) -> str:
    """Return text as the engine's SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _regex(text: str, _before: Sequence[str]) -> str:
    try:
        return quoted(read_regex(text).text)
    except RegexError as error:
        raise ConstantError(f"the pattern {text!r}: {error}") from None


def _replaced(text: str, before: Sequence[str]) -> str:
    """Check a pattern whose matches are replaced: Java and RE2 step over empty ones differently."""
    engine = _regex(text, before)
    if read_regex(text).may_be_empty:
        raise ConstantError(f"the pattern {text!r} may match the empty text")
    return engine


def _replacement(text: str, before: Sequence[str]) -> str:
    groups = read_regex(before[-1]).groups
    without = re.sub(r"\$(\d)(?!\d)", lambda found: "" if int(found[1]) <= groups else found[0], text)
    if "$" in without or "\\" in without:
        raise ConstantError(f"the replacement {text!r}: $0 to ${groups} are its groups; no other $, and no \\")
    return quoted(re.sub(r"\$(\d)", r"\\\1", text))


def _group(text: str, before: Sequence[str]) -> str:
    groups = read_regex(before[-1]).groups
    if not 0 <= int(text) <= groups:
        raise ConstantError(f"group {text} of a pattern that has {groups}")
    return text


def _first_group(text: str, before: Sequence[str]) -> str:
    engine = _regex(text, before)
    _group("1", (text,))
    return engine


def _like(text: str, _before: Sequence[str]) -> str:
    if re.search(r"\\(?![%_\\])", text.replace("\\\\", "")):
        raise ConstantError(f"the pattern {text!r}: \\ is possible before %, _ and \\")
    return f"{quoted(text)} ESCAPE '\\'" if "\\" in text else quoted(text)


def _separator(text: str, _before: Sequence[str]) -> str:
    if not text:
        raise ConstantError("the separator is empty")
    return quoted(text)


def _split_separator(text: str, before: Sequence[str]) -> str:
    """Return the characters of a regular expression that has no special ones."""
    characters = re.sub(r"\\([^\w\s])", r"\1", text)
    if re.search(r"[\\^$.|?*+()\[\]{}]", re.sub(r"\\[^\w\s]", "", text)):
        raise ConstantError(f"the separator {text!r}: a regular expression is not possible; \\ makes a sign plain")
    return _separator(characters, before)


def _within(least: int, most: int) -> Callable[[str, Sequence[str]], str]:
    def check(text: str, _before: Sequence[str]) -> str:
        if not least <= int(text) <= most:
            raise ConstantError(f"{text} is not between {least} and {most}")
        return f"CAST({text} AS INTEGER)"

    return check


def _part(text: str, _before: Sequence[str]) -> str:
    if text == "0":
        raise ConstantError("parts are counted from 1, or from -1 for the last")
    return _within(-LONGEST, LONGEST)(text, ())


def _characters(text: str, _before: Sequence[str]) -> str:
    if "\x00" in text:
        raise ConstantError("the character NUL is not possible: Spark deletes what it stands for")
    return quoted(text)


UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _unit(text: str, _before: Sequence[str]) -> str:
    if text.lower() not in UNITS:
        raise ConstantError(f"the unit {text!r}: there are {', '.join(UNITS)}")
    return quoted(text.lower())


_DAY = r"(?!0000)\d{4}-\d\d-\d\d"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"


def date_text(text: str) -> str:
    """Return a constant date as the engine has it. Raises ConstantError if it is not a date of the form yyyy-MM-dd."""
    try:
        if re.fullmatch(_DAY, text, re.ASCII):
            return dt.date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise ConstantError(f"{text!r} is not a date: yyyy-MM-dd, in the years 0001 to 9999")


def time_text(text: str, *, zoned: bool) -> str:
    """Return a time, in UTC without a zone, as the engine has it. Raises ConstantError if not yyyy-MM-dd HH:mm:ss."""
    zone = r"(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)?" if zoned else ""
    try:
        if re.fullmatch(rf"{_DAY}(?:[ T]{_TIME}{zone})?", text, re.ASCII):
            dt.date.fromisoformat(text[:10])
            return text
    except ValueError:
        pass
    hint = ", with a fraction or a zone such as Z or +02:00" if zoned else ", with a fraction"
    raise ConstantError(f"{text!r} is not a time: yyyy-MM-dd or yyyy-MM-dd HH:mm:ss{hint}")


KINDS: dict[str, Constant] = {
    "characters": Constant("characters", _characters, ("'abc'", "'日a'", "''", "'aab'", "'xyz'", "'É👍'", "'a$3$1'")),
    "regex": Constant(
        "a regular expression",
        _regex,
        (
            "'a'",
            "'^[a-c]+'",
            r"r'\d+\z'",
            r"r'[^\w]'",
            "'a.c'",
            "'(a|é|日)b?'",
            r"r'\s'",
            "'^(?:a|)b*?c'",
            r"r'[.\-a-z]{2,3}\z'",
            "'👍'",
            r"r'[$][1-3]'",
            r"r'\$2'",
        ),
    ),
    "replaced": Constant(
        "a regular expression that matches at least a character",
        _replaced,
        ("'a'", r"r'\d+'", "'([a-c])(.)'", r"r'\s+'", "'[^a-z]'", "'.'", "'日|👍'", r"r'\$3'", r"r'[$1]'"),
    ),
    "group pattern": Constant(
        "a regular expression with a group",
        _first_group,
        ("'([a-c])'", r"r'(\d+)'", "'a((?:b|é)?)c'", "'(.)b'", r"r'([$]2)'"),
    ),
    "replacement": Constant("a replacement", _replacement, ("''", "'<$0>'", "'x'", "'$2$1'")),
    "group": Constant("the number of a group", _group, ("0",), is_text=False),
    "like": Constant(
        "a pattern",
        _like,
        (
            "'a%'",
            "'%b%'",
            "'_'",
            "'%_c'",
            r"'%\%%'",
            r"'%\_b%'",
            "''",
            "'%'",
            "'é%'",
            "'%日%'",
            r"'%\\\\%'",
            "'a_c%'",
            "'%$3%'",
            "'a_3%$2'",
        ),
    ),
    "separator": Constant("a separator", _separator, ("','", "'X'", "'ab'", "'.'", "'é'", "' '", "'$3'", "'$1'")),
    "split separator": Constant(
        "a separator", _split_separator, ("','", "'X'", r"r'\.'", r"r'\|'", "'ab'", "'日'", "' '", r"r'\$3'")
    ),
    "part": Constant("the number of a part", _part, ("1", "2", "-1", "9", "-3"), is_text=False),
    "count": Constant(
        "a number of characters", _within(-LONGEST, LONGEST), ("0", "1", "-1", "2", "5", "40"), is_text=False
    ),
    "digits": Constant("a number of digits", _within(0, 38), ("0", "1", "2", "3"), is_text=False),
    "unit": Constant("a unit", _unit, (*(f"'{unit}'" for unit in UNITS), "'MONTH'")),
}
