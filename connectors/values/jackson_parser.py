"""One record at a time, as Spark's from_json makes it: JacksonParser's rules over `jackson.Tokens`.

The compiled path passes on every record that it leaves undecided; so unusual documents are decided here,
and only here. A `JacksonParser` returns what Spark's parser returns: the fields, also those that were read before or
after one that failed, and the reason why the record is malformed, if it is.

Fields come as Python values that pyarrow takes: days and microseconds as numbers, structs as dicts, maps as pairs.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from pyspark.sql import types as t

from sparkonce.connectors.values import datetimes
from sparkonce.connectors.values.jackson import JsonError, Token, Tokens, text_of, well_formed
from sparkonce.connectors.values.options import JsonOptions
from sparkonce.connectors.values.zones import parse_zone

SHOWN_CHARACTERS = 60
"""The part of a value that a reason quotes."""

_NOT_NUMBERS = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
_RANGES: Mapping[type[t.DataType], tuple[int, int]] = {
    t.ByteType: (-128, 255),  # Jackson lets unsigned bytes pass, and Java wraps them
    t.ShortType: (-(1 << 15), (1 << 15) - 1),
    t.IntegerType: (-(1 << 31), (1 << 31) - 1),
    t.LongType: (-(1 << 63), (1 << 63) - 1),
}
_MAX_DECIMAL_EXPONENT = 400
_DECIMAL = re.compile(r"[+-]?(?=\.?\d)\d*\.?\d*(?:[eE]([+-]?\d+))?")
_MAX_EXPONENT = 1 << 31
"""Java has exponents of 32 bits."""

Convert = Callable[[Tokens], Any]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of one record."""

    fields: dict[str, Any] | None
    """None for a text without any token, which is not a record."""
    problem: str | None = None
    """Why the record is malformed; then ``fields`` holds what could be read."""


class _MisfitError(ValueError):
    """A value that does not fit its type."""


class _PartialError(ValueError):
    """A struct, array or map of which a part does not fit; the rest is kept."""

    def __init__(self, kept: Any, cause: str) -> None:
        super().__init__(cause)
        self.kept = kept


class JacksonParser:
    """Decodes records of one schema, one at a time."""

    def __init__(self, options: JsonOptions) -> None:
        self._schema = t.StructType([field for field in options.schema if field.name != options.corrupt_column])
        self._zone = parse_zone(options.time_zone)
        self._options = options
        self._converters = {field.name: self._converter(field.dataType) for field in self._schema}

    def parse(self, raw: bytes) -> Parsed:
        """Decode one record."""
        tokens = Tokens(text_of(raw))
        nothing = dict.fromkeys(self._schema.names)
        try:
            first = tokens.next()
            if first is None:
                return Parsed(None)
            if first is not Token.START_OBJECT:
                return Parsed(nothing, f"it is not a JSON object, but {_kind(tokens)}")
            return Parsed(_object(tokens, self._converters))
        except _PartialError as error:
            return Parsed(error.kept, str(error))
        except JsonError as error:
            return Parsed(nothing, f"it is not JSON: {error}")

    def _converter(self, kind: t.DataType) -> Convert:
        """Return the function that converts the next or the current value of the reader."""
        convert = self._by_token(kind)
        name = kind.simpleString()

        def checked(tokens: Tokens) -> Any:
            while tokens.token is Token.NAME:
                tokens.next()
            if tokens.token is None or tokens.token is Token.NULL:
                return None
            try:
                return convert(tokens)
            except (_PartialError, _MisfitError, JsonError):
                raise
            except ValueError as error:
                reason = f": {error}" if str(error) else ""
                raise _MisfitError(f"{_kind(tokens)} is not of type {name}{reason}") from None

        return checked

    def _by_token(self, kind: t.DataType) -> Convert:
        if isinstance(kind, t.StructType):
            converters = {field.name: self._converter(field.dataType) for field in kind}
            return lambda tokens: _object(_at(tokens, Token.START_OBJECT), converters)
        if isinstance(kind, t.ArrayType):
            element = self._converter(kind.elementType)
            return lambda tokens: _array(_at(tokens, Token.START_ARRAY), element)
        if isinstance(kind, t.MapType):
            value = self._converter(kind.valueType)
            return lambda tokens: _map(_at(tokens, Token.START_OBJECT), value)
        if isinstance(kind, t.DecimalType):
            precision, scale = kind.precision, kind.scale
            return lambda tokens: _decimal(tokens, precision, scale)
        if type(kind) in _RANGES:
            least, most = _RANGES[type(kind)]
            wrap = 256 if isinstance(kind, t.ByteType) else 0
            return lambda tokens: _integer(tokens, least, most, wrap)
        return self._simple(kind)

    def _simple(self, kind: t.DataType) -> Convert:
        options, zone = self._options, self._zone
        read: Callable[[str], int]
        if isinstance(kind, t.DateType):
            read = datetimes.pattern_date(options.date_format) if options.date_format else datetimes.cast_date
            return lambda tokens: read(_text(tokens))
        if isinstance(kind, t.TimestampNTZType):
            pattern = options.timestamp_ntz_format
            read = datetimes.pattern_timestamp_ntz(pattern) if pattern else datetimes.cast_timestamp_ntz
            return lambda tokens: read(_text(tokens))
        if isinstance(kind, t.TimestampType):
            pattern = options.timestamp_format
            if pattern:
                read = datetimes.pattern_timestamp(pattern, zone)
            else:
                read = lambda text: datetimes.cast_timestamp(text, zone)  # noqa: E731
            return lambda tokens: _timestamp(tokens, read)
        return _SIMPLE[type(kind)]


