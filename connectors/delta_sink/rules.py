"""A table's own SQL: CHECK constraints, invariants, generated columns and defaults, evaluated where the rows are.

Evaluated is what `connectors.sql` knows to return what Spark returns; a table with anything else is rejected by name.
So is what may depend on the time zone of the session that writes, and what reads a CHAR: Spark may compare it filled
up.

Theory: PROTOCOL.md of delta-io/delta, "CHECK Constraints", "Column Invariants", "Generated Columns" and "Default
Columns". A condition must be true: null breaks it, as for delta-spark.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.lengths import DECLARED
from sparkonce.connectors.delta_sink.types import plain_struct
from sparkonce.options import OptionError

if TYPE_CHECKING:
    from sparkonce.connectors.sql.select import Select

CONSTRAINT = "delta.constraints."
INVARIANT = "delta.invariants"
GENERATED = "delta.generationExpression"
_MAPPED = "delta.columnMapping.id"
_VALUE = "found"


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL over a table's columns, by their names, that has been read."""

    text: str
    select: Select = field(compare=False, repr=False)

    @property
    def reads(self) -> frozenset[str]:
        """The columns that it reads."""
        return frozenset(names[0] for names in self.select.reads)

    def values(self, rows: pa.RecordBatch) -> tuple[pa.Array, Mapping[int, str]]:
        """Return its value for each row, and the rows for which it cannot be evaluated, with the reason."""
        found = self.select.runner().run(rows)
        values = found.rows.column(_VALUE)
        if found.taken is None:
            return values, {}
        places: NDArray[np.int64] = np.full(rows.num_rows, -1, np.int64)
        places[np.asarray(found.taken)] = np.arange(len(values))
        return values.take(pa.array(places, mask=places < 0)), dict(found.failed)


def rule_name(what: str) -> str:
    """Return the name under which commits note a rule of a table, by which dead letters were found."""
    return hashlib.sha256(what.encode()).hexdigest()[:8]


OTHER_VALUE = ", and the row has another value"
"""How a message goes on about a row whose value is not what its column is generated as."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true for every row."""

    what: str
    """What the table calls it, for messages."""
    condition: Expression
    broken_by: str = " is not kept"
    """How a message goes on about a row that breaks it."""

    def broken(self, rows: pa.RecordBatch) -> dict[int, str]:
        """Return the rows that do not keep it, and why."""
        values, failed = self.condition.values(rows)
        wrong = np.flatnonzero(np.asarray(pc.invert(pc.fill_null(values, False)))).tolist()
        why = f"{self.what}{self.broken_by}"
        return {row: f"{why} ({failed[row]})" if row in failed else why for row in wrong}


@dataclass(frozen=True, slots=True)
class BySpark:
    """A rule that is not evaluated here, and that Spark can check before it passes rows."""

    what: str
    """What the table calls it, for messages."""
    text: str
    """The condition, or what ``column`` is generated as."""
    column: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What a table's SQL asks of rows."""

    checks: tuple[Check, ...] = ()
    generated: Mapping[str, Expression] = field(default_factory=dict)
    """How columns are computed, by their names."""
    by_spark: tuple[BySpark, ...] = ()
    problems: tuple[str, ...] = ()
    """What cannot be evaluated, here or by Spark."""


NO_RULES = Rules()


@lru_cache(maxsize=64)
def rules_of(schema_json: str, configuration: tuple[tuple[str, str], ...]) -> Rules:
    """Read a table's conditions and generated columns."""
    conditions = [
        (f"the check constraint {key.removeprefix(CONSTRAINT)} ({text})", text)
        for key, text in configuration
        if key.startswith(CONSTRAINT)
    ]
    columns = json.loads(schema_json)["fields"]
    conditions += [each for column in columns for each in _invariant(column)]
    generated = {column["name"]: column["metadata"][GENERATED] for column in columns if _has(column, GENERATED)}
    if not conditions and not generated:
        return NO_RULES
    table, unknown = t.StructType.fromJson(json.loads(schema_json)), []
    checks, computed = [], {}
    for what, text in conditions:
        try:
            checks.append(Check(what, _read(f"({text})", table, t.BooleanType())))
        except OptionError as error:
            problem = f"it has {what}, which delta_once cannot check: {error}"
            unknown.append(BySpark(what, text, None, problem))
    for name, text in generated.items():
        kind = table[name].dataType
        value, quoted = f"CAST(({text}) AS {kind.simpleString()})", "`" + name.replace("`", "``") + "`"
        what = f"column {name} is generated as {text}"
        try:
            computed[name] = _read(value, table, kind)
            same = _read(f"({quoted} IS NOT DISTINCT FROM {value})", table, t.BooleanType())
            checks.append(Check(what, same, OTHER_VALUE))
        except OptionError as error:
            unknown.append(BySpark(what, text, name, f"{what}, which delta_once cannot compute: {error}"))
    never = [each for each in unknown if _names_a_char(each.text, table)]
    by_spark = tuple(each for each in unknown if each not in never)
    return Rules(tuple(checks), computed, by_spark, tuple(each.problem for each in never))


