"""Schemas of values as text: Spark's DDL (``id BIGINT, tags ARRAY<STRING>``) or its JSON form.

PySpark has Spark's JVM parse DDL, but a Python data source must return its schema in a process without one. So the
part of the grammar that names columns and types is read here (Spark: SqlBaseParser.g4, rules colType and dataType). A
schema is checked immediately for what ``from_json`` can produce: other types are rejected by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pyspark.sql import types as t

MAX_NESTING = 32
"""Levels of types within types."""
MAX_DECIMAL_DIGITS = 38

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<sign>[<>(),:]))""",
    re.DOTALL,
)
_SIMPLE: dict[str, type[t.DataType]] = {
    "BOOLEAN": t.BooleanType,
    "TINYINT": t.ByteType,
    "BYTE": t.ByteType,
    "SMALLINT": t.ShortType,
    "SHORT": t.ShortType,
    "INT": t.IntegerType,
    "INTEGER": t.IntegerType,
    "BIGINT": t.LongType,
    "LONG": t.LongType,
    "FLOAT": t.FloatType,
    "REAL": t.FloatType,
    "DOUBLE": t.DoubleType,
    "DATE": t.DateType,
    "TIMESTAMP": t.TimestampType,
    "TIMESTAMP_LTZ": t.TimestampType,
    "TIMESTAMP_NTZ": t.TimestampNTZType,
    "STRING": t.StringType,
    "BINARY": t.BinaryType,
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_MADE = (*_SIMPLE.values(), t.DecimalType)
_CAN = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY<…>, MAP<STRING, …> and STRUCT<…>"
)

_Token = tuple[str, str]
_END: _Token = ("end", "")


def parse_schema(text: str) -> t.StructType:
    """Read a schema, all nullable, as ``from_json`` takes it. Raises ValueError if invalid, or not made from JSON."""
    schema = _from_json(text) if text.lstrip().startswith("{") else _Parser(text).schema()
    made = _checked(schema, "", 0)
    assert isinstance(made, t.StructType)
    return made


def _from_json(text: str) -> t.DataType:
    try:
        document = json.loads(text)
        if isinstance(document, dict) and document.get("type") in ("array", "map"):
            raise ValueError(f"the root is {document['type']}, and must be struct: named fields")
        return t.StructType.fromJson(document)
    except Exception as error:  # PySpark raises what it likes for documents of another form
        raise ValueError(f"it is not a StructType in Spark's JSON form ({type(error).__name__}: {error})") from None


def _checked(kind: t.DataType, where: str, depth: int) -> t.DataType:
    """Return the type with all of it nullable; reject unsupported types."""
    if depth > MAX_NESTING:
        raise ValueError(f"types are nested more than {MAX_NESTING} deep")
    if isinstance(kind, t.StructType):
        names = kind.fieldNames()
        if not names:
            raise ValueError(f"{where or 'the schema'} has no fields")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{where or 'the schema'} has two fields {twice[0]}")
        fields = []
        for field in kind.fields:
            name = f"{where}.{field.name}" if where else field.name
            fields.append(t.StructField(field.name, _checked(field.dataType, name, depth + 1)))
        return t.StructType(fields)
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_checked(kind.elementType, f"{where}.element", depth + 1))
    if isinstance(kind, t.MapType):
        if type(kind.keyType) is not t.StringType:
            raise ValueError(f"{where} is a map whose keys are {kind.keyType.simpleString()}: keys must be STRING")
        return t.MapType(t.StringType(), _checked(kind.valueType, f"{where}.value", depth + 1))
    if type(kind) not in _MADE or (type(kind) is t.StringType and kind != t.StringType()):
        raise ValueError(f"{where} is {kind.simpleString()}, which JSON is not decoded into; it can be {_CAN}")
    return kind