def _object(tokens: Tokens, converters: Mapping[str, Convert]) -> dict[str, Any]:
    """Read the fields of an object; one that does not fit is null, and the others are still read."""
    made: dict[str, Any] = dict.fromkeys(converters)
    problem: str | None = None
    while tokens.next() not in (None, Token.END_OBJECT):
        name = tokens.name
        convert = converters.get(name) if name is not None else None
        if name is None or convert is None:
            tokens.skip_children()
            continue
        try:
            made[name] = convert(tokens)
        except _PartialError as error:
            problem = problem or f"field {name}: {error}"
            made[name] = error.kept
        except ValueError as error:
            problem = problem or f"field {name}: {error}"
            tokens.skip_children()
    if problem is not None:
        raise _PartialError(made, problem)
    return made


def _array(tokens: Tokens, element: Convert) -> list[Any]:
    """Read the elements of an array, all of which must fit, at least in part."""
    made: list[Any] = []
    problem: str | None = None
    while tokens.next() not in (None, Token.END_ARRAY):
        try:
            made.append(element(tokens))
        except _PartialError as error:
            problem = problem or f"element {len(made)}: {error}"
            made.append(error.kept)
    if problem is not None:
        raise _PartialError(made, problem)
    return made


def _map(tokens: Tokens, value: Convert) -> list[tuple[str, Any]]:
    """Read the entries of a map, duplicates included. A value that does not fit at all makes it fail."""
    made: list[tuple[str, Any]] = []
    problem: str | None = None
    misfit: str | None = None
    while tokens.next() not in (None, Token.END_OBJECT):
        name = well_formed(tokens.name or "")
        try:
            made.append((name, value(tokens)))
        except _PartialError as error:
            problem = problem or f"key {name}: {error}"
            made.append((name, error.kept))
        except ValueError as error:
            misfit = misfit or f"key {name}: {error}"
            tokens.skip_children()
    if misfit is not None:
        raise _MisfitError(misfit)
    if problem is not None:
        raise _PartialError(made, problem)
    return made


def _at(tokens: Tokens, *wanted: Token) -> Tokens:
    if tokens.token not in wanted:
        raise ValueError
    return tokens


def _kind(tokens: Tokens) -> str:
    """Describe the value that the reader is at."""
    token = tokens.token
    if token in (Token.INTEGER, Token.FLOAT):
        return tokens.literal[:SHOWN_CHARACTERS]
    if token is Token.STRING:
        text = tokens.string()
        shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
        return repr(shown) if text else "an empty string"
    return (
        {Token.START_OBJECT: "an object", Token.START_ARRAY: "an array", Token.TRUE: "true", Token.FALSE: "false"}.get(
            token, "null" if token is Token.NULL else "the end of an array or object"
        )
        if token is not None
        else "nothing"
    )


def _text(tokens: Tokens) -> str:
    """Return the text of a string that is not empty."""
    text = _at(tokens, Token.STRING).string()
    if not text:
        raise ValueError
    return text


def _boolean(tokens: Tokens) -> bool:
    return _at(tokens, Token.TRUE, Token.FALSE).token is Token.TRUE


def _integer(tokens: Tokens, least: int, most: int, wrap: int = 0) -> int:
    number = int(_at(tokens, Token.INTEGER).literal)
    if not least <= number <= most:
        raise ValueError("it is out of range")
    return number - wrap if wrap and number >= wrap // 2 else number


def _timestamp(tokens: Tokens, read: Callable[[str], int]) -> int:
    if tokens.token is not Token.INTEGER:
        return read(_text(tokens))
    micros = _integer(tokens, *_RANGES[t.LongType]) * datetimes.MICROS_PER_SECOND
    return (micros + (1 << 63)) % (1 << 64) - (1 << 63)  # Java's product wraps


def _double(tokens: Tokens) -> float:
    if tokens.token is Token.STRING:
        return _not_number(tokens)
    if _at(tokens, Token.INTEGER, Token.FLOAT).token is Token.INTEGER and tokens.literal == "-0":
        return 0.0
    return float(tokens.literal)


