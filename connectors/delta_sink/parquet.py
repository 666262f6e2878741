"""Data files: Arrow batches in, finished Parquet files of the table's folder out, with their entries for the log.

Batches are gathered into row groups of a fair size, since every write creates a row group. A
dictionary is built only for columns whose first rows repeat: for values that are all different, hashing them and then
falling back costs a good part of the writing time and saves nothing.

A column with a NaN has no bounds in its file's footer, and one with a -0.0 no dictionary, since readers would skip
these values. Both are decided when a file's first rows are written: where the first such value comes later, another
file is begun.

Memory is bounded: the bytes of buffered rows and the number of open files have limits.
"""

from __future__ import annotations

import os
import random
import string
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from sparkonce.connectors.delta_sink.partitions import PartitionValues, directory, split
from sparkonce.connectors.delta_sink.schema import WriteSchema
from sparkonce.connectors.delta_sink.statistics import (
    NAN,
    NEGATIVE_ZERO,
    Path,
    SpecialFloat,
    StatisticsCollector,
    bounded_columns,
    covered_columns,
    special_floats,
)
from sparkonce.offset_store.durable import flush_file, flush_folder
from sparkonce.offset_store.tables import join

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Rows of one file are buffered until they are this many bytes in Arrow."""
MAX_WAITING_BYTES = 128 * 1024 * 1024
"""Limit of the buffered rows of all open files; past it, the file with the most is written first."""
MAX_OPEN_FILES = 64
"""Past it, the file that was written to least recently is closed."""
_FOLDER_CHARACTERS = string.ascii_letters + string.digits
SAMPLE_ROWS = 2048
REPEATING = 0.5
"""A column whose sample has fewer distinct values than this part of its rows gets a dictionary."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One finished file, as the log will name it."""

    path: str
    """Relative to the table, not encoded for URIs: `AddFile.to_action` does that."""
    size: int
    rows: int
    modification_time_ms: int
    partition_values: dict[str, str | None]
    statistics: str


FILE_PREFIX = "part"
"""What the names of files begin with whose rows have their offsets in the log."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How the files of one query are written, and for which table; goes to every task."""

    table_id: str
    schema: WriteSchema
    compression: str
    target_file_bytes: int
    indexed_columns: int
    statistics_columns: tuple[Path, ...] | None = None
    row_group_bytes: int | None = None
    row_group_rows: int | None = None
    prefix: str = FILE_PREFIX
    """What the names of the files begin with."""

    @property
    def covered(self) -> dict[Path, pa.DataType]:
        """The leaves that get statistics."""
        return self._covered(self.schema.data)

    @property
    def absent(self) -> list[Path]:
        """The leaves that get statistics, and that the files do not have: all their values are null."""
        written, partitions = self.schema.arrow.names, self.schema.partition_columns
        columns = [field for field in self.schema.table or () if field.name not in partitions]
        return [path for path in self._covered(pa.schema(columns)) if path[0] not in written]

    def _covered(self, columns: pa.Schema) -> dict[Path, pa.DataType]:
        indexed = covered_columns(columns, self.indexed_columns, self.statistics_columns)
        return indexed | covered_columns(columns, 0, self.schema.clustering)


@dataclass(slots=True)
class _OpenFile:
    """A file being written, and the rows buffered for it."""

    path: str
    values: PartitionValues
    statistics: StatisticsCollector
    stream: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    bounded: frozenset[str] = frozenset()
    encoded: frozenset[str] = frozenset()
    """The Parquet paths of columns that have bounds in the file's footer, and of those that have dictionaries."""

    def takes(self, specials: set[SpecialFloat]) -> bool:
        """Whether rows with these values may follow those that are written."""
        written = {NAN: self.bounded, NEGATIVE_ZERO: self.encoded}
        return not any(".".join(path) in written[value] for path, value in specials)