class _Parser:
    """A recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    def schema(self) -> t.DataType:
        kind: t.DataType
        if self._word_is("STRUCT") and self._tokens[self._next + 1] == ("sign", "<"):
            kind = self._type(0)
        else:
            self._refuse_root()
            kind = t.StructType(self._columns(0, "end"))
        self._expect(*_END)
        return kind

    def _refuse_root(self) -> None:
        """Reject a type without a name: values are decoded into named columns, so the root is always an object."""
        (kind, word), follows = self._tokens[self._next], self._tokens[self._next + 1]
        is_type = word.upper() in (*_SIMPLE, *_DECIMALS, "ARRAY", "MAP")
        if kind == "word" and is_type and follows in (("sign", "<"), ("sign", "("), _END):
            raise ValueError(
                f"{word.upper()} has no name: the root of a value must be named fields, such as "
                "id BIGINT, tags ARRAY<INT>. For other values leave valueFormat out and use from_json"
            )

    def _columns(self, depth: int, end: str) -> list[t.StructField]:
        fields: list[t.StructField] = []
        while self._tokens[self._next] not in (("sign", end), _END):
            if fields:
                self._expect("sign", ",")
            fields.append(self._column(depth))
        return fields

    def _column(self, depth: int) -> t.StructField:
        kind, name = self._take()
        if kind not in ("word", "quoted"):
            raise ValueError(f"expected the name of a column, found {name or 'the end'!r}")
        if kind == "quoted":
            name = name[1:-1].replace("``", "`")
        if self._tokens[self._next] == ("sign", ":"):
            self._next += 1
        made = self._type(depth + 1)
        if self._word_is("NOT"):
            self._next += 1
            if not self._word_is("NULL"):
                raise ValueError(f"expected NULL, found {self._tokens[self._next][1] or 'the end'!r}")
            self._next += 1
        if self._word_is("COMMENT"):
            self._next += 1
            if self._take()[0] != "text":
                raise ValueError(f"expected a quoted text after COMMENT of {name}")
        return t.StructField(name, made)

    def _type(self, depth: int) -> t.DataType:
        if depth > MAX_NESTING:
            raise ValueError(f"types are nested more than {MAX_NESTING} deep")
        kind, word = self._take()
        upper = word.upper()
        if kind != "word":
            raise ValueError(f"expected a type, found {word or 'the end'!r}")
        if upper in _SIMPLE:
            return _SIMPLE[upper]()
        if upper in _DECIMALS:
            return self._decimal()
        if upper == "ARRAY":
            self._expect("sign", "<")
            element = self._type(depth + 1)
            self._expect("sign", ">")
            return t.ArrayType(element)
        if upper == "MAP":
            self._expect("sign", "<")
            key = self._type(depth + 1)
            self._expect("sign", ",")
            value = self._type(depth + 1)
            self._expect("sign", ">")
            return t.MapType(key, value)
        if upper == "STRUCT":
            self._expect("sign", "<")
            fields = self._columns(depth, ">")
            self._expect("sign", ">")
            return t.StructType(fields)
        raise ValueError(f"{word} is not a type that JSON is decoded into; it can be {_CAN}")

    def _decimal(self) -> t.DecimalType:
        if self._tokens[self._next] != ("sign", "("):
            return t.DecimalType(10, 0)
        self._next += 1
        precision, scale = self._number(), 0
        if self._tokens[self._next] == ("sign", ","):
            self._next += 1
            scale = self._number()
        self._expect("sign", ")")
        if not 0 < precision <= MAX_DECIMAL_DIGITS or scale > precision:
            raise ValueError(
                f"DECIMAL({precision},{scale}): precision must be 1 to 38, and scale at most the precision"
            )
        return t.DecimalType(precision, scale)

    def _number(self) -> int:
        _, text = self._take()
        if not text.isascii() or not text.isdigit():
            raise ValueError(f"expected a number, found {text or 'the end'!r}")
        return int(text)

    def _word_is(self, word: str) -> bool:
        kind, text = self._tokens[self._next]
        return kind == "word" and text.upper() == word

    def _expect(self, kind: str, text: str) -> None:
        if self._tokens[self._next] != (kind, text):
            found = self._tokens[self._next][1] or "the end"
            raise ValueError(f"expected {text or 'the end'!r}, found {found!r}")
        if kind != "end":
            self._next += 1

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        if token != _END:
            self._next += 1
        return token


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"cannot continue at {text[position : position + 20]!r}")
        position = found.end()
        kind = found.lastgroup
        assert kind is not None
        yield kind, found.group(kind)
    yield _END
    yield _END  # so that one token can be checked beyond the last
