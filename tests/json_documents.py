"""JSON documents by a seed, for tests of who reads JSON: right ones, nearly right ones, and hostile ones.

They are made for `SCHEMA`, or one that `random_schema` makes: names mostly are those of its fields, and values mostly
of their types.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import types as t

from sparkonce.connectors.values.ddl import parse_schema

Kind = TypeVar("Kind")

SCHEMA = (
    "flag BOOLEAN, tiny TINYINT, small SMALLINT, whole INT, big BIGINT, single FLOAT, dbl DOUBLE, money DECIMAL(9,2), "
    "large DECIMAL(38,18), name STRING, raw BINARY, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, "
    "list ARRAY<INT>, texts ARRAY<STRING>, map MAP<STRING, BIGINT>, inner STRUCT<x: INT, y: STRING, z: ARRAY<DOUBLE>>, "
    "many ARRAY<STRUCT<x: INT, at: TIMESTAMP>>, deep MAP<STRING, STRUCT<x: INT, m: MAP<STRING, STRING>>>, "
    "_corrupt_record STRING"
)

_TEXTS = (
    "",
    "a",
    "Zürich",
    "日本",
    "😀",
    'q"uote',
    "back\\slash",
    "new\nline",
    "tab\t",
    "NaN",
    "12",
    "\u007f",
    "a/b",
    "'",
)
_ODD_TEXTS = (
    "\\ud800", "\\udfffx", "\\ud800\\ud800", "\\ud83d\\ude00", "\\u00e9", "\\/", "\\b\\f", "\\x", "\\u12", "\t", "\\'",
    "\\u0041\\u0000",
)  # fmt: skip
_NUMBERS = (
    "0", "-0", "1", "-1", "127", "128", "200", "255", "256", "-128", "-129", "32767", "32768", "2147483647",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "123456789012345678", "1.5", "-0.0",
    "0.1", "1e3", "1E-3", "1.7976931348623157e308", "1e400", "4.9e-324", "1e-400", "16777217", "16777217.0",
    "0.30000000000000004", "3.4028236e38", "1234567.895", "9999999.995", "123456789012345678.9", "1.005", "-2.675",
    "1e22", "1e23", "12345678901234567890123", "01", "-", "+1", ".5", "1.", "1e", "NaN", "-Infinity", "+INF", "-INF",
    "INF", "0x1", "1_000", "00", "-01", "1.0E+2",
)  # fmt: skip
_DATES = (
    "2024-02-29", "2023-02-29", "1970-01-01", "0001-01-01", "1582-10-10", "9999-12-31", "2024-2-9", "2024-02", "2024",
    "2024-02-29T10", " 2024-02-29 ", "100", "-5", "tomorrow", "2024-13-01", "20240229", "2024-02-29x", "+2024-01-01",
)  # fmt: skip
_TIMES = (
    "2024-05-01T12:34:56Z", "2024-05-01T12:34:56.789Z", "2024-05-01 12:34:56", "2024-05-01T12:34:56.123456789+02:00",
    "2024-05-01T12:34:56-11:30", "2024-05-01", "2024-05-01 1:2:3", "2024-05-01T25:00:00Z", "2024-03-31T02:30:00",
    "2024-10-27T02:30:00", "2024-05-01T12:34:56 Europe/Paris", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00",
    "2024-05-01T12:34:56.Z", "2024-05-01T12:34", "soon", "2024-05-01T12:34:56+18:01", "1900-01-01 00:00:00",
    "2024-05-01T12:34:56GMT+1", "2024-05-01T12:34:56+0200", "2024-05-01T12:34:56.1", "9999-12-31 23:59:59.9",
)  # fmt: skip


_ZEROS = "٠۰߀०০๐０𝟎𞥐"
"""Digits of some scripts, two of them beyond U+FFFF."""
_BROKEN_NUMBERS = (b"1.0e", b"0e", b"-0.", b"1e+", b"-1.5e-", b"2.", b"-", b"+I", b"1.0ee", b"0.0e+", b"00")
_LEAVES = (
    "BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,18)", "STRING", "STRING",
    "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
)  # fmt: skip


def random_schema(seed: int) -> str:
    """Make a schema of fields of any types; the last, `z`, shows where reading goes on after something is wrong."""
    chance = random.Random(seed)

    def kind(depth: int) -> str:
        way = chance.randrange(7 if depth else 4)
        if way < 4:
            return chance.choice(_LEAVES)
        if way == 4:
            return f"ARRAY<{kind(depth - 1)}>"
        if way == 5:
            return f"MAP<STRING, {kind(depth - 1)}>"
        return f"STRUCT<x: {kind(depth - 1)}, k: {kind(depth - 1)}>"

    fields = [f"{name} {kind(3)}" for name in "abcd"[: chance.randint(1, 4)]]
    return ", ".join((*fields, "z INT", "_corrupt_record STRING"))


class Documents:
    """Makes documents, one after the other."""

    def __init__(self, seed: int, schema: str = SCHEMA, damaged: float = 0.25) -> None:
        self._random = random.Random(seed)
        self._damaged_share = damaged
        fields = [field for field in parse_schema(schema) if field.name != "_corrupt_record"]
        self._values = {field.name: self._maker(field.dataType) for field in fields}
        self._values["unknown"] = lambda: self._any(3)

    def _maker(self, kind: t.DataType) -> Callable[[], str]:
        if isinstance(kind, t.ArrayType):
            element = self._maker(kind.elementType)
            return lambda: self._array(element)
        if isinstance(kind, t.MapType):
            value = self._maker(kind.valueType)
            return lambda: self._object(value)
        if isinstance(kind, t.StructType):
            fields = {field.name: self._maker(field.dataType) for field in kind}
            return lambda: self._fields(fields)
        if isinstance(kind, t.DecimalType):
            return self._amount
        return {
            t.BooleanType: lambda: self._pick(("true", "false")),
            t.StringType: self._text,
            t.BinaryType: self._base64,
            t.DateType: lambda: self._quoted(self._in_any_script(self._pick(_DATES))),
            t.TimestampType: self._time,
            t.TimestampNTZType: self._time,
        }.get(type(kind), self._number)

    def next(self) -> bytes:
        """Make a document, right or damaged."""
        names = self._random.sample(list(self._values), self._random.randint(0, min(6, len(self._values))))
        if names and self._random.random() < 0.03:
            names.append(names[0])
        if "z" in names and self._random.random() < 0.7:
            names = [*(name for name in names if name != "z"), "z"]
        fields = []
        for name in names:
            value = self._any(2) if self._random.random() < 0.1 else self._values[name]()
            fields.append(f'{self._space()}"{name}"{self._space()}:{self._space()}{value}{self._space()}')
        text = self._space() + "{" + ",".join(fields) + "}" + self._space()
        return self._damaged(text) if self._random.random() < self._damaged_share else text.encode()

    def _damaged(self, text: str) -> bytes:
        raw = bytearray(text.encode())
        for _ in range(self._random.randint(1, 2)):
            at = self._random.randrange(len(raw) + 1)
            way = self._random.randrange(9)
            brackets = [place for place, byte in enumerate(raw) if byte in b"[]{}"]
            numbers = list(re.finditer(rb"(?<![\w\"\\.-])-?\d[\d.]*", raw))
            if way == 0:
                del raw[at:]
            elif way == 1:
                del raw[at : at + 1]
            elif way == 2:
                raw[at:at] = self._pick((*b'{}[]",:\\x0 \xff\t', 0xC3, 0xED)).to_bytes(1, "big")
            elif way == 3:
                raw[at : at + 1] = bytes([self._random.randrange(256)])
            elif way == 4 and brackets:
                place = self._random.choice(brackets)
                raw[place : place + 1] = self._pick((b"", b"[", b"]", b"{", b"}", b"]]", b"{{"))
            elif way == 5 and numbers:
                begin, end = self._random.choice(numbers).span()
                raw[begin:end] = self._pick(_BROKEN_NUMBERS)
            elif way == 6:
                begin = self._random.randrange(len(raw) + 1)
                raw[at:at] = raw[begin : begin + self._random.randrange(12)]
            elif way == 7:
                raw[at:at] = self._pick((b"null", b'"x":1,', b"\xef\xbb\xbf", b"//", b"'", b"\xed\xa0\x80", b"[[[["))
            else:
                raw = bytearray(
                    self._pick((b"", b" ", b"null", b"[]", b"12", b'"s"', b"[{}]", b"tru", b"{}{}", b"\xff"))
                )
        return bytes(raw)

    def _number(self) -> str:
        if self._random.random() < 0.2:
            return "null"
        if self._random.random() < 0.5:
            return str(self._random.randint(-200, 200))
        if self._random.random() < 0.5:
            return repr(self._random.uniform(-1e6, 1e6) * 10.0 ** self._random.randint(-12, 12))
        return self._pick(_NUMBERS)

    def _amount(self) -> str:
        number = self._number()
        return self._quoted(self._in_any_script(number)) if self._random.random() < 0.3 else number

    def _in_any_script(self, text: str) -> str:
        """Write some of a text's digits as those of another script."""
        if self._random.random() < 0.9:
            return text
        zero, chosen = ord(self._pick(tuple(_ZEROS))), self._pick(("0123456789", "12", "5"))
        return text.translate({ord(digit): chr(zero + int(digit)) for digit in chosen})

    def _text(self) -> str:
        if self._random.random() < 0.15:
            return self._any(2)
        inside = "".join(json.dumps(self._pick(_TEXTS), ensure_ascii=self._random.random() < 0.5)[1:-1] for _ in "ab")
        if self._random.random() < 0.05:
            inside += self._pick(_ODD_TEXTS)
        return f'"{inside}"'

    def _base64(self) -> str:
        text = base64.b64encode(self._random.randbytes(self._random.randrange(8))).decode()
        if self._random.random() < 0.2:
            at = self._random.randrange(len(text) + 1)
            text = text[:at] + self._pick((" ", "=", "-", "\\/", "A", "\\n")) + text[at:]
        return f'"{text}"'

    def _time(self) -> str:
        way = self._random.random()
        return self._number() if way < 0.15 else "null" if way < 0.25 else self._quoted(self._pick(_TIMES))

    def _any(self, depth: int) -> str:
        way = self._random.randrange(9 if depth else 6)
        if way < 6:
            return (self._number, self._text, self._time, lambda: "true", lambda: "null", lambda: "tru")[way]()
        if way == 6:
            return self._array(lambda: self._any(depth - 1))
        return self._object(lambda: self._any(depth - 1))

    def _array(self, element: Callable[[], str]) -> str:
        return "[" + ",".join(self._space() + element() for _ in range(self._random.randrange(4))) + self._space() + "]"

    def _object(self, value: Callable[[], str]) -> str:
        keys = [self._pick(("k", "l", "x", "ü", "", "e\\u0041")) for _ in range(self._random.randrange(3))]
        return "{" + ",".join(f'"{key}":{value()}' for key in keys) + "}"

    def _fields(self, fields: dict[str, Callable[[], str]]) -> str:
        names = self._random.sample(list(fields), self._random.randint(0, len(fields)))
        return "{" + ",".join(f'"{name}":{self._space()}{fields[name]()}' for name in names) + "}"

    def _quoted(self, text: str) -> str:
        return f'"{text}"'

    def _space(self) -> str:
        return self._pick(("", "", "", "", " ", "\n", "\r\n\t")) if self._random.random() < 0.3 else ""

    def _pick(self, choices: tuple[Kind, ...]) -> Kind:
        return self._random.choice(choices)


