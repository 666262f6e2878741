"""From the query's schema to the table's: what may be written, and in what shape.

Delta's schema text is Spark's own JSON of a `StructType`, so the two are compared as Spark types. Columns are matched
by name, without regard to case, and written under the table's spelling (or its physical names) and in its order. A new
table gets every column nullable, as Spark's file formats do. A commit checks nothing about the files that it names,
so whatever is not rejected here would end up in the table.

Spark passes rows as the query names them; `reshape` converts their columns to the table's schema: fields by name,
narrower types cast, names replaced, and nulls for fields that the data lacks.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce.connectors.delta_sink.comparison import DEFAULT, Comparison, compare
from sparkonce.connectors.delta_sink.features import TableFacts, physical_name, physical_schema
from sparkonce.connectors.delta_sink.lengths import Length, length_of
from sparkonce.connectors.delta_sink.rules import NO_RULES, Check, Expression, Rules, default_of, rule_name
from sparkonce.connectors.delta_sink.types import (
    PARTITIONABLE,
    name_problems,
    plain_struct,
    unsupported,
    unsupported_text,
)
from sparkonce.connectors.values.nulls import entries_of, null_rows, offsets_of
from sparkonce.connectors.values.partition_values import outside, refusal
from sparkonce.connectors.values.utf8 import rows_not_utf8
from sparkonce.options import OptionError


class SchemaError(ValueError):
    """The query's rows do not fit the table; every column that differs is named."""


SHOWN_COLUMNS, SHOWN_CHARACTERS = 4, 40
"""Of a row in an error that has no coordinates of its record."""
NOT_UTF8 = (
    "is not UTF-8, which not every reader of the table could read (in Spark's SQL is_valid_utf8 finds such texts, and "
    "make_valid_utf8 replaces what is wrong in them; bytes that are no text can stay BINARY)"
)
INSTEAD = ". Correct what writes it, leave such rows out (where), or mark them as dead letters (sparkonce.mark)"


