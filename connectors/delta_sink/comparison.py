"""Compares the query's columns with the table's: what differs, and which columns the table would have to gain.

The rules are those of Delta's own writer: columns, and fields of structs, are matched by name, without regard to case.
One that the query has and the table lacks is rejected, or with ``mergeSchema`` added. One that the table has and the
query lacks is computed if it is generated, gets its default if it has one, or else is left out, and reads back as
null; so it must be nullable, and be no partition column. A narrower type of the query is cast to the table's. No type
of the table is ever changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.types import holds, name_problems, plain, unsupported, unsupported_text

DEFAULT = "CURRENT_DEFAULT"
"""The key of a field's metadata that holds its default value, as SQL."""


@dataclass(slots=True)
class Comparison:
    """The result of a comparison."""

    wanted: t.StructType
    """The table's columns after the additions."""
    problems: list[str] = field(default_factory=list)
    grown: dict[str, t.StructField] = field(default_factory=dict)
    """Columns to add to the table or to extend with fields, by name, in their final form."""
    filled: list[t.StructField] = field(default_factory=list)
    """Columns that the query lacks, and that are generated or have a default."""


def compare(
    query: t.StructType,
    table: t.StructType,
    partition_columns: Sequence[str],
    *,
    merge: bool,
    generated: Collection[str] = (),
) -> Comparison:
    """Compare; with ``merge``, what the table lacks is added to it. Columns named ``generated`` may be missing."""
    found = Comparison(table)
    for column in query.fields:
        kind = unsupported(column.dataType)
        if kind is not None:
            found.problems.append(unsupported_text(column.name, kind))
    found.problems += name_problems(query, new=False)
    given = {column.name.lower() for column in query.fields}
    missing = [column for column in table.fields if column.name.lower() not in given]
    found.filled = [column for column in missing if column.name in generated or DEFAULT in (column.metadata or {})]
    filled = {column.name.lower() for column in found.filled}
    for name in partition_columns:
        if name.lower() not in given | filled:
            found.problems.append(f"column {name} is missing from the query, and the table is partitioned by it")
    comparer = _Comparer(found.problems, merge, filled)
    wanted = comparer.struct("", query, table)
    before = {column.name: column for column in table.fields}
    found.grown = {column.name: column for column in wanted.fields if before.get(column.name) != column}
    found.wanted = wanted
    for column in found.grown.values():
        found.problems += name_problems(t.StructType([column]), new=True)
    return found


@dataclass(frozen=True, slots=True)
class _Comparer:
    problems: list[str]
    merge: bool
    filled: Collection[str]

    def struct(self, path: str, ours: t.StructType, theirs: t.StructType) -> t.StructType:
        given = {field.name.lower(): field for field in ours.fields}
        fields = [self._field(path, given.pop(field.name.lower(), None), field) for field in theirs.fields]
        for extra in given.values():
            kind = plain(extra.dataType)
            if self.merge:
                fields.append(t.StructField(extra.name, kind))
            else:
                self.problems.append(f"column {path}{extra.name} ({kind.simpleString()}) is not in the table")
        return t.StructType(fields)

    def _field(self, path: str, ours: t.StructField | None, theirs: t.StructField) -> t.StructField:
        name = f"{path}{theirs.name}"
        if ours is None:
            if path or name.lower() not in self.filled:
                self._left_out(name, theirs)
            return theirs
        kind = self._type(name, ours.dataType, theirs.dataType)
        return theirs if kind == theirs.dataType else t.StructField(theirs.name, kind, theirs.nullable, theirs.metadata)

    def _type(self, name: str, ours: t.DataType, theirs: t.DataType) -> t.DataType:
        if isinstance(ours, t.StructType) and isinstance(theirs, t.StructType):
            return self.struct(f"{name}.", ours, theirs)
        if isinstance(ours, t.ArrayType) and isinstance(theirs, t.ArrayType):
            element = self._type(f"{name}.element", ours.elementType, theirs.elementType)
            return t.ArrayType(element, theirs.containsNull)
        if isinstance(ours, t.MapType) and isinstance(theirs, t.MapType):
            key = self._type(f"{name}.key", ours.keyType, theirs.keyType)
            value = self._type(f"{name}.value", ours.valueType, theirs.valueType)
            return t.MapType(key, value, theirs.valueContainsNull)
        if plain(ours) != plain(theirs) and not holds(theirs, ours):
            wider = "; a table's type is not widened by delta_once: ALTER TABLE … ALTER COLUMN … TYPE with delta-spark"
            self.problems.append(
                f"column {name} is {plain(theirs).simpleString()} in the table and {plain(ours).simpleString()} in the "
                f"query{wider if self.merge and holds(ours, theirs) else ''}"
            )
        return theirs

    def _left_out(self, name: str, theirs: t.StructField) -> None:
        reason = "" if theirs.nullable else ", and is NOT NULL in the table"
        inside = _required_field(theirs)
        if inside is not None:  # in Delta, a null struct has null fields
            reason = f", and {name}{inside} is NOT NULL in the table"
        if DEFAULT in (theirs.metadata or {}):
            reason = ", and has a default in the table, which delta_once fills in for whole columns only"
        if reason:
            kind = theirs.dataType.simpleString()
            self.problems.append(f"column {name} ({kind}) is missing from the query{reason}")


def _required_field(column: t.StructField) -> str | None:
    """Return the path of the first field within structs that is NOT NULL, each step after a dot."""
    if not isinstance(column.dataType, t.StructType):
        return None
    for each in column.dataType.fields:
        inside = "" if not each.nullable else _required_field(each)
        if inside is not None:
            return f".{each.name}{inside}"
    return None
