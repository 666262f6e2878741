"""Casts as in Spark: the pairs of types, and the engine's expression for each.

The engine alone would round where Spark truncates (1.9 to a whole number), accept text that Spark rejects ('1_000'),
and reject what Spark accepts. ``$1`` is the value, ``$T`` the engine's type; CAST is TRY_CAST in a ``TRY_CAST``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import DataType, DecimalType, StringType

from sparkonce.connectors.sql.kinds import MOST_DIGITS, REAL, TIMES, WHOLE, in_engine, kind_of, simple

MOST_EXACT_DIGITS = 15
"""The digits of a decimal that the engine's own cast rounds to the nearest DOUBLE; longer ones are cast as text."""
NAMES = (
    "BINARY, STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ"
)
"""The types that a value can be cast to."""
TYPE_NAMES = {
    "binary": "binary", "string": "string", "varchar": "string", "text": "string", "blob": "binary",
    "boolean": "boolean", "bool": "boolean", "tinyint": "tinyint", "byte": "tinyint", "smallint": "smallint",
    "short": "smallint", "int": "int", "integer": "int", "bigint": "bigint", "long": "bigint", "float": "float",
    "real": "float", "double": "double", "date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp",
    "timestamp with time zone": "timestamp", "timestamptz": "timestamp", "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
"""Spark's names, and what the parser makes of some of them. ``TIMESTAMP`` is Spark's: a point in time."""


@dataclass(frozen=True, slots=True)
class Cast:
    """How a value is cast."""

    engine: str
    stricter: str = ""
    """Which rows fail that Spark accepts: impossible where a failure gives null."""


_PLAIN = Cast("CAST($1 AS $T)")
_SPACE = r"[\x00-\x20\x7F]*"


def _of_text(pattern: str, what: str, stricter: str = "") -> Cast:
    """Return the cast of text that matches a pattern as a whole, spaces aside; other text fails."""
    whole = f"'{_SPACE}({pattern}){_SPACE}'"
    inner = f"regexp_extract($1, '^{_SPACE}({pattern}){_SPACE}$', 1)"
    return Cast(
        f"CAST(CASE WHEN regexp_full_match($1, {whole}) THEN {inner} ELSE $1 || ' (not {what})' END AS $T)", stricter
    )


_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])?"
_DATES_OF_TEXT = "text other than yyyy-MM-dd"
_TIMES_OF_TEXT = "text other than yyyy-MM-dd HH:mm:ss, with a fraction or zone"
_NUMBERS_OF_TEXT = "text such as 1.5d, 0x1p3 or NaN"
_FAR_YEARS = "years before 1 or after 9999"

_TO_BIGINT = Cast(f"CASE WHEN $1 = {2.0**63!r} THEN {2**63 - 1} ELSE CAST(trunc($1) AS $T) END")
"""Java compares with 2^63 - 1 as a DOUBLE, which is 2^63."""
_TO_FLOAT = Cast(
    "CASE WHEN isnan($1) THEN CAST($1 AS $T) WHEN $1 >= 3.4028235677973366e38 THEN CAST('Infinity' AS $T) "
    "WHEN $1 <= -3.4028235677973366e38 THEN CAST('-Infinity' AS $T) ELSE CAST($1 AS $T) END"
)
"""The smallest number that rounds to infinity instead of the largest FLOAT: half a unit in the last place above it."""
_BOOLEAN_OF_TEXT = _of_text(
    "[tT]|[tT][rR][uU][eE]|[yY]|[yY][eE][sS]|1|[fF]|[fF][aA][lL][sS][eE]|[nN]|[nN][oO]|0", "a boolean"
)
_WHOLE_OF_TEXT = _of_text("[+-]?[0-9]+", "a whole number")
_REAL_OF_TEXT = _of_text(rf"{_NUMBER}(?:[eE][+-]?[0-9]+)?", "a number", _NUMBERS_OF_TEXT)
_DECIMAL_OF_TEXT = _of_text(_NUMBER, "a number", "text with an exponent")


def _dated(engine: str, year_of: str) -> Cast:
    """Return the cast to text of a day or time: the engine writes years of other than four digits differently."""
    fails = f"CAST('year ' || year({year_of}) || ' (not 1 to 9999)' AS INTEGER)"
    return Cast(
        f"CASE WHEN year({year_of}) BETWEEN 1 AND 9999 THEN {engine} "
        f"WHEN $1 IS NOT NULL THEN CAST({fails} AS VARCHAR) END",
        _FAR_YEARS,
    )