@dataclass(frozen=True, slots=True)
class Required:
    """A column, or a field within one, that the table declares NOT NULL."""

    path: tuple[str, ...]
    """Its names as files have them; ``element``, ``key`` and ``value`` lead into arrays and maps."""
    logical: tuple[str, ...] = dataclasses.field(compare=False)
    """The same as rows have them."""

    @property
    def what(self) -> str:
        """What the table declares, for messages."""
        return f"column {'.'.join(self.logical)} is NOT NULL"


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """How a batch of the query becomes a batch of the table; goes to every task."""

    arrow: pa.Schema
    """The columns that are written, as files have them: in the table's order, under its spelling or physical names."""
    source_positions: tuple[int | None, ...]
    """For each of them, its position in the query's batches; None if it is filled in."""
    partition_columns: tuple[str, ...]
    required: tuple[Required, ...]
    """What the table declares NOT NULL."""
    named: pa.Schema | None = None
    """The same columns under their logical names, if the table's columns are mapped."""
    clustering: tuple[tuple[str, ...], ...] = ()
    """The columns that the table is clustered by, as files have them: they always get statistics."""
    filled: Mapping[str, pa.Array | Expression] = dataclasses.field(default_factory=dict)
    """The default of each column that the query lacks, as one value, or how it is generated; by its name in files."""
    lengths: tuple[Length, ...] = ()
    checks: tuple[Check, ...] = ()
    read: tuple[tuple[str, pa.Field], ...] = ()
    """What the conditions and generated columns read: names in files, and columns of the table."""
    table: pa.Schema | None = None
    """All columns of the table, as files have them, if some are not written; those are null in the files' rows."""

    @property
    def data(self) -> pa.Schema:
        """The columns that are in the files: all but the partition columns."""
        return pa.schema([field for field in self.arrow if field.name not in self.partition_columns])

    @property
    def is_mapped(self) -> bool:
        """Whether files have physical names instead of readable ones."""
        return self.named is not None

    def align(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring a batch of the query into the table's shape.

        Raises:
            SchemaError: if what the table declares NOT NULL has a null, or would have one as a partition, if a text is
                too long or not UTF-8, a condition is not kept, or a partition's date or time is of a year that not
                every reader has.
        """
        self._check_texts(batch)
        columns, failed = self._columns(batch)
        for broken in (failed, *(rows for _, rows in self._broken(columns, batch.num_rows))):
            if broken:
                row, why = min(broken.items())
                raise SchemaError(f"{why}: {_record(batch, row)}{INSTEAD}")
        return pa.RecordBatch.from_arrays([columns[name] for name in self.arrow.names], schema=self.arrow)

    def _check_texts(self, batch: pa.RecordBatch) -> None:
        """Check that all texts are UTF-8, before anything else reads them. Raises SchemaError for one that is not."""
        for position in self.source_positions:
            if position is not None:
                for row in rows_not_utf8(batch.column(position)).tolist()[:1]:
                    name = batch.schema.names[position]
                    raise SchemaError(f"column {name} has a text that {NOT_UTF8}: {_record(batch, row)}{INSTEAD}")

    def broken(self, batch: pa.RecordBatch, rules: Set[str]) -> dict[int, str]:
        """Return the rows of a batch of the query that break some rules (`rule_names`), each with one it breaks."""
        columns, _ = self._columns(batch)  # a column that is not computed breaks the rule by which it is
        found: dict[int, str] = {}
        for what, broken in self._broken(columns, batch.num_rows):
            if rule_name(what) in rules:
                found = {**broken, **found}
        return found

    def _columns(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Return the table's columns for a batch of the query; and for which rows one cannot be computed, and why."""
        columns: dict[str, pa.Array] = {}
        failed: dict[int, str] = {}
        for field, position, named in zip(self.arrow, self.source_positions, self.named or self.arrow, strict=True):
            if position is not None:
                columns[field.name] = reshape(batch.column(position), named.type, field.type)
            elif not isinstance(default := self.filled[field.name], Expression):
                columns[field.name] = pa.repeat(default[0], batch.num_rows)
        for name, rule in self.filled.items():
            if isinstance(rule, Expression):
                columns[name], reasons = rule.values(self._readable(columns, batch.num_rows))
                what = f"a generated column of the table, {rule.text}, cannot be computed"
                failed = {**{row: f"{what} ({why})" for row, why in reasons.items()}, **failed}
        return columns, failed

    def _broken(self, columns: Mapping[str, pa.Array], count: int) -> Iterator[tuple[str, Mapping[int, str]]]:
        """Yield each rule of the table, and why rows break it.

        One without a name is that every reader takes partitions.
        """
        for length in self.lengths:
            yield length.what, length.too_long(columns[length.column])
        for field, named in zip(self.arrow, self.named or self.arrow, strict=True):
            if field.name in self.partition_columns:
                column = columns[field.name]
                yield "", {row: refusal(named.name, column, row) for row in outside(column).tolist()}
        for required in self.required:
            yield required.what, self._nulls(required, columns[required.path[0]])
        readable = self._readable(columns, count) if self.checks else None
        for check in self.checks:
            yield check.what, check.broken(readable)

    def _readable(self, columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
        """Return the columns that the table's SQL reads, by their names; null where the query has none.

        A last column, which nothing reads, keeps the number of rows where a condition reads no column.
        """
        arrays = []
        for name, field in self.read:
            values = columns[name] if name in columns else pa.nulls(rows, field.type)
            arrays.append(_as_partition(values) if name in self.partition_columns else values)
        counted = "_" * (1 + max((len(field.name) for _, field in self.read), default=0))
        schema = pa.schema([*(field for _, field in self.read), pa.field(counted, pa.null())])
        return pa.RecordBatch.from_arrays([*arrays, pa.nulls(rows)], schema=schema)

    def _nulls(self, required: Required, column: pa.Array) -> dict[int, str]:
        """Return the rows that have a null, or would have one as a partition, and why that is wrong."""
        why = f"{required.what} in the table, and there is a null in it"
        found = dict.fromkeys(null_rows(column, required.path[1:]).tolist(), why)
        # No reader could load the table once such a file is in it.
        if required.path[-1] in self.partition_columns and pa.types.is_string(column.type):
            empty = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(column, ""), False)))
            stored = "which Delta stores as null in a partition column"
            why = f"{required.what} in the table, and there is an empty string in it, {stored}"
            found |= dict.fromkeys(empty.tolist(), why)
        return found

    @property
    def by_both_names(self) -> pa.StructType:
        """The columns, each field under its name in files, its id and its logical name, which says which value it is.

        Logical names are compared without case, as everywhere.
        """
        return _by_both_names(pa.struct(self.arrow), pa.struct(self.named or self.arrow))

    def fits(self, now: WriteSchema) -> bool:
        """Whether files written like this fit the table as it is ``now``: it may have gained columns since."""
        return (
            is_part_of(self.by_both_names, now.by_both_names)
            and self.partition_columns == now.partition_columns
            and self.is_mapped == now.is_mapped
            and set(now.required) <= set(self.required)
            and set(now.clustering) <= set(self.clustering)
            and self.filled == now.filled
            and set(now.lengths) <= set(self.lengths)
            and set(now.checks) <= set(self.checks)
        )


