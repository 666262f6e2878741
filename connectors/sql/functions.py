"""The functions that a SELECT may call, each as the engine's expression that returns what Spark's function returns.

A name that is not here is refused. A list of the forbidden would not do: the engine's catalog has functions that read
files or settings, wait, or return something else each time, and calls some of these consistent
(``current_localtimestamp``). Where a result still differs from Spark's, docs/direct_sql.md says how; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from sparkonce.connectors.sql.casts import BYTES, DECIMAL, LIST, MAP, REAL, TEXT, WHOLE

VARIADIC = {
    "array": "list_value",
    "concat_ws": "concat_ws",
    "greatest": "greatest",
    "least": "least",
    "list_value": "list_value",
    "map": "map",
    "struct_pack": "struct_pack",
}
"""Functions with any number of arguments, and their names in the engine. ``[1, 2]``, ``{'a': 1}`` and ``map {…}`` are
`list_value`, `struct_pack` and `map` in its parse tree."""

UNNEST = ("unnest", "explode")
"""Functions that make several rows."""

LIKE = {"~~": "~~", "!~~": "!~~", "~~*": "~~*", "!~~*": "!~~*"}
"""The engine's names of ``LIKE``, ``NOT LIKE``, ``ILIKE`` and ``NOT ILIKE``."""

ESCAPED = {"~~": "like_escape", "!~~": "not_like_escape", "~~*": "ilike_escape", "!~~*": "not_ilike_escape"}
"""The same with a character that escapes ``%`` and ``_``: Spark's is a backslash, the engine has none by default."""


def _same(arguments: int, names: str) -> dict[str, str]:
    places = ", ".join(f"${place}" for place in range(1, arguments + 1))
    return {f"{name}/{arguments}": f"{name}({places})" for name in names.split()}


def _fails(message: str) -> str:
    """Return an expression that makes its row fail, with this message: a cast of it."""
    return f"CAST({message} AS INTEGER)"


def _padded(name: str) -> str:
    return f"CASE WHEN $3 = '' THEN left($1, greatest($2, 0)) ELSE {name}($1, greatest($2, 0), $3) END"