_CASTS: dict[tuple[str, str], Cast] = {
    **{(kind, kind): Cast("$1") for kind in ("binary", "string", "boolean", "float", "double", "date", *TIMES)},
    **{(kind, other): _PLAIN for kind in WHOLE for other in (*WHOLE, "boolean", *REAL, "decimal", "string")},
    **{("boolean", other): _PLAIN for other in (*WHOLE, *REAL, "decimal", "string")},
    **{("decimal", other): Cast("CAST(trunc($1) AS $T)") for other in WHOLE},
    ("decimal", "decimal"): _PLAIN,
    **{(kind, other): Cast("CAST(trunc($1) AS $T)") for kind in REAL for other in WHOLE},
    **{(kind, "bigint"): _TO_BIGINT for kind in REAL},
    ("float", "double"): _PLAIN,
    ("double", "float"): _TO_FLOAT,
    ("string", "binary"): Cast("encode($1)"),
    ("binary", "string"): Cast("decode($1)", "bytes that are not UTF-8"),
    ("string", "boolean"): _BOOLEAN_OF_TEXT,
    **{("string", other): _WHOLE_OF_TEXT for other in WHOLE},
    **{("string", other): _REAL_OF_TEXT for other in REAL},
    ("string", "decimal"): _DECIMAL_OF_TEXT,
    ("string", "date"): _of_text(_DAY, "a date yyyy-MM-dd", _DATES_OF_TEXT),
    ("string", "timestamp"): _of_text(f"{_DAY}(?:[ T]{_TIME}{_ZONE})?", "a time yyyy-MM-dd HH:mm:ss", _TIMES_OF_TEXT),
    ("string", "timestamp_ntz"): _of_text(f"{_DAY}(?:[ T]{_TIME})?", "a time yyyy-MM-dd HH:mm:ss", _TIMES_OF_TEXT),
    ("date", "string"): _dated("CAST($1 AS VARCHAR)", "$1"),
    ("timestamp_ntz", "string"): _dated("CAST($1 AS VARCHAR)", "$1"),
    ("timestamp", "string"): _dated("CAST(CAST($1 AS TIMESTAMP) AS VARCHAR)", "CAST($1 AS TIMESTAMP)"),
    **{(kind, "date"): _PLAIN for kind in TIMES},
    **{("date", kind): _PLAIN for kind in TIMES},
    ("timestamp", "timestamp_ntz"): _PLAIN,
    ("timestamp_ntz", "timestamp"): _PLAIN,
}


def named_type(name: str, digits: tuple[int, ...]) -> DataType | None:
    """Return the type that a SELECT casts to; None for one that is not supported."""
    lower = name.lower()
    if lower in ("decimal", "dec", "numeric"):
        precision, scale = (*digits, 0)[:2] if digits else (10, 0)
        return DecimalType(precision, scale) if 0 < precision <= 38 and 0 <= scale <= precision else None
    return simple(TYPE_NAMES[lower]) if lower in TYPE_NAMES and not digits else None


def _shown(source: DataType) -> Cast | None:
    """Return the text of a decimal; one without whole digits gets one, since the engine leaves out the 0."""
    assert isinstance(source, DecimalType)
    if source.precision > source.scale:
        return _PLAIN
    if source.precision == MOST_DIGITS:
        return None
    return Cast(f"CAST(CAST($1 AS DECIMAL({source.precision + 1}, {source.scale})) AS $T)")


def cast_of(source: DataType, target: DataType, *, to_null: bool = False) -> Cast | None:
    """Return how ``$1`` is cast, with ``to_null`` as TRY_CAST; None if that is impossible with Spark's results."""
    kinds = kind_of(source), kind_of(target)
    if kinds[0] == "void":
        return Cast(f"CAST($1 AS {in_engine(target)})")
    if kinds[0] == "decimal" and kinds[1] in REAL:
        assert isinstance(source, DecimalType)
        short = source.precision <= MOST_EXACT_DIGITS and kinds[1] == "double"
        found: Cast | None = _PLAIN if short else Cast("CAST(CAST($1 AS VARCHAR) AS $T)")
    elif kinds == ("decimal", "string"):
        found = _shown(source)
    elif kinds[0] == "boolean" and isinstance(target, DecimalType) and target.precision == target.scale:
        found = None  # the engine casts true to the smallest fraction
    else:
        found = _CASTS.get(kinds)
    if found is None or (to_null and found.stricter):
        return None
    engine = found.engine.replace("$T", in_engine(target))
    if to_null:
        engine = engine.replace("CAST(", "TRY_CAST(")
    return Cast(engine, found.stricter)


def text_of(source: DataType) -> Cast | None:
    """Return the implicit cast of a value to text, as in concat; None if there is none."""
    return None if kind_of(source) == "binary" else cast_of(source, StringType())
