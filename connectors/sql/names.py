"""Messages about rejected expressions: their types, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from pyspark.sql.types import DataType

from sparkonce.connectors.sql.casts import cast_of
from sparkonce.connectors.sql.kinds import INTERVALS
from sparkonce.connectors.sql.meanings import Argument
from sparkonce.connectors.sql.rules import NAMES
from sparkonce.connectors.sql.tree import NO_INTERVAL, refused
from sparkonce.options import OptionError

INTERNAL = frozenset(["and", "or", "not", "in", "between", "case", "coalesce", "second_with_fraction"])
"""Names in the table that no function has."""
_SPECIAL = frozenset(["transform", "filter", "explode", "unnest", "named_struct", "date_part", "coalesce"])
FUNCTIONS = sorted({name for name in NAMES - INTERNAL if name.isidentifier() and name != "list_value"} | _SPECIAL)
"""The functions that a SELECT may call, for the page and for suggestions."""

_NOT_REPEATABLE = frozenset(
    [
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
    ]
)
"""Functions whose result differs when a batch is written again: nothing similar is suggested for them."""
_INSTEAD = {
    "ilike": "lower(x) LIKE 'pattern' in lower case",
    "regexp_matches": "regexp_like",
    "regexp_full_match": r"regexp_like(x, r'^(?:pattern)\z') for SIMILAR TO",
    "encode": "CAST(x AS BINARY)",
    "decode": "CAST(x AS STRING)",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "position": "locate",
    "~~*": "lower(x) LIKE 'pattern' in lower case",
    "!~~*": "lower(x) NOT LIKE 'pattern' in lower case",
    "list_apply": "transform(array, x -> ...)",
    "list_filter": "filter(array, x -> ...)",
    "list_transform": "transform(array, x -> ...)",
    "<=>": "IS NOT DISTINCT FROM",
    "string": "CAST(x AS STRING)",
    "len": "length",
}
"""Replacements for names that Spark lacks, or that mean something else there."""


_OF_PYTHON = frozenset(
    ["broadcast", "call_function", "call_udf", "col", "column", "expr", "lit", "udf", "udtf", "when"]
)
"""Names of PySpark's functions that Spark's SQL does not have."""
_ONLY_SQL = frozenset(["map"])
_ALIKE = 0.75
"""Below, what is suggested is another function, not the one that is misspelled."""


def unknown(name: str, way_out: str, *, is_aggregate: bool) -> OptionError:
    """Return the error that a function is unknown or not allowed."""
    if is_aggregate:
        name = name.removesuffix("_star")
        return refused(f"{name}: aggregates are not possible: each record is processed on its own")
    if name in _NOT_REPEATABLE:
        why = "a batch that is written again must have the same rows (timestamp is the record's time)"
        return refused(f"function {name} is unknown or not allowed: {why}")
    if name not in _INSTEAD and _is_of_spark(name):
        return refused(
            f"function {name} of Spark is unknown here: no form of it is known to return the same; {way_out}"
        )
    near = [_INSTEAD[name]] if name in _INSTEAD else get_close_matches(name, FUNCTIONS, n=3, cutoff=_ALIKE)
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/sql_functions.md lists what there is"
    return refused(f"function {name} is unknown or not allowed; {hint}")


def _is_of_spark(name: str) -> bool:
    from pyspark.sql import functions  # imported lazily: half a second, for an error only

    return name in _ONLY_SQL or name in {*functions.__all__} - _OF_PYTHON


def not_possible(name: str, arguments: Sequence[Argument], way_out: str) -> str:
    """Return the message that a function or operator is not possible for these arguments."""
    if name in INTERVALS:
        return NO_INTERVAL
    types = ", ".join(each.type.simpleString() for each in arguments) or "no arguments"
    return (
        f"{name}({types}) is not possible here: no form of it is known to return what Spark returns; "
        f"cast an argument, write a constant, or leave it to Spark: {way_out}"
    )


def no_cast(source: DataType, target: DataType, way_out: str, *, to_null: bool) -> str:
    """Return the message that a cast is not possible."""
    shown = f"{source.simpleString()} cannot be cast to {target.simpleString()} here"
    plain = cast_of(source, target)
    if to_null and plain is not None:
        return f"TRY_CAST: {shown}: {plain.stricter} would be null, and Spark has a value; CAST fails there; {way_out}"
    return f"{shown}: the engine and Spark may differ; {way_out}"
