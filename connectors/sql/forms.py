"""Every function and operator that a SELECT may use: for which argument types, and the engine's expression.

Others are rejected when the query starts. Those here return what Spark's function returns, for every value:
a comparison over values at the edges of each type takes its expressions from this table (tests/spark/sql_pairs.py), so
that the two cannot differ. If a row fails that Spark accepts, a form says so (`stricter`).

A `Form` has the types of its arguments in its signature; a rule, in `sparkonce.connectors.sql.rules`, finds types and
expression from those of the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INSTANT = ("date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True, slots=True)
class Form:
    """A function for some types of arguments."""

    takes: tuple[str, ...]
    """Simple types, which accept narrower ones (not after a ``=``), or kinds of constants."""
    returns: str
    engine: str
    """With the arguments as ``$1``, ``$2`` …"""
    stricter: str = ""
    """Which rows fail that Spark accepts."""


def _form(takes: str, returns: str, engine: str, stricter: str = "") -> Form:
    return Form(tuple(each.strip() for each in takes.split(",")) if takes else (), returns, engine, stricter)


def _fails(message: str) -> str:
    """Return an expression that makes its row fail, with this message: a cast of it."""
    return f"CAST({message} AS INTEGER)"


def _least_0(place: int) -> str:
    """Return a number of characters: none if it is negative. ``greatest`` would ignore null."""
    return f"CASE WHEN ${place} < 0 THEN 0 ELSE ${place} END"


_FAR = "days beyond the year 5,881,580"
_NOT_LOWER = _fails("'no lower case is known: ' || $1")
_ASCII = "strlen($1) = length($1)"
_LENGTH = (
    _form("string", "int", "CAST(length($1) AS INTEGER)"),
    _form("binary", "int", "CAST(octet_length($1) AS INTEGER)"),
)
_SHA1 = (_form("string", "string", "sha1($1)"), _form("binary", "string", "sha1($1)"))
_START = "CASE WHEN $2 = 0 THEN 1 ELSE $2 END"
_SUBSTRING = (
    _form("string, int", "string", f"substring($1, {_START}, 2147483647)"),
    _form("string, int, int", "string", f"substring($1, {_START}, {_least_0(3)})"),
)
_FLOOR = (
    "CASE WHEN isnan($1) THEN 0 WHEN $1 >= 9223372036854775808 THEN 9223372036854775807 "
    "WHEN $1 <= -9223372036854775808 THEN -9223372036854775808 ELSE CAST({}($1) AS BIGINT) END"
)
_SIGN = "CASE WHEN isnan($1) THEN $1 WHEN $1 > 0 THEN 1.0 WHEN $1 < 0 THEN -1.0 ELSE $1 END"
_MATCHES = _form("string, regex", "boolean", "regexp_matches($1, $2)")


def _padded(name: str) -> tuple[Form, ...]:
    return (
        _form("string, count", "string", f"{name}($1, greatest($2, 0), ' ')"),
        _form(
            "string, count, string",
            "string",
            f"CASE WHEN $3 = '' THEN left($1, greatest($2, 0)) ELSE {name}($1, greatest($2, 0), $3) END",
        ),
    )


TEXT: Mapping[str, tuple[Form, ...]] = {
    "length": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "octet_length": (_form("string", "int", "CAST(strlen($1) AS INTEGER)"), _LENGTH[1]),
    "lower": (
        _form(
            "string",
            "string",
            f"CASE WHEN {_ASCII} THEN lower($1) WHEN $1 IS NOT NULL "
            f"THEN coalesce(lower_of($1), CAST({_NOT_LOWER} AS VARCHAR)) END",
            "a Σ beside letters that Python does not know",
        ),
    ),
    "upper": (_form("string", "string", f"CASE WHEN {_ASCII} THEN upper($1) ELSE upper_of($1) END"),),
    "md5": (_form("string", "string", "md5($1)"), _form("binary", "string", "md5($1)")),
    "sha": _SHA1,
    "sha1": _SHA1,
    "hex": tuple(_form(kind, "string", "hex($1)") for kind in ("string", "binary", "bigint")),
    "contains": (_form("string, string", "boolean", "contains($1, $2)"),),
    "startswith": (_form("string, string", "boolean", "starts_with($1, $2)"),),
    "endswith": (_form("string, string", "boolean", "ends_with($1, $2)"),),
    "replace": (_form("string, string, string", "string", "replace($1, $2, $3)"),),
    "translate": (_form("string, characters, characters", "string", "translate($1, $2, $3)"),),
    "left": (_form("string, int", "string", f"left($1, {_least_0(2)})"),),
    "right": (_form("string, int", "string", f"right($1, {_least_0(2)})"),),
    "lpad": _padded("lpad"),
    "rpad": _padded("rpad"),
    "trim": (_form("string", "string", "trim($1, ' ')"),),
    "ltrim": (_form("string", "string", "ltrim($1, ' ')"),),
    "rtrim": (_form("string", "string", "rtrim($1, ' ')"),),
    "repeat": (_form("string, count", "string", "repeat($1, $2)"),),
    "instr": (_form("string, string", "int", "CAST(instr($1, $2) AS INTEGER)"),),
    "locate": (_form("string, string", "int", "CAST(instr($2, $1) AS INTEGER)"),),
    "ascii": (_form("string", "int", "CAST(ascii($1) AS INTEGER)"),),
    "substring": _SUBSTRING,
    "substr": _SUBSTRING,
    "split": (_form("string, split separator", "array<string>", "string_split($1, $2)"),),
    "split_part": (_form("string, separator, part", "string", "split_part($1, $2, $3)"),),
    "regexp_like": (_MATCHES,),
    "rlike": (_MATCHES,),
    "regexp_extract": (
        _form("string, group pattern", "string", "regexp_extract($1, $2, 1)"),
        _form("string, regex, group", "string", "regexp_extract($1, $2, $3)"),
    ),
    "regexp_replace": (_form("string, replaced, replacement", "string", "regexp_replace($1, $2, $3, 'g')"),),
    "~~": (_form("string, like", "boolean", "$1 LIKE $2"),),
    "!~~": (_form("string, like", "boolean", "$1 NOT LIKE $2"),),
}

NUMBERS: Mapping[str, tuple[Form, ...]] = {
    "sqrt": (_form("double", "double", "CASE WHEN $1 < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt($1) END"),),
    "isnan": tuple(_form(kind, "boolean", "coalesce(isnan($1), false)") for kind in ("float", "double")),
    "floor": tuple(_form(kind, "bigint", _FLOOR.format("floor")) for kind in ("float", "double")),
    "ceil": tuple(_form(kind, "bigint", _FLOOR.format("ceil")) for kind in ("float", "double")),
    "round": tuple(_form(kind, kind, f"CAST(round($1) + 0.0 AS {kind})") for kind in ("float", "double")),
    "sign": (_form("double", "double", _SIGN),),
    "try_divide": (_form("number, number", "double", "CASE WHEN $2 <> 0 THEN $1 / $2 END"),),
}

_SECONDS = "timestamp", "timestamp_ntz"


def _part(engine: str, kinds: tuple[str, ...] = INSTANT) -> tuple[Form, ...]:
    return tuple(_form(kind, "int", f"CAST({_plain(engine, kind)} AS INTEGER)") for kind in kinds)


def _plain(engine: str, kind: str) -> str:
    """Return an expression of a time without its zone, UTC: with one, the engine has eras and Julian years."""
    return engine.replace("$1", "CAST($1 AS TIMESTAMP)") if kind == "timestamp" else engine


_FLOORED = "CASE WHEN epoch_us($1) >= 0 THEN epoch_us($1) // {0} ELSE -((-(epoch_us($1) + 1)) // {0}) - 1 END"
_DAYS = "date, date", "int", "CAST($1 - $2 AS INTEGER)"
DATES: Mapping[str, tuple[Form, ...]] = {
    "year": _part("year($1)"),
    "quarter": _part("quarter($1)"),
    "month": _part("month($1)"),
    "day": _part("day($1)"),
    "dayofmonth": _part("day($1)"),
    "dayofyear": _part("dayofyear($1)"),
    "weekofyear": _part("weekofyear($1)"),
    "dayofweek": _part("dayofweek($1) + 1"),
    "weekday": _part("isodow($1) - 1"),
    "hour": _part("hour($1)", _SECONDS),
    "minute": _part("minute($1)", _SECONDS),
    "second": _part("second($1)", _SECONDS),
    "second_with_fraction": tuple(
        _form(kind, "decimal(8,6)", _plain("CAST(date_part('microseconds', $1) / 1000000 AS DECIMAL(8, 6))", kind))
        for kind in _SECONDS
    ),
    "dayname": tuple(_form(kind, "string", _plain("left(dayname($1), 3)", kind)) for kind in INSTANT),
    "monthname": tuple(_form(kind, "string", _plain("left(monthname($1), 3)", kind)) for kind in INSTANT),
    "last_day": (_form("date", "date", "last_day($1)"),),
    "date_trunc": (
        _form("unit, timestamp", "timestamp", "CAST(date_trunc($1, CAST($2 AS TIMESTAMP)) AS TIMESTAMPTZ)"),
    ),
    "date_add": (_form("date, int", "date", "$1 + $2", _FAR),),
    "date_sub": (_form("date, int", "date", "$1 - $2", _FAR),),
    "datediff": (_form(*_DAYS),),
    "date_diff": (_form(*_DAYS),),
    "add_months": (_form("date, int", "date", "CAST($1 + to_months($2) AS DATE)", _FAR),),
    "make_date": (_form("int, int, int", "date", "make_date($1, $2, $3)"),),
    "unix_date": (_form("date", "int", "CAST($1 - DATE '1970-01-01' AS INTEGER)"),),
    "unix_seconds": (_form("=timestamp", "bigint", _FLOORED.format(1_000_000)),),
    "unix_millis": (_form("=timestamp", "bigint", _FLOORED.format(1_000)),),
    "unix_micros": (_form("=timestamp", "bigint", "epoch_us($1)"),),
    "timestamp_seconds": (_form("bigint", "timestamp", "make_timestamptz($1 * 1000000)"),),
    "timestamp_millis": (_form("bigint", "timestamp", "make_timestamptz($1 * 1000)"),),
    "timestamp_micros": (_form("bigint", "timestamp", "make_timestamptz($1)", "the last microsecond of all"),),
}

FORMS: Mapping[str, tuple[Form, ...]] = {**TEXT, **NUMBERS, **DATES}

DATE_PARTS = {
    "year": "year", "quarter": "quarter", "month": "month", "week": "weekofyear", "day": "day",
    "dayofweek": "dayofweek", "dow": "dayofweek", "doy": "dayofyear", "hour": "hour", "minute": "minute",
    "second": "second_with_fraction",
}  # fmt: skip
"""What ``EXTRACT(part FROM date)`` and ``date_part`` return, by part."""