def _float(tokens: Tokens) -> float:
    number = _double(tokens)
    # What is 0 as a double is 0 as a float; as an exact fraction 1e-999999999 would take hours.
    if number == 0 or math.isinf(number) or math.isnan(number):
        return number
    with np.errstate(over="ignore"):
        rounded = np.float32(number)
        exact = Fraction(tokens.literal)
        if not math.isinf(rounded) and Fraction(number) != exact:  # rounded twice: check which neighbour is nearer
            toward = np.float32(math.inf if exact > Fraction(number) else -math.inf)
            other = np.nextafter(rounded, toward)
            if not math.isinf(other) and abs(Fraction(float(other)) - exact) < abs(Fraction(float(rounded)) - exact):
                rounded = other
    return float(rounded)


def _not_number(tokens: Tokens) -> float:
    text = _text(tokens)
    if text not in _NOT_NUMBERS:
        raise ValueError
    return _NOT_NUMBERS[text]


def _decimal(tokens: Tokens, precision: int, scale: int) -> decimal.Decimal:
    text = _text(tokens).replace(",", "") if tokens.token is Token.STRING else tokens.literal
    _at(tokens, Token.STRING, Token.INTEGER, Token.FLOAT)
    # Only what Java's BigDecimal reads: Python's would accept NaN, spaces and underscores as well.
    found = _DECIMAL.fullmatch(text)
    if found is None or not datetimes.has_java_digits(text) or not -_MAX_EXPONENT <= int(found[1] or 0) < _MAX_EXPONENT:
        raise ValueError
    number = decimal.Decimal(text)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent <= -_MAX_EXPONENT:
        raise ValueError
    if number.is_zero() or number.adjusted() < -_MAX_DECIMAL_EXPONENT:
        return decimal.Decimal(0).scaleb(-scale)
    if number.adjusted() > precision - scale:
        raise ValueError("it has too many digits")
    with decimal.localcontext(prec=precision + abs(number.adjusted()) + len(text), rounding=decimal.ROUND_HALF_UP):
        rounded = number.quantize(decimal.Decimal(1).scaleb(-scale))
    if len(rounded.as_tuple().digits) > precision:
        raise ValueError("it has too many digits")
    return rounded


def _string(tokens: Tokens) -> str:
    """Return a string, or the JSON of any other value, written again without spaces."""
    if tokens.token is Token.STRING:
        return tokens.string()
    if tokens.token in (Token.END_OBJECT, Token.END_ARRAY):
        raise ValueError
    parts: list[str] = []
    depth = 0
    comma = False
    while True:
        token = tokens.token
        if token in (Token.END_OBJECT, Token.END_ARRAY):
            depth -= 1
            parts.append("}" if token is Token.END_OBJECT else "]")
            comma = True
        else:
            parts.append("," if comma else "")
            comma = token not in (Token.START_OBJECT, Token.START_ARRAY, Token.NAME)
            depth += token in (Token.START_OBJECT, Token.START_ARRAY)
            parts.append(_written(tokens))
        if depth == 0:
            return "".join(parts)
        if tokens.next() is None:
            raise JsonError("it ends too early")


def _written(tokens: Tokens) -> str:
    token = tokens.token
    if token is Token.NAME:
        return f"{_quoted(tokens.name or '')}:"
    if token is Token.STRING:
        return _quoted(tokens.characters())
    if token is Token.INTEGER:
        return str(int(tokens.literal))
    if token is Token.FLOAT:
        return java_double(float(tokens.literal))
    return (
        {
            Token.START_OBJECT: "{",
            Token.START_ARRAY: "[",
            Token.TRUE: "true",
            Token.FALSE: "false",
            Token.NULL: "null",
        }.get(token, "")
        if token is not None
        else ""
    )


_WRITTEN_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _quoted(text: str) -> str:
    """Return a string in the form of Jackson's UTF8JsonGenerator: surrogates become escapes, a lone one, too."""
    return f'"{"".join(_WRITTEN_ESCAPES.get(char) or _written_char(char) for char in text)}"'


def _written_char(char: str) -> str:
    if char < " " or "\ud800" <= char <= "\udfff":
        return f"\\u{ord(char):04X}"
    if char <= "\uffff":
        return char
    high, low = divmod(ord(char) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def java_double(number: float) -> str:
    """Return a number in Java's form; NaN and infinities are quoted."""
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    sign, digits, exponent = decimal.Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent if number else 1
    if number and not -3 < point <= 7:
        made = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    elif point <= 0:
        made = f"0.{'0' * -point}{text}"
    else:
        text = text.ljust(point, "0")
        made = f"{text[:point]}.{text[point:] or '0'}"
    return "-" + made if sign else made


_SIMPLE: Mapping[type[t.DataType], Convert] = {
    t.BooleanType: _boolean,
    t.FloatType: _float,
    t.DoubleType: _double,
    t.StringType: _string,
    t.BinaryType: lambda tokens: _at(tokens, Token.STRING).binary(),
}