OF_TEXT = {
    **_same(1, "lower upper reverse md5 hex"),
    **_same(2, "contains starts_with ends_with"),
    **_same(3, "replace translate"),
    "left/2": "left($1, greatest($2, 0))",
    "right/2": "right($1, greatest($2, 0))",
    "lpad/3": _padded("lpad"),
    "rpad/3": _padded("rpad"),
    "unhex/1": "TRY(unhex($1))",
    "trim/1": "trim($1, ' ')",
    "ltrim/1": "ltrim($1, ' ')",
    "rtrim/1": "rtrim($1, ' ')",
    "trim/2": "trim($1, $2)",
    "ltrim/2": "ltrim($1, $2)",
    "rtrim/2": "rtrim($1, $2)",
    "lpad/2": "lpad($1, greatest($2, 0), ' ')",
    "rpad/2": "rpad($1, greatest($2, 0), ' ')",
    "repeat/2": "repeat($1, $2)",
    "instr/2": "CAST(instr($1, $2) AS INTEGER)",
    "position/2": "CAST(instr($1, $2) AS INTEGER)",  # the parser makes position(text, part) of POSITION(part IN text)
    "locate/2": "CAST(instr($2, $1) AS INTEGER)",
    "ascii/1": "CAST(ascii($1) AS INTEGER)",
    "substring/2": "substring($1, CASE WHEN $2 = 0 THEN 1 ELSE $2 END)",
    "substring/3": "substring($1, CASE WHEN $2 = 0 THEN 1 ELSE $2 END, greatest($3, 0))",
    "substr/2": "substring($1, CASE WHEN $2 = 0 THEN 1 ELSE $2 END)",
    "substr/3": "substring($1, CASE WHEN $2 = 0 THEN 1 ELSE $2 END, greatest($3, 0))",
    "split/2": "string_split_regex($1, $2)",
    "split_part/3": "split_part($1, $2, $3)",
    "startswith/2": "starts_with($1, $2)",
    "endswith/2": "ends_with($1, $2)",
    "sha/1": "sha1($1)",
    "sha1/1": "sha1($1)",
    "base64/1": "to_base64($1)",
    "unbase64/1": "from_base64($1)",
    "encode/1": "encode($1)",
    "decode/1": "decode($1)",
    "regexp_like/2": "regexp_matches($1, $2)",
    "regexp_matches/2": "regexp_matches($1, $2)",
    "regexp_full_match/2": "regexp_full_match($1, $2)",
    "regexp_extract/2": "regexp_extract($1, $2, 1)",
    "regexp_extract/3": "regexp_extract($1, $2, $3)",
    "regexp_replace/3": "regexp_replace($1, $2, $3, 'g')",
    "get_json_object/2": "json_extract_string($1, $2)",
}
OF_NUMBERS = {
    **_same(0, "pi"),
    **_same(1, "abs sqrt cbrt exp ln log10 log2 degrees radians sin cos tan cot asin acos atan sinh cosh tanh"),
    **_same(1, "round trunc"),
    **_same(2, "pow power atan2 round nullif"),
    "isnan/1": "coalesce(isnan($1), false)",
    "log/1": "ln($1)",
    "mod/2": "$1 % $2",
    "negative/1": "-$1",
    "try_divide/2": "CASE WHEN $2 <> 0 THEN $1 / $2 END",
}
OF_CHOICE = {
    **_same(3, "if"),
    "nvl/2": "coalesce($1, $2)",
    "ifnull/2": "coalesce($1, $2)",
    "nvl2/3": "CASE WHEN $1 IS NOT NULL THEN $2 ELSE $3 END",
    "isnull/1": "$1 IS NULL",
    "isnotnull/1": "$1 IS NOT NULL",
}
_TIMESTAMP_OF = "TIMESTAMPTZ '1970-01-01 00:00:00+00' + {}"
_PARTS = "year quarter month day hour minute second dayofyear weekofyear"
OF_DATES = {
    **{f"{part}/1": f"CAST({part}($1) AS INTEGER)" for part in _PARTS.split()},
    **_same(1, "last_day to_days to_hours to_minutes to_seconds to_months to_weeks to_years"),
    **_same(3, "make_date"),
    "dayofmonth/1": "CAST(day($1) AS INTEGER)",
    "dayofweek/1": "CAST(dayofweek($1) + 1 AS INTEGER)",
    "weekday/1": "CAST(isodow($1) - 1 AS INTEGER)",
    "dayname/1": "left(dayname($1), 3)",
    "monthname/1": "left(monthname($1), 3)",
    "second_with_fraction/1": "CAST(date_part('microseconds', $1) / 1000000 AS DECIMAL(8, 6))",
    "date_trunc/2": "date_trunc($1, CAST($2 AS TIMESTAMPTZ))",
    "date_add/2": "CAST($1 AS DATE) + CAST($2 AS INTEGER)",
    "date_sub/2": "CAST($1 AS DATE) - CAST($2 AS INTEGER)",
    "datediff/2": "CAST(CAST($1 AS DATE) - CAST($2 AS DATE) AS INTEGER)",
    "date_diff/2": "CAST(CAST($1 AS DATE) - CAST($2 AS DATE) AS INTEGER)",
    "add_months/2": "CAST(CAST($1 AS DATE) + to_months($2) AS DATE)",
    "date/1": "CAST($1 AS DATE)",
    "to_date/1": "CAST($1 AS DATE)",
    "to_timestamp/1": "CAST($1 AS TIMESTAMPTZ)",
    "unix_date/1": "CAST($1 - DATE '1970-01-01' AS INTEGER)",
    "unix_seconds/1": "CAST(floor(epoch_us($1) / 1000000) AS BIGINT)",
    "unix_millis/1": "CAST(floor(epoch_us($1) / 1000) AS BIGINT)",
    "unix_micros/1": "epoch_us($1)",
    "timestamp_seconds/1": _TIMESTAMP_OF.format("to_microseconds(CAST($1 * 1000000 AS BIGINT))"),
    "timestamp_millis/1": _TIMESTAMP_OF.format("to_microseconds(CAST($1 AS BIGINT) * 1000)"),
    "timestamp_micros/1": _TIMESTAMP_OF.format("to_microseconds(CAST($1 AS BIGINT))"),
    "strftime/2": "strftime($1, $2)",
}
_NO_ELEMENT = _fails("'element_at: no element ' || $2 || ' in an array of ' || len($1)")
OF_NESTED = {
    **_same(1, "map_keys map_values map_entries"),
    "array_contains/2": "CASE WHEN list_contains($1, $2) THEN true "
    "WHEN len(list_filter($1, lambda each: each IS NULL)) = 0 AND $2 IS NOT NULL THEN false END",
    "flatten/1": "CASE WHEN len(list_filter($1, lambda each: each IS NULL)) = 0 THEN flatten($1) END",
    "get/2": "CASE WHEN $2 >= 0 THEN list_extract($1, $2 + 1) END",
    "try_element_at/2": "list_extract($1, $2)",
    "element_at/2": f"list_extract($1, CASE WHEN abs($2) > len($1) OR $2 = 0 THEN {_NO_ELEMENT} ELSE $2 END)",
    "array_max/1": "list_max($1)",
    "array_min/1": "list_min($1)",
    "array_join/2": "array_to_string($1, $2)",
    "transform/2": "list_transform($1, $2)",
    "filter/2": "list_filter($1, $2)",
    "list_transform/2": "list_transform($1, $2)",
    "list_apply/2": "list_transform($1, $2)",  # the parser makes these two of [x + 1 for x in numbers if x > 1]
    "list_filter/2": "list_filter($1, $2)",
    "struct_extract/2": "struct_extract($1, $2)",
    "unnest/1": "unnest($1)",
    "explode/1": "unnest($1)",
}
OPERATORS = {
    **{f"{sign}/2": f"$1 {sign} $2" for sign in ("+", "-", "*", "/", "%", "||", "~~", "!~~", "~~*", "!~~*")},
    "///2": "CAST($1 // $2 AS BIGINT)",
    "-/1": "-$1",
    "+/1": "+$1",
}
TEMPLATES = {**OF_TEXT, **OF_NUMBERS, **OF_CHOICE, **OF_DATES, **OF_NESTED, **OPERATORS}
"""By name and number of arguments, with the arguments as ``$1``, ``$2`` …"""

