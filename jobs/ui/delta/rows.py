"""Rows of a table found by conditions on its columns, each with its data file.

The files are read one by one, the newest first, without those whose statistics exclude the conditions. The amount read
for one result is limited; if files are left, the result says so. Query engines do not return the file of a row, and
files alone do not show which rows are deleted: tables with deletion vectors or column mapping are not searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from sparkonce.offset_store.errors import OffsetStoreError, plain

MAX_ROWS = 20
MAX_FILES = 1_000
MAX_BYTES = 512 << 20
"""The total size of files read for one result."""
MAX_TEXT = 200
"""Characters of a value that are shown."""
IS_NULL = "is null"
_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
OPERATORS = (*_COMPARE, IS_NULL)
_UNREADABLE_FEATURES = {"deletionVectors", "columnMapping"}


class ConditionError(ValueError):
    """A condition that does not fit the table; the message says what to write."""


class UnsearchableError(ValueError):
    """A table whose files cannot be searched one by one; the message says why."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a column's value."""

    column: str
    operator: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.column} {self.operator}" + (f" {self.text}" if self.operator != IS_NULL else "")


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One row."""

    path: str
    """The path of its file, as in the log."""
    number: int
    """Its index in the file, from 0."""
    values: Mapping[str, Any]

    def shown(self, column: str) -> str:
        """Return a value as text."""
        return shown(self.values.get(column))


@dataclass(frozen=True, slots=True)
class RowsFound:
    """The result."""

    version: int
    columns: tuple[str, ...]
    rows: tuple[FoundRow, ...]
    files: int
    """The number of files read."""
    ruled_out: int
    """The number of files whose statistics or partition exclude the conditions."""
    left: int
    """The number of files not read, since the limit was reached or they are elsewhere."""
    has_more: bool
    """Whether the files read may have more matching rows."""

    @property
    def is_whole(self) -> bool:
        """Whether all rows were found."""
        return not self.left and not self.has_more


def shown(value: object) -> str:
    """Format a value."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.hex(" ")
    else:
        text = str(value)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def find_rows(table: DeltaTable, filesystem: fs.FileSystem, root: str, wanted: Sequence[Condition]) -> RowsFound:
    """Find matching rows.

    Raises:
        ConditionError: if a condition does not fit the table's columns.
        UnsearchableError: if files alone do not show the table's rows.
        OffsetStoreError: if a file cannot be read.
    """
    check_searchable(table)
    schema = pa.schema(table.schema().to_arrow())
    tests = [_Test.of(each, schema) for each in wanted]
    partition_columns = table.metadata().partition_columns
    adds = pa.table(table.get_add_actions(flatten=True)).sort_by([("modification_time", "descending")])
    possible = _possible(adds, tests, set(partition_columns))
    rows: list[FoundRow] = []
    files = size = 0
    chosen = adds.filter(possible)
    for add in (each for each in _each(chosen) if not _is_elsewhere(each["path"])):
        size += add["size_bytes"] or 0
        if len(rows) > MAX_ROWS or files >= MAX_FILES or (files and size > MAX_BYTES):
            break
        files += 1
        constant = {name: add[f"partition.{name}"] for name in partition_columns}
        rows += _rows_of(filesystem, root, add["path"], schema, tests, constant, MAX_ROWS + 1 - len(rows))
    return RowsFound(
        table.version(),
        tuple(schema.names),
        tuple(rows[:MAX_ROWS]),
        files,
        len(adds) - len(chosen),
        len(chosen) - files,
        len(rows) > MAX_ROWS,
    )


