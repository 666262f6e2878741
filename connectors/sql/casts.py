"""Casts, as Spark does them: which pairs of types there are, and the engine's expression for each.

The engine alone would round where Spark truncates (1.9 to a whole number), accept text that Spark rejects ('1.5' as a
whole number), and show bytes where Spark decodes them.
"""

from __future__ import annotations

import re

BYTES, TEXT, BOOLEAN, WHOLE, REAL, DECIMAL = "bytes", "text", "boolean", "whole", "real", "decimal"
DATE, TIMESTAMP, LOCAL, INTERVAL = "date", "timestamp", "timestamp_ntz", "interval"
LIST, MAP, NULL, OTHER = "list", "map", "null", "other"

_TYPES = {
    "binary": ("BLOB", BYTES), "blob": ("BLOB", BYTES), "bytea": ("BLOB", BYTES),
    "string": ("VARCHAR", TEXT), "varchar": ("VARCHAR", TEXT), "text": ("VARCHAR", TEXT),
    "boolean": ("BOOLEAN", BOOLEAN), "bool": ("BOOLEAN", BOOLEAN),
    "tinyint": ("TINYINT", WHOLE), "byte": ("TINYINT", WHOLE),
    "smallint": ("SMALLINT", WHOLE), "short": ("SMALLINT", WHOLE),
    "int": ("INTEGER", WHOLE), "integer": ("INTEGER", WHOLE),
    "bigint": ("BIGINT", WHOLE), "long": ("BIGINT", WHOLE),
    "float": ("FLOAT", REAL), "real": ("FLOAT", REAL), "double": ("DOUBLE", REAL),
    "date": ("DATE", DATE),
    "timestamp": ("TIMESTAMPTZ", TIMESTAMP), "timestamp_ltz": ("TIMESTAMPTZ", TIMESTAMP),
    "timestamptz": ("TIMESTAMPTZ", TIMESTAMP), "timestamp with time zone": ("TIMESTAMPTZ", TIMESTAMP),
    "timestamp_ntz": ("TIMESTAMP", LOCAL),
}  # fmt: skip
"""The engine's type for Spark's names, and some of its own. ``TIMESTAMP`` is Spark's: a point in time."""

NAMES = (
    "BINARY, STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ"
)
"""The types that a value can be cast to."""

_KINDS = {
    "BLOB": BYTES, "VARCHAR": TEXT, "BOOLEAN": BOOLEAN, "TINYINT": WHOLE, "SMALLINT": WHOLE, "INTEGER": WHOLE,
    "BIGINT": WHOLE, "HUGEINT": WHOLE, "FLOAT": REAL, "DOUBLE": REAL, "DATE": DATE, "TIMESTAMP": LOCAL,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMP, "INTERVAL": INTERVAL, "NULL": NULL,
}  # fmt: skip

_PLAIN = "CAST($1 AS $T)"


def _unless(pattern: str, what: str) -> str:
    """Return the cast of text that fails, saying what was expected, if the text matches a pattern as a whole."""
    return f"CAST(regexp_replace($1, '^({pattern})$', '\\1 (not {what})', 's') AS $T)"


_WHOLE = _unless(r"\s*[^\s0-9+-].*|.*[0-9+-].*[^\s0-9].*", "a whole number")
_NUMBER = _unless(".*_.*", "a number")  # the engine takes 1_000
_TIME = _unless(r"\s*[^\s0-9+-].*", "a time")  # the engine takes infinity, and returns a number for it
_TRUNCATED = "CAST(trunc($1) AS $T)"

_TEMPLATES: dict[tuple[str, str], str] = {
    **{(kind, kind): _PLAIN for kind in (TEXT, BOOLEAN, WHOLE, REAL, DECIMAL, DATE, TIMESTAMP, LOCAL)},
    (BYTES, BYTES): "$1",
    **{(NULL, kind): _PLAIN for kind in (BYTES, TEXT, BOOLEAN, WHOLE, REAL, DECIMAL, DATE, TIMESTAMP, LOCAL)},
    (TEXT, BOOLEAN): "CAST(trim($1) AS $T)",
    **{(TEXT, kind): _NUMBER for kind in (REAL, DECIMAL)},
    **{(TEXT, kind): _TIME for kind in (DATE, TIMESTAMP, LOCAL)},
    **{(kind, TEXT): _PLAIN for kind in (BOOLEAN, WHOLE, REAL, DECIMAL, DATE, LOCAL)},
    (TEXT, BYTES): "encode($1)",
    (BYTES, TEXT): "decode($1)",
    (TEXT, WHOLE): _WHOLE,
    (TIMESTAMP, TEXT): "CAST(CAST($1 AS TIMESTAMP) AS $T)",
    (REAL, WHOLE): _TRUNCATED,
    (DECIMAL, WHOLE): _TRUNCATED,
    **{(WHOLE, kind): _PLAIN for kind in (BOOLEAN, REAL, DECIMAL)},
    **{(BOOLEAN, kind): _PLAIN for kind in (WHOLE, REAL, DECIMAL)},
    (REAL, DECIMAL): _PLAIN,
    (DECIMAL, REAL): _PLAIN,
    **{(kind, DATE): _PLAIN for kind in (TIMESTAMP, LOCAL)},
    **{(kind, TIMESTAMP): _PLAIN for kind in (DATE, LOCAL)},
    **{(kind, LOCAL): _PLAIN for kind in (DATE, TIMESTAMP)},
}


def engine_type(name: str, digits: tuple[int, ...]) -> tuple[str, str] | None:
    """Return the engine's type and its kind for a name in a SELECT; None for one that is not supported."""
    lower = name.lower()
    if lower in ("decimal", "dec", "numeric"):
        precision, scale = (*digits, 0)[:2] if digits else (10, 0)
        return f"DECIMAL({precision}, {scale})", DECIMAL
    if lower == "varchar" or not digits:
        return _TYPES.get(lower)
    return None


def kind_of(shown: str) -> str:
    """Return the kind of a type as the engine shows it."""
    if re.fullmatch(r"DECIMAL\(\d+,\s*\d+\)", shown):
        return DECIMAL
    if shown.endswith("[]"):
        return LIST
    if shown.startswith("MAP("):
        return MAP
    return _KINDS.get(shown.strip('"'), OTHER)


def cast_template(source: str, target: str, target_type: str, *, to_null: bool) -> str | None:
    """Return the expression that casts ``$1``, of one kind, to another; None where Spark has no such cast.

    With ``to_null``, of ``try_cast``: what cannot be cast is null.
    """
    template = _TEMPLATES.get((source, target))
    if template is None:
        return None
    if to_null:
        template = template.replace("CAST(", "TRY_CAST(").replace("decode($1)", "TRY(decode($1))")
    return template.replace("$T", target_type)