@dataclass(frozen=True, slots=True)
class TableCheck:
    """What a table asks of rows, where they are made of records: a `connectors.values.options.RowCheck`."""

    schema: WriteSchema
    rules: Set[str]
    """The names of the rules that are checked there; the writer checks all."""

    def broken(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """See `RowCheck`."""
        return self.schema.broken(rows, self.rules)


@dataclass(frozen=True, slots=True)
class Fit:
    """How the query's rows go into a table."""

    write_schema: WriteSchema
    grown: tuple[t.StructField, ...]
    """Columns that must first be added, or get fields, in their final form; by ``mergeSchema``."""


def table_schema(query: t.StructType) -> t.StructType:
    """Return the schema of a new table for a query's rows: all nullable. Raises SchemaError for what Delta lacks."""
    problems = [
        unsupported_text(field.name, kind)
        for field in query.fields
        if (kind := unsupported(field.dataType)) is not None
    ]
    problems += name_problems(query, new=True)
    if problems:
        raise SchemaError("the query's rows cannot be written to a Delta table: " + "; ".join(problems))
    return plain_struct(query)


def check_partition_columns(columns: Sequence[str], schema: t.StructType) -> list[str]:
    """Check the partition columns of a new table, and return them as the schema spells them.

    Raises:
        SchemaError: for a column that is not there, or of a type that cannot be a directory's name.
    """
    fields = {field.name.lower(): field for field in schema.fields}
    spelled = []
    for name in columns:
        field = fields.get(name.lower())
        if field is None:
            known = ", ".join(field.name for field in schema.fields)
            raise SchemaError(f"option partitionBy names {name!r}, but the query has {known}")
        if not isinstance(field.dataType, PARTITIONABLE):
            raise SchemaError(
                f"partitionBy: column {name} is {field.dataType.simpleString()}, which delta_once does not partition by"
            )
        spelled.append(field.name)
    if columns and len(columns) == len(fields):
        raise SchemaError("partitionBy names every column: no column would be left for the files")
    return spelled


def rule_names(facts: TableFacts) -> frozenset[str]:
    """Return the names of a table's rules about single rows; names have the rules' texts in them."""
    table = facts.schema
    lengths = (length_of(each.name, each.name, each.metadata or {}) for each in table)
    required = (part for each in table for part in _required((each.name,), (each.name,), each, mapped=False))
    named = [each.what for each in lengths if each is not None]
    named += [each.what for each in required] + [each.what for each in facts.rules.checks]
    return frozenset(map(rule_name, named))


def write_schema(query: t.StructType, table_json: str, partition_columns: Sequence[str]) -> WriteSchema:
    """As `fit`, into a table that must not change, and whose columns are not mapped."""
    return fit(query, t.StructType.fromJson(json.loads(table_json)), partition_columns).write_schema


def fit(
    query: t.StructType,
    table: t.StructType,
    partition_columns: Sequence[str],
    *,
    merge: bool = False,
    mapped: bool = False,
    rules: Rules = NO_RULES,
) -> Fit:
    """Compare rows with a table, to be added to if ``merge``. Raises SchemaError with all differences and remedies."""
    found = compare(query, table, partition_columns, merge=merge, generated=rules.generated)
    filled = _filled(found, rules)
    if found.problems:
        to_add = "" if merge else ", let new columns be added with mergeSchema=true"
        raise SchemaError(
            "the query's rows do not fit the table: "
            + "; ".join(found.problems)
            + f". Select and cast the query's columns to the table's{to_add}, or write to another path"
        )
    check_partition_columns(partition_columns, plain_struct(found.wanted))
    positions = {column.name.lower(): position for position, column in enumerate(query.fields)}
    written = [each for each in found.wanted.fields if each.name.lower() in positions or each.name in filled]
    named = _named(written)
    grown = tuple(found.grown.values())
    mapped = mapped and not grown
    names = {column.name: physical_name(column) if mapped else column.name for column in found.wanted.fields}
    lengths = (length_of(names[column.name], column.name, column.metadata or {}) for column in written)
    reads = frozenset[str]().union(*(each.condition.reads for each in rules.checks))
    in_files = _named(found.wanted.fields)
    if mapped:
        in_files = physical_schema(found.wanted, in_files)
    made = WriteSchema(
        arrow=pa.schema([in_files.field(names[column.name]) for column in written]),
        source_positions=tuple(positions.get(column.name.lower()) for column in written),
        partition_columns=tuple(names[name] for name in partition_columns),
        required=tuple(
            each
            for column in written
            for each in _required((names[column.name],), (column.name,), column, mapped=mapped)
        ),
        named=named if mapped else None,
        filled={names[name]: rule for name, rule in filled.items()},
        lengths=tuple(length for length in lengths if length is not None),
        checks=rules.checks,
        read=tuple((names[field.name], field) for field in _named(found.wanted.fields) if field.name in reads),
        table=in_files if len(in_files) > len(written) else None,
    )
    return Fit(made, grown)


def _as_partition(values: pa.Array) -> pa.Array:
    """Return a partition column as readers find it: an empty text is null there."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return values
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, values.type), values)


def _named(columns: Sequence[t.StructField]) -> pa.Schema:
    return to_arrow_schema(plain_struct(t.StructType(list(columns))), timezone="UTC")


def _filled(found: Comparison, rules: Rules) -> dict[str, pa.Array | Expression]:
    """Return what the query's rows get in columns that they lack; what is impossible is added to the problems."""
    filled: dict[str, pa.Array | Expression] = {}
    for column in found.filled:
        if column.name in rules.generated:
            filled[column.name] = rules.generated[column.name]
            continue
        text = column.metadata[DEFAULT]
        try:
            filled[column.name] = default_of(text, t.StructField("", column.dataType).json())
        except OptionError as error:
            found.problems.append(
                f"column {column.name} ({column.dataType.simpleString()}) is missing from the query, and has the "
                f"default {text}, which delta_once does not fill in: {error}. Select a value for it, or have "
                "delta-spark write the rows (sparkonce.AppendWriter)"
            )
    return filled


def _required(
    path: tuple[str, ...], logical: tuple[str, ...], column: t.StructField, *, mapped: bool
) -> Iterator[Required]:
    """Yield a column if it is NOT NULL, and what is NOT NULL within it."""
    if not column.nullable:
        yield Required(path, logical)
    for step, inner in _inside(column.dataType):
        name = physical_name(inner) if mapped and step == inner.name else step
        yield from _required((*path, name), (*logical, step), inner, mapped=mapped)


def _inside(kind: t.DataType) -> Iterator[tuple[str, t.StructField]]:
    """Yield the parts of a nested type, each as a field."""
    if isinstance(kind, t.StructType):
        yield from ((field.name, field) for field in kind.fields)
    elif isinstance(kind, t.ArrayType):
        yield "element", t.StructField("", kind.elementType, kind.containsNull)
    elif isinstance(kind, t.MapType):
        yield "key", t.StructField("", kind.keyType)
        yield "value", t.StructField("", kind.valueType, kind.valueContainsNull)


def _record(batch: pa.RecordBatch, row: int) -> str:
    """Return which row it is: the record that it is of, if it says so."""
    found = {name.lower(): batch.column(position)[row] for position, name in enumerate(batch.schema.names)}
    if found.keys() >= {"topic", "partition", "offset"}:
        topic, partition, offset = (_short(found[name]) for name in ("topic", "partition", "offset"))
        return f"the record of topic {topic}, partition {partition}, at offset {offset}"
    named = list(zip(batch.schema.names, batch.columns, strict=True))[:SHOWN_COLUMNS]
    values = ", ".join(f"{name} {_short(column[row])}" for name, column in named)
    return f"row {row + 1} of {batch.num_rows} in its Arrow batch, with {values}"


def _short(value: pa.Scalar) -> str:
    try:
        text = str(value.as_py()) if value.is_valid else "null"
    except (OverflowError, ValueError, pa.ArrowException):  # a date that Python has not, or a text that is not UTF-8
        return "?"
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def reshape(column: pa.Array, named: pa.DataType, written: pa.DataType) -> pa.Array:
    """Return ``column`` as ``written``: ``named`` with other field names. Raises pa.ArrowInvalid if it does not fit."""
    if column.type.equals(written):
        return column
    if pa.types.is_struct(written) and pa.types.is_struct(column.type):
        return _struct(column, named, written)
    if pa.types.is_map(written) and pa.types.is_map(column.type):
        offsets, entries = entries_of(column)
        keys = reshape(entries.field(0), named.key_type, written.key_type)
        items = reshape(entries.field(1), named.item_type, written.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=written, mask=column.is_null())
    if pa.types.is_list(written) and pa.types.is_list(column.type):
        values = reshape(column.flatten(), named.value_type, written.value_type)
        return pa.ListArray.from_arrays(offsets_of(column), values, type=written, mask=column.is_null())
    return column.cast(written)


def _struct(column: pa.Array, named: pa.DataType, written: pa.DataType) -> pa.Array:
    positions = {column.type.field(index).name.lower(): index for index in range(column.type.num_fields)}
    children = []
    fields = [written.field(index) for index in range(written.num_fields)]
    for index, field in enumerate(fields):
        position = positions.get(named.field(index).name.lower())
        if position is None:
            children.append(pa.nulls(len(column), field.type))
        else:
            child = pc.struct_field(column, [position])
            children.append(reshape(child, named.field(index).type, field.type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())


def _by_both_names(written: pa.DataType, named: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(written):
        pairs = zip(written.fields, named.fields, strict=True)
        return pa.struct(
            [(_both_names(ours, theirs), _by_both_names(ours.type, theirs.type)) for ours, theirs in pairs]
        )
    if pa.types.is_map(written):
        key = _by_both_names(written.key_type, named.key_type)
        return pa.map_(key, _by_both_names(written.item_type, named.item_type))
    if pa.types.is_list(written):
        return pa.list_(_by_both_names(written.value_type, named.value_type))
    return written


def _both_names(written: pa.Field, named: pa.Field) -> str:
    return repr((written.name, written.metadata, named.name.lower()))


def is_part_of(older: pa.DataType, newer: pa.DataType) -> bool:
    """Whether data of one type reads back as the other with nothing but nulls for what it lacks."""
    if pa.types.is_struct(older) and pa.types.is_struct(newer):
        fields = {newer.field(index).name: newer.field(index).type for index in range(newer.num_fields)}
        mine = (older.field(index) for index in range(older.num_fields))
        return all(field.name in fields and is_part_of(field.type, fields[field.name]) for field in mine)
    if pa.types.is_map(older) and pa.types.is_map(newer):
        return is_part_of(older.key_type, newer.key_type) and is_part_of(older.item_type, newer.item_type)
    if pa.types.is_list(older) and pa.types.is_list(newer):
        return is_part_of(older.value_type, newer.value_type)
    return bool(older.equals(newer))
