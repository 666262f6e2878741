"""A SELECT of only columns, fields of structs and stars, with new names: parsed without the engine.

Anything else is for the engine to parse: this returns None then, and reports no syntax errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparkonce.connectors.sql.paths import TABLE
from sparkonce.options import OptionError

_TOKEN = re.compile(
    r"""\s+|--[^\n]*|/\*.*?\*/
    |(?P<word>[A-Za-z_]\w*)|`(?P<ticked>(?:[^`]|``)+)`|(?P<sign>[.,*;])""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column columns constraint "
    "create current_date current_time current_timestamp current_user default deferrable desc describe distinct do "
    "else end except exists false fetch for foreign from group having in initially intersect interval into lambda "
    "lateral leading limit localtime localtimestamp map not null on only or order pivot pivot_longer pivot_wider "
    "placing primary qualify references returning select session_user show some summarize symmetric table then to "
    "trailing true try union unique unpivot user using values variadic when where window with"
)
_RESERVED = frozenset(_WORDS.split())
"""Words that are a name only if quoted: the engine knows their meaning."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the list."""

    names: tuple[str, ...]
    """The path; empty for ``*``."""
    alias: str | None = None
    star: bool = False
    """All columns, or all fields of the path."""


@dataclass(frozen=True, slots=True)
class PlainSelect:
    """The contents of a plain SELECT."""

    items: tuple[Item, ...]
    table: str
    """The alias of the table, or its name."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_name: bool = False
    """Never a keyword: quoted."""

    def keyword(self) -> str:
        return "" if self.is_name else self.text.lower()


class _NotPlainError(Exception):
    """It is not plain."""


def read_plain(text: str) -> PlainSelect | None:
    """Return what the SELECT says, or None if it is not plain."""
    try:
        return _Reader(list(_tokens(text))).select()
    except _NotPlainError:
        return None


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _NotPlainError
        if found["ticked"]:
            yield _Token(found["ticked"].replace("``", "`"), is_name=True)
        elif found["word"] or found["sign"]:
            yield _Token(found[0])
        place = found.end()
    yield _Token("")


_SPARK_ONLY = re.compile(
    r"""(?P<other>`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/)
    |(?P<raw>\br'(?P<inside>[^']*)'(?!'))|(?P<text>(?<!\w)'(?P<escaped>(?:[^'\\]|\\.|'')*)')
    |(?P<refused>\be'|"|\$\w*\$)
    |(?P<call>(?<!\.)\barray(?=\s*\())|(?P<name>\b(?:offset\b|array\b(?!\s*\[)))""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "%": "\\%", "_": "\\_"}
"""What follows a backslash in Spark's text."""


def for_engine(text: str) -> str:
    """Return the SELECT with Spark's notation replaced by the engine's.

    These are text with backslashes, ``r'...'``, and words that the engine reserves: ``offset``, a column of Kafka's
    records, and ``array``: a function, or a name.

    Raises:
        OptionError: the text has quotes that mean something else to Spark.
    """
    return _SPARK_ONLY.sub(_for_engine, text)


def _for_engine(found: re.Match[str]) -> str:
    if found["refused"]:
        raise OptionError(f"sql: {found[0]}: text has single quotes, with a \\ as in Spark, names have backquotes")
    if found["raw"]:
        return f"'{found['inside']}'"
    if found["text"]:
        return f"'{_unescaped(found['escaped'])}'"
    if found["call"]:
        return "list_value"
    return f'"{found[0]}"' if found["name"] else found[0]


def _unescaped(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise OptionError(f"sql: {found[0]} in a text: write \\{found[0]} as in Spark, or r'{found[0]}'")
        return _ESCAPES[found[1]].replace("'", "''")

    return re.sub(r"\\(.)", replaced, text, flags=re.DOTALL)


class _Reader:
    """Reads tokens from left to right; the last is empty."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at = tokens, 0

    def select(self) -> PlainSelect:
        self._expect("select")
        items = [self._item()]
        while self._accept(","):
            items.append(self._item())
        self._expect("from")
        self._expect(TABLE)
        table = self._alias() or TABLE
        self._accept(";")
        if self._at != len(self._tokens) - 1:
            raise _NotPlainError
        return PlainSelect(tuple(items), table)

    def _item(self) -> Item:
        if self._accept("*"):
            return Item((), star=True)
        names = [self._name()]
        while self._accept("."):
            if self._accept("*"):
                return Item(tuple(names), star=True)
            names.append(self._name())
        return Item(tuple(names), self._alias())

    def _alias(self) -> str | None:
        if self._accept("as"):
            return self._name()
        try:
            return self._name()
        except _NotPlainError:
            return None

    def _name(self) -> str:
        token = self._tokens[self._at]
        if not token.is_name and (not token.text.isidentifier() or token.text.lower() in _RESERVED):
            raise _NotPlainError
        self._at += 1
        return token.text

    def _accept(self, keyword: str) -> bool:
        here = self._tokens[self._at].keyword() == keyword
        self._at += here
        return here

    def _expect(self, keyword: str) -> None:
        if not self._accept(keyword):
            raise _NotPlainError