@dataclass(slots=True)
class TableWriter:
    """Writes the rows of one task."""

    filesystem: fs.FileSystem
    root: str
    settings: FileSettings
    before_closing: Callable[[], None] = lambda: None
    """Called while each file has rows and is not finished."""
    finished: list[DataFile] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    """The path of every file started, to be removed if the task fails."""
    _open: OrderedDict[PartitionValues, _OpenFile] = field(default_factory=OrderedDict)
    _waiting_bytes: int = 0
    _flushed: set[str] = field(default_factory=set)
    """Folders whose own names are flushed."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of one batch of the query."""
        if batch.num_rows == 0:
            return
        schema = self.settings.schema
        aligned = schema.align(batch)
        for values, rows in self._split(aligned):
            self._add(values, rows)

    def close(self) -> list[DataFile]:
        """Finish every file, and return them all."""
        while self._open:
            self._finish(next(iter(self._open)))
        return self.finished

    def discard(self) -> None:
        """Remove every file started: the task failed, so they will never be committed. Never raises."""
        for file in self._open.values():
            if file.stream is not None:
                # On an object store this finishes an upload, and may fail; the error of the task is the one to report.
                with suppress(OSError, NotImplementedError, pa.ArrowException):
                    file.stream.close()
        self._open.clear()
        for path in self.started:
            delete_quietly(self.filesystem, join(self.root, path))

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        columns = self.settings.schema.partition_columns
        return split(batch, columns) if columns else iter([((), batch)])

    def _add(self, values: PartitionValues, rows: pa.RecordBatch) -> None:
        specials = special_floats(rows)
        file = self._open.get(values) or self._begin(values)
        if not file.takes(specials):
            self._finish(values)
            # With what the last one had, so that values that come and go do not begin file after file.
            specials |= file.statistics.specials
            file = self._begin(values)
        self._open.move_to_end(values)
        file.statistics.observe(rows, specials)
        file.waiting.append(rows)
        size = rows.nbytes
        file.waiting_bytes += size
        file.waiting_rows += rows.num_rows
        self._waiting_bytes += size
        settings = self.settings
        if file.waiting_bytes >= min(settings.row_group_bytes or ROW_GROUP_BYTES, settings.target_file_bytes):
            self._flush(file)
        elif settings.row_group_rows is not None and file.waiting_rows >= settings.row_group_rows:
            self._flush(file, whole_groups=True)
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self._flush(max(self._open.values(), key=lambda each: each.waiting_bytes))
        if file.stream is not None and file.stream.tell() >= self.settings.target_file_bytes:
            self._finish(values)
        if len(self._open) > MAX_OPEN_FILES:
            self._finish(next(iter(self._open)))

    def _begin(self, values: PartitionValues) -> _OpenFile:
        schema = self.settings.schema
        # Physical names need not be readable, so files are spread over short random folders, as Delta's writer does.
        folder = _random_folder() if schema.is_mapped and values else directory(schema.partition_columns, values)
        path = f"{folder}/{_new_name(self.settings)}" if folder else _new_name(self.settings)
        file = self._open[values] = _OpenFile(
            path, values, StatisticsCollector(self.settings.covered, self.settings.absent)
        )
        return file

    def _flush(self, file: _OpenFile, *, whole_groups: bool = False) -> None:
        """Write the buffered rows; with ``whole_groups``, keep rows that do not fill a row group."""
        if not file.waiting:
            return
        rows = pa.Table.from_batches(file.waiting)
        group = self.settings.row_group_rows or rows.num_rows
        count = rows.num_rows - rows.num_rows % group if whole_groups else rows.num_rows
        writer = file.writer or self._open_writer(file, rows)
        written = rows.slice(0, count)
        file.statistics.observe_groups(written)
        writer.write_table(written, row_group_size=group)
        self._waiting_bytes -= file.waiting_bytes
        rest = rows.slice(count)
        file.waiting, file.waiting_bytes, file.waiting_rows = rest.to_batches(), rest.nbytes, rest.num_rows
        self._waiting_bytes += file.waiting_bytes

    def _open_writer(self, file: _OpenFile, first: pa.Table) -> pq.ParquetWriter:
        full_path = join(self.root, file.path)
        if "/" in file.path:
            self.filesystem.create_dir(full_path.rpartition("/")[0], recursive=True)
        self.started.append(file.path)
        file.stream = self.filesystem.open_output_stream(full_path)
        specials: dict[str, set[str]] = {NAN: set(), NEGATIVE_ZERO: set()}
        for path, value in file.statistics.specials:
            specials[value].add(".".join(path))
        file.bounded = frozenset(bounded_columns(self.settings.covered)) - specials[NAN]
        file.encoded = frozenset(repeating_columns(first)) - specials[NEGATIVE_ZERO]
        file.writer = pq.ParquetWriter(
            file.stream,
            self.settings.schema.data,
            compression=self.settings.compression,
            use_dictionary=sorted(file.encoded) or False,
            write_statistics=sorted(file.bounded) or False,
            store_schema=False,
        )
        return file.writer

    def _finish(self, values: PartitionValues) -> None:
        file = self._open[values]
        self._flush(file)
        self.before_closing()
        del self._open[values]
        assert file.writer is not None
        assert file.stream is not None
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        self._flush_to_disk(join(self.root, file.path))
        columns = self.settings.schema.partition_columns
        self.finished.append(
            DataFile(
                path=file.path,
                size=size,
                rows=file.statistics.rows,
                modification_time_ms=time.time_ns() // 1_000_000,
                partition_values=dict(zip(columns, values, strict=True)),
                statistics=file.statistics.to_json(file.writer.writer.metadata),
            )
        )

    def _flush_to_disk(self, path: str) -> None:
        """Flush a local file: the commit is flushed, and what it names must outlive a loss of power as well."""
        if not isinstance(self.filesystem, fs.LocalFileSystem):
            return
        flush_file(path)
        folder = os.path.dirname(path)
        flush_folder(folder)
        while folder not in self._flushed and folder != self.root:  # folders that were made for partitions
            self._flushed.add(folder)
            folder = os.path.dirname(folder)
            flush_folder(folder)