@lru_cache(maxsize=64)
def default_of(text: str, kind_json: str) -> pa.Array:
    """Return a column's default as an array of one value. Raises OptionError if it is no constant that is known."""
    kind = t.StructField.fromJson(json.loads(kind_json)).dataType
    value = _read(f"CAST(({text}) AS {kind.simpleString()})", t.StructType([]), kind)
    found, failed = value.values(pa.RecordBatch.from_arrays([pa.array([0])], names=["one"]))
    if failed:
        raise OptionError(failed[0])
    return found


def _names_a_char(text: str, table: t.StructType) -> bool:
    """Whether an expression may read a CHAR: the rows of a query have it as it came, and Spark's table filled up."""
    chars = (column.name for column in table if re.search(r"(?i)\bchar\(", str(column.metadata.get(DECLARED, ""))))
    return any(may_read(text, name) for name in chars)


def may_read(text: str, column: str) -> bool:
    """Whether SQL may read a column: it has the name somewhere, and not as that of a function that it calls."""
    return re.search(rf"(?i)(?<!\w){re.escape(column)}(?!\w)(?!\s*\()", text) is not None


def _invariant(column: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if _has(column, INVARIANT):
        stored = column["metadata"][INVARIANT]
        try:
            text = str(json.loads(stored)["expression"]["expression"])
        except (KeyError, TypeError, ValueError):
            text = stored
        yield f"an invariant of column {column['name']} ({text})", text


def _has(column: Mapping[str, Any], key: str) -> bool:
    return key in (column.get("metadata") or {})


_OUTSIDE_OF_NAMES = r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`|\"[^\"]*\"|--[^\n]*|/\*.*?\*/"
_NO_SYNTAX = "syntax error"
_NAMES = (
    "asc at check column constraint create desc end fetch foreign grant group having initially into lateral left limit "
    "offset on only order outer pivot placing primary qualify references returning table unique unpivot using variadic "
    "where window with"
)
_ONLY_NAMES = frozenset(_NAMES.split())
"""Words that the engine reserves and that are names only in Spark's expressions; ``end`` is where there is no CASE."""
_OF_OUR_QUERY = re.compile(r" \(line \d+, character \d+\).*", re.DOTALL)
"""Where a syntax error is in the query that we make of an expression, and what to write in a query."""


def _read(text: str, table: t.StructType, kind: t.DataType) -> Expression:
    """Read an expression of a type. Raises OptionError if it must not be evaluated here, with the reason.

    The engine reserves words that are names to Spark. So where it finds no syntax in them, these are quoted.
    """
    try:
        return _read_as_is(text, table, kind)
    except OptionError as error:
        quoted = _with_names_quoted(text, table)
        if _NO_SYNTAX not in str(error):
            raise
        try:
            if quoted != text:
                return _read_as_is(quoted, table, kind)
        except OptionError as other:
            if _NO_SYNTAX not in str(other):
                raise
        raise OptionError(_OF_OUR_QUERY.sub("", str(error))) from None


def _with_names_quoted(text: str, table: t.StructType) -> str:
    """Return an expression with names of columns quoted that are names only, where they are not called."""
    never = {"end"} if re.search(r"(?i)\bcase\b", text) else set()
    names = "|".join(column.name for column in table if column.name.lower() in _ONLY_NAMES - never)
    pattern = rf"(?is)({_OUTSIDE_OF_NAMES})|(?<![\w.`])({names})(?![\w`])(?!\s*\()"
    return re.sub(pattern, lambda found: found[1] or f"`{found[2]}`", text) if names else text


def _read_as_is(text: str, table: t.StructType, kind: t.DataType) -> Expression:
    from sparkonce.connectors.sql.instants import is_zoneless  # imported lazily: 50 ms, for few tables
    from sparkonce.connectors.sql.select import check_select

    try:
        query = f"SELECT {text} AS {_VALUE} FROM records"  # noqa: S608  # what it may be is checked below
        select = check_select(query, plain_struct(table))
    except OptionError as error:
        raise OptionError(str(error).removeprefix("sql: ").partition("; ")[0]) from None
    computed = select.computed
    if len(select.outputs) != 1 or (computed is not None and not computed.keeps_rows):
        raise OptionError("it is more than one expression")
    if select.schema[0].dataType != kind:
        raise OptionError(f"it is a {select.schema[0].dataType.simpleString()}, not a {kind.simpleString()}")
    if not is_zoneless(query, plain_struct(table)):
        raise OptionError(
            "it may depend on the time zone of the session that writes: a TIMESTAMP is only compared here, with others "
            "and with constants such as TIMESTAMP'2024-02-29 12:00:00Z'"
        )
    for names in select.reads:
        column = table[names[0]]
        if re.search(r"\bchar\(", str(column.metadata.get(DECLARED, "")), re.IGNORECASE):
            raise OptionError(f"{names[0]} is or has a CHAR, which Spark compares in its own way")
        if _MAPPED in column.metadata and isinstance(column.dataType, (t.StructType, t.ArrayType, t.MapType)):
            raise OptionError(f"it reads {names[0]}, within which names are mapped")
    return Expression(text, select)