def _each(adds: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows, a few at a time: most are not asked for."""
    for batch in adds.to_batches(max_chunksize=20):
        yield from batch.to_pylist()


def _is_elsewhere(path: str) -> bool:
    """Whether a file is outside the table: else a log's writer could expose any file that this process can read."""
    name = unquote(path)
    return "://" in name or ".." in name.split("/")


def check_searchable(table: DeltaTable) -> None:
    """Check that a table's files alone show its rows. Raises UnsearchableError if they do not."""
    features = set(table.protocol().reader_features or ()) & _UNREADABLE_FEATURES
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if features:
        raise UnsearchableError(
            f"the table has {' and '.join(sorted(features))}, so its files alone do not show its rows, and which file "
            "holds a row is not known. Look for it by topic, partition and offset"
        )


@dataclass(frozen=True, slots=True)
class _Test:
    """A condition whose value has the column's type."""

    column: str
    operator: str
    value: pa.Scalar | None

    @classmethod
    def of(cls, condition: Condition, schema: pa.Schema) -> _Test:
        if condition.column not in schema.names:
            raise ConditionError(f"there is no column {condition.column!r}; the table has {', '.join(schema.names)}")
        if condition.operator not in OPERATORS:
            raise ConditionError(f"{condition.operator!r} is none of {', '.join(OPERATORS)}")
        if condition.operator == IS_NULL:
            return cls(condition.column, IS_NULL, None)
        kind = schema.field(condition.column).type
        if pa.types.is_nested(kind):
            raise ConditionError(f"column {condition.column!r} is of type {kind}: name another one")
        return cls(condition.column, condition.operator, _scalar(condition, kind))

    def matches(self, values: pa.Array) -> pa.Array:
        """Return for each value whether it matches; never null."""
        if self.value is None:
            return pc.is_null(values)
        return pc.fill_null(_COMPARE[self.operator](values, self.value), fill_value=False)

    def may_match(self, least: pa.Array, most: pa.Array) -> pa.Array:
        """Return for files with these bounds whether a value may match; true without bounds."""
        low, high = pc.less_equal(least, self.value), pc.greater_equal(most, self.value)
        allowed = {"=": pc.and_kleene(low, high), "<": pc.less(least, self.value), "<=": low}
        allowed |= {">": pc.greater(most, self.value), ">=": high}
        return pc.fill_null(allowed[self.operator], fill_value=True)


def _scalar(condition: Condition, kind: pa.DataType) -> pa.Scalar:
    texts = [condition.text, condition.text + "Z"] if pa.types.is_timestamp(kind) and kind.tz else [condition.text]
    for text in texts:
        try:
            return pa.array([text], pa.string()).cast(kind)[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    raise ConditionError(f"column {condition.column!r} is of type {kind}, and {condition.text!r} is no value of it")


def _possible(adds: pa.Table, tests: Sequence[_Test], partition_columns: set[str]) -> pa.Array:
    """Return for each file whether its statistics and partition allow a matching row.

    Only bounds of integers, dates and strings are used: those of times are truncated to ms, and a float has NaN.
    """
    possible = [pa.array([True] * len(adds), pa.bool_())]
    for test in tests:
        if test.column in partition_columns:
            possible.append(test.matches(_typed(adds[f"partition.{test.column}"], test)))
            continue
        names = f"min.{test.column}", f"max.{test.column}"
        if test.value is None or test.operator == "!=" or not set(names) <= set(adds.column_names):
            continue
        kind = test.value.type
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind):
            bounds = [adds[name].combine_chunks() for name in names]
            if all(each.type == kind for each in bounds):
                possible.append(test.may_match(*bounds))
    return reduce(pc.and_, possible)


def _typed(column: pa.ChunkedArray, test: _Test) -> pa.Array:
    values = column.combine_chunks()
    return values if test.value is None else values.cast(test.value.type)


def _rows_of(
    filesystem: fs.FileSystem,
    root: str,
    path: str,
    schema: pa.Schema,
    tests: Sequence[_Test],
    constant: Mapping[str, Any],
    limit: int,
) -> Iterator[FoundRow]:
    """Yield at most ``limit`` matching rows of a file."""
    name = unquote(path)
    try:
        with filesystem.open_input_file(f"{root}/{name}") as source:
            file, before = pq.ParquetFile(source), 0
            tested = {test.column for test in tests} & set(file.schema_arrow.names)
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                part = _of_types(file.read_row_group(group, sorted(tested)), schema) if tested else None
                passed = [_passed(test, part, count, schema, constant) for test in tests]
                kept = reduce(pc.and_, passed) if passed else pa.repeat(pa.scalar(True), min(count, limit))
                numbers = pc.indices_nonzero(kept)[:limit]
                if len(numbers):
                    # Without conditions the first rows of a group are enough.
                    wanted = file.read_row_group(group) if tests else _first(file, group, limit)
                    limit -= len(numbers)
                    whole = _of_types(wanted, schema).take(numbers).to_pylist()
                    for number, values in zip(numbers.to_pylist(), whole, strict=True):
                        ordered = {each: {**values, **constant}.get(each) for each in schema.names}
                        yield FoundRow(path, before + number, ordered)
                if limit <= 0:
                    return
                before += count
    except (OSError, pa.ArrowException) as error:
        raise OffsetStoreError(f"cannot read {root}/{name}: {plain(error)}") from error


def _first(file: pq.ParquetFile, group: int, count: int) -> pa.Table:
    return pa.Table.from_batches([next(file.iter_batches(count, row_groups=[group]))])


def _passed(test: _Test, part: pa.Table | None, count: int, schema: pa.Schema, constant: Mapping[str, Any]) -> pa.Array:
    if test.column in constant:
        return pa.repeat(pa.scalar(True), count)  # the file was selected by it
    if part is None or test.column not in part.column_names:
        return test.matches(pa.nulls(count, schema.field(test.column).type))
    return test.matches(part[test.column].combine_chunks())


def _of_types(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table's columns with its types: other writers choose narrower ones, or views."""
    names = [name for name in part.column_names if name in schema.names]
    return pa.table({name: part[name].cast(schema.field(name).type) for name in names})
