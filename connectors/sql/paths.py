"""Columns and fields of structs by paths such as ``value.user.id``; of those that differ in case only, the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkonce.options import OptionError, nearest

TABLE = "records"
"""The name of the table that a SELECT reads: the records of the batch."""


@dataclass(frozen=True, slots=True)
class Path:
    """A column, or a field within structs."""

    names: tuple[str, ...]
    """As the schema spells them."""
    field: StructField
    """Its type; nullable if anything on the way is."""

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the values of ``rows``, without copying them."""
        column = rows.column(self.names[0])
        for name in self.names[1:]:
            place = column.type.get_field_index(name)
            # `field` ignores nulls of the struct itself, `flatten` combines them with the field's own.
            column = column.flatten()[place] if column.null_count else column.field(place)
        return column


def find(names: Sequence[str], columns: StructType, table: str = TABLE) -> Path:
    """Return the column or field named by ``names``; the first may be the name of the table.

    Raises:
        OptionError: it is unknown, with a suggestion; or ambiguous.
    """
    known = {name.lower() for name in columns.names}
    if len(names) > 1 and names[0].lower() == table.lower() and names[0].lower() not in known:
        names = names[1:]
    found = _field(names[0], columns, names)
    spelled, nullable = [found.name], found.nullable
    for place, name in enumerate(names[1:], 1):
        if not isinstance(found.dataType, StructType):
            raise OptionError(_not_a_struct(names, place, found.dataType))
        found = _field(name, found.dataType, names)
        spelled.append(found.name)
        nullable = nullable or found.nullable
    return Path(tuple(spelled), StructField(found.name, found.dataType, nullable))


def within(path: Path) -> list[Path]:
    """Return the fields of a struct. Raises OptionError if it is not a struct."""
    kind = path.field.dataType
    text = ".".join(path.names)
    if not isinstance(kind, StructType):
        raise OptionError(f"sql: {text}.*: {text} is not a struct but {kind.simpleString()}; name the column itself")
    return [
        Path((*path.names, field.name), StructField(field.name, field.dataType, field.nullable or path.field.nullable))
        for field in kind.fields
    ]


def every(columns: StructType) -> list[Path]:
    """Return all columns, as for ``*``."""
    return [Path((field.name,), field) for field in columns.fields]


def _field(name: str, struct: StructType, names: Sequence[str]) -> StructField:
    found = [field for field in struct.fields if field.name.lower() == name.lower()]
    exact = [field for field in found if field.name == name]
    if len(exact or found) == 1:
        return (exact or found)[0]
    text = ".".join(names)
    if found:
        raise OptionError(f"sql: column {text} is ambiguous: {', '.join(field.name for field in found)}")
    near = nearest(name, struct.names)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(struct.names)}"
    raise OptionError(f"sql: unknown column {text}; {hint}")


def _not_a_struct(names: Sequence[str], place: int, kind: DataType) -> str:
    text, before = ".".join(names), ".".join(names[:place])
    if isinstance(kind, ArrayType):
        hint = (
            f"it is an array: unnest({before}) makes a row of each element, "
            f"transform({before}, x -> x.{names[place]}) takes a field of each"
        )
    elif isinstance(kind, MapType):
        hint = f"it is a map: {before}['{names[place]}'] is the value of a key"
    else:
        hint = f"its type is {kind.simpleString()}"
    return f"sql: unknown column {text}: {before} has no fields; {hint}"