def delete_quietly(filesystem: fs.FileSystem, path: str) -> None:
    """Remove an unreferenced file; one that stays only costs disk space."""
    try:
        filesystem.delete_file(path)
    except (OSError, NotImplementedError):
        return


def repeating_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns worth a dictionary, judged by their first rows."""
    sample = rows.slice(0, SAMPLE_ROWS).combine_chunks()
    chosen: list[str] = []
    for column in sample.schema:
        if pa.types.is_nested(column.type):
            chosen += _leaf_paths(column.name, column.type)
        elif not pa.types.is_boolean(column.type):
            values = sample.column(column.name)
            distinct = pc.count_distinct(values).as_py()
            if distinct < max(2, REPEATING * sample.num_rows):
                chosen.append(column.name)
    return chosen


def _leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    """Name the leaves below a nested column as Parquet does."""
    children: Sequence[tuple[str, pa.DataType]]
    if pa.types.is_struct(kind):
        children = [(f"{path}.{kind.field(i).name}", kind.field(i).type) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        children = [(f"{path}.key_value.key", kind.key_type), (f"{path}.key_value.value", kind.item_type)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        children = [(f"{path}.list.element", kind.value_type)]
    else:
        return [path]
    return [leaf for name, child in children for leaf in _leaf_paths(name, child)]


def _random_folder() -> str:
    return "".join(random.choices(_FOLDER_CHARACTERS, k=2))  # noqa: S311  # spreads load, hides nothing


def _new_name(settings: FileSettings) -> str:
    return f"{settings.prefix}-{uuid.uuid4()}.{settings.compression}.parquet"
