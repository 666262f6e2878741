"""From the query's schema to the table's: what may be written, and in what shape.

Delta's schema text is Spark's own JSON of a `StructType`, so the two are compared as Spark types. Columns are matched
by name, without regard to case, and written under the table's spelling and in its order. A new table gets every
column nullable, as Spark's file formats do. delta-rs checks nothing about files that it did not write, so whatever is
not refused here would end up in the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

_SIMPLE = (
    t.BinaryType,
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
# Not: floating point (NaN, -0.0), binary, and decimals, which delta-rs 1.6 reads back wrongly when negative.
_PARTITIONABLE = (
    t.StringType,
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
_INVALID_IN_NAMES = set(" ,;{}()\n\t=")


class SchemaError(ValueError):
    """The query's rows do not fit the table; every column that differs is named."""


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """How a batch of the query becomes a batch of the table; goes to every task."""

    arrow: pa.Schema
    """All columns in the table's order and spelling."""
    source_positions: tuple[int, ...]
    """For each of them, its position in the query's batches."""
    partition_columns: tuple[str, ...]
    required_columns: tuple[str, ...]
    """Columns that the table declares NOT NULL."""

    @property
    def data(self) -> pa.Schema:
        """The columns that are in the files: all but the partition columns."""
        return pa.schema([field for field in self.arrow if field.name not in self.partition_columns])

    def align(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring a batch of the query into the table's shape.

        Raises:
            SchemaError: if a column that the table declares NOT NULL has a null.
        """
        columns = []
        for field, position in zip(self.arrow, self.source_positions, strict=True):
            column = batch.column(position)
            if field.name in self.required_columns and column.null_count:
                raise SchemaError(f"column {field.name} is NOT NULL in the table, and this batch has a null in it")
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def table_schema(query: t.StructType) -> t.StructType:
    """Give the schema of a new table for the rows of a query: all nullable, without Spark's own metadata.

    Raises:
        SchemaError: for a type that Delta does not have, or a name that it does not allow.
    """
    problems = _problems(query)
    for field in query.fields:
        wrong = sorted(_INVALID_IN_NAMES.intersection(field.name))
        if wrong:
            problems.append(f"column {field.name!r}: Delta allows none of {wrong} in a name; rename it")
    if problems:
        raise SchemaError("the query's rows cannot be written to a Delta table: " + "; ".join(problems))
    return t.StructType([t.StructField(field.name, _plain(field.dataType)) for field in query.fields])


def check_partition_columns(columns: Sequence[str], schema: t.StructType) -> None:
    """Check the partition columns of a table to be made.

    Raises:
        SchemaError: for a column that is not there, or of a type that cannot be a directory's name.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for name in columns:
        if name not in types:
            raise SchemaError(f"option partitionBy names {name!r}, but the query has " + ", ".join(types))
        if not isinstance(types[name], _PARTITIONABLE):
            raise SchemaError(
                f"partitionBy: column {name} is {types[name].simpleString()}, which delta_once does not partition by"
            )
    if columns and len(columns) == len(types):
        raise SchemaError("partitionBy names every column: no column would be left for the files")


def write_schema(query: t.StructType, table_json: str, partition_columns: Sequence[str]) -> WriteSchema:
    """Compare the query's rows with an existing table.

    Raises:
        SchemaError: naming every column that differs, and the way out.
    """
    table = t.StructType.fromJson(json.loads(table_json))
    problems = _problems(query) + _differences(query, table)
    if problems:
        raise SchemaError(
            "the query's rows do not fit the table: "
            + "; ".join(problems)
            + ". Select and cast the query's columns to the table's, or write to another path"
        )
    positions = {field.name.lower(): position for position, field in enumerate(query.fields)}
    nullable = t.StructType([t.StructField(field.name, _plain(field.dataType)) for field in table.fields])
    check_partition_columns(partition_columns, nullable)
    return WriteSchema(
        arrow=to_arrow_schema(nullable, timezone="UTC"),
        source_positions=tuple(positions[field.name.lower()] for field in table.fields),
        partition_columns=tuple(partition_columns),
        required_columns=tuple(field.name for field in table.fields if not field.nullable),
    )


def _problems(query: t.StructType) -> list[str]:
    """Name what Delta has no type for, and names that differ only in case."""
    problems = [
        f"column {field.name}: Delta has no type {unsupported.simpleString()}; cast it"
        for field in query.fields
        if (unsupported := _unsupported(field.dataType)) is not None
    ]
    seen: dict[str, str] = {}
    for name in query.names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            problems.append(f"columns {other!r} and {name!r} are the same to Delta; rename one")
    return problems


def _differences(query: t.StructType, table: t.StructType) -> list[str]:
    given = {field.name.lower(): field for field in query.fields}
    wanted = {field.name.lower(): field for field in table.fields}
    problems = []
    for key, field in wanted.items():
        if key not in given:
            problems.append(f"column {field.name} ({field.dataType.simpleString()}) is missing from the query")
            continue
        theirs, ours = _plain(field.dataType), _plain(given[key].dataType)
        if theirs != ours:
            problems.append(
                f"column {field.name} is {theirs.simpleString()} in the table and {ours.simpleString()} in the query"
            )
        elif not _fits(given[key].dataType, field.dataType):
            problems.append(f"column {field.name} may hold nulls inside that the table does not allow")
    problems += [
        f"column {field.name} ({field.dataType.simpleString()}) is not in the table"
        for key, field in given.items()
        if key not in wanted
    ]
    return problems


def _unsupported(data_type: t.DataType) -> t.DataType | None:
    if isinstance(data_type, t.ArrayType):
        return _unsupported(data_type.elementType)
    if isinstance(data_type, t.MapType):
        return _unsupported(data_type.keyType) or _unsupported(data_type.valueType)
    if isinstance(data_type, t.StructType):
        found = (_unsupported(field.dataType) for field in data_type.fields)
        return next((inner for inner in found if inner is not None), None)
    if isinstance(data_type, (t.StringType, t.CharType, t.VarcharType)):
        collation = getattr(data_type, "collation", "UTF8_BINARY")
        return None if collation == "UTF8_BINARY" else data_type
    return None if isinstance(data_type, _SIMPLE) else data_type


def _plain(data_type: t.DataType) -> t.DataType:
    """Give the type as Delta stores it: nullable everywhere, no char lengths, no metadata."""
    if isinstance(data_type, t.ArrayType):
        return t.ArrayType(_plain(data_type.elementType))
    if isinstance(data_type, t.MapType):
        return t.MapType(_plain(data_type.keyType), _plain(data_type.valueType))
    if isinstance(data_type, t.StructType):
        return t.StructType([t.StructField(field.name, _plain(field.dataType)) for field in data_type.fields])
    if isinstance(data_type, (t.CharType, t.VarcharType)):
        return t.StringType()
    return data_type


def _fits(given: t.DataType, wanted: t.DataType) -> bool:
    """Whether nothing inside ``given`` may be null where ``wanted`` forbids it; the types are equal otherwise."""
    if isinstance(given, t.ArrayType) and isinstance(wanted, t.ArrayType):
        return (wanted.containsNull or not given.containsNull) and _fits(given.elementType, wanted.elementType)
    if isinstance(given, t.MapType) and isinstance(wanted, t.MapType):
        return (
            (wanted.valueContainsNull or not given.valueContainsNull)
            and _fits(given.keyType, wanted.keyType)
            and _fits(given.valueType, wanted.valueType)
        )
    if isinstance(given, t.StructType) and isinstance(wanted, t.StructType):
        return all(
            (theirs.nullable or not ours.nullable) and _fits(ours.dataType, theirs.dataType)
            for ours, theirs in zip(given.fields, wanted.fields, strict=True)
        )
    return True