def documents(seed: int, count: int, schema: str = SCHEMA, damaged: float = 0.25) -> list[bytes]:
    """Make ``count`` documents, of which a share is ``damaged``."""
    source = Documents(seed, schema, damaged)
    return [source.next() for _ in range(count)]


def without_java(text: str) -> str:
    """Read numbers in text anew: Java before 19 writes some with a digit too many, or the last one off by one."""
    return re.sub(r"\d+\.\d+(E-?\d+)?", lambda found: f"{float(found[0]):.14e}", text)


def plain(array: pa.Array) -> list[Any]:
    """Return Python values in which dates and timestamps are numbers: years beyond Python's are there, too."""
    kind = array.type
    if pa.types.is_struct(kind):
        columns = {field.name: plain(array.field(at)) for at, field in enumerate(kind)}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind):
        keys, items, offsets = plain(array.keys), plain(array.items), array.offsets.to_pylist()
        entries = list(zip(keys, items, strict=True))
        return [
            entries[begin:end] if valid else None
            for begin, end, valid in zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
        ]
    if pa.types.is_list(kind):
        values, offsets = plain(array.values), array.offsets.to_pylist()
        return [
            values[begin:end] if valid else None
            for begin, end, valid in zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
        ]
    if pa.types.is_date32(kind):
        return array.view(pa.int32()).to_pylist()
    if pa.types.is_timestamp(kind):
        return array.view(pa.int64()).to_pylist()
    return array.to_pylist()