_LENGTH = {TEXT: "CAST(length($1) AS INTEGER)", BYTES: "CAST(octet_length($1) AS INTEGER)"}
_OCTETS = {TEXT: "CAST(octet_length(encode($1)) AS INTEGER)", BYTES: "CAST(octet_length($1) AS INTEGER)"}
_SIZE = {LIST: "CAST(len($1) AS INTEGER)", MAP: "CAST(cardinality($1) AS INTEGER)"}
_CEIL = {WHOLE: "CAST($1 AS BIGINT)", REAL: "CAST(ceil($1) AS BIGINT)", DECIMAL: "ceil($1)"}
_SIGN = "CAST(sign($1) AS DOUBLE)"
TYPED = {
    "length": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "octet_length": _OCTETS,
    "size": _SIZE,
    "cardinality": _SIZE,
    "array_size": {LIST: _SIZE[LIST]},
    "ceil": _CEIL,
    "ceiling": _CEIL,
    "floor": {**_CEIL, REAL: "CAST(floor($1) AS BIGINT)", DECIMAL: "floor($1)"},
    "sign": {WHOLE: _SIGN, DECIMAL: _SIGN, REAL: f"CASE WHEN isnan($1) THEN CAST($1 AS DOUBLE) ELSE {_SIGN} END"},
}
"""Functions of one argument that differ by its type's kind."""

DATE_PARTS = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "dayofweek": "dayofweek",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "hour": "hour",
    "minute": "minute",
    "second": "second_with_fraction",
}
"""What ``EXTRACT(part FROM date)`` and ``date_part`` return, by part."""

JOINED = ("concat", "concat_ws", "||")
"""Functions that cast all arguments to text."""

WHOLE_DAYS = ("to_days", "to_weeks", "to_months", "to_years")
"""Intervals that leave a date a date."""

LAMBDAS = frozenset(["transform", "filter", "list_transform", "list_apply", "list_filter"])
"""Functions of an array and a lambda over its elements."""

NAMES = frozenset([*(key.rpartition("/")[0] for key in TEMPLATES), *VARIADIC, *TYPED, "concat", "date_part"])


def arities(name: str) -> list[int]:
    """Return how many arguments a function of `TEMPLATES` may have."""
    if name in TYPED:
        return [1]
    return sorted(int(key.rpartition("/")[2]) for key in TEMPLATES if key.rpartition("/")[0] == name)


NOT_REPEATABLE = frozenset(
    {
        "current_date",
        "current_localtime",
        "current_localtimestamp",
        "current_time",
        "current_timestamp",
        "gen_random_uuid",
        "get_current_time",
        "get_current_timestamp",
        "localtimestamp",
        "now",
        "rand",
        "randn",
        "random",
        "today",
        "transaction_timestamp",
        "uuid",
        "uuidv4",
        "uuidv7",
    }
)
"""Functions that give another result when a batch is written again: nothing similar is suggested for them."""


def similar(name: str) -> Iterable[str]:
    """Return the names most similar to an unknown one."""
    return get_close_matches(name, [each for each in NAMES if each[0].isalpha()], n=3, cutoff=0.6)
