"""Typed columns that a compiled decoder fills cell by cell, and their conversion to Arrow arrays.

A schema becomes a tree of columns. A column's rows are those of its level: level 0 has one row for each value, and
each array or map opens a level whose rows are its elements, one after the other. All cells of all columns lie in one
array of 64-bit integers, so that one compiled function can serve every schema: what a cell holds depends on the type
(`Column`). Each cell has a byte that says whether it is valid; what is not valid is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled, copy_bytes

SPAN_BITS, SPAN_MASK = 32, 0xFFFFFFFF
"""A text is where it starts, shifted to the left by so many bits, and its length in bytes. A start below zero is one in
the pool of constants: -1 is its first byte."""
_WORDS: dict[type[t.DataType], type[np.generic]] = {
    t.ByteType: np.int8,
    t.ShortType: np.int16,
    t.IntegerType: np.int32,
    t.DateType: np.int32,
    t.LongType: np.int64,
    t.TimestampType: np.int64,
    t.TimestampNTZType: np.int64,
}

NULL, UNREADABLE = -1, -2
"""Instead of a writer's number: for a null, and for a value without a schema to read it."""
Problems = dict[int, str]
"""By the number of the value, its problem."""


@dataclass(frozen=True, slots=True)
class Column:
    """One place in a schema.

    Its cells hold whole numbers, days and microseconds as they are; the bits of a DOUBLE or FLOAT; 0 and 1 for BOOLEAN;
    the spans of STRING and BINARY. A DECIMAL takes two columns: the low word, then the high one. Those of an array or
    map hold its first row below, and those of a struct nothing.
    """

    at: int
    """Its number."""
    level: int
    kind: t.DataType
    arrow: pa.DataType
    children: tuple[Column, ...] = ()
    """The fields of a struct, the element of an array, the key and the value of a map."""

    def field(self, name: str) -> Column | None:
        """Return the column of a struct's field; None if it has none of that name."""
        assert isinstance(self.kind, t.StructType)
        return self.children[self.kind.names.index(name)] if name in self.kind.names else None

    @property
    def below(self) -> int:
        """The level of an array's or map's elements."""
        return self.children[0].level


class Layout:
    """The columns of a schema."""

    def __init__(self, kind: t.DataType) -> None:
        """Lay out the columns of a type. Raises ValueError if a struct has two fields of one name."""
        self.level_of: list[int] = []
        """By column."""
        self.levels = 1
        self.root = self._column(kind, to_arrow_type(kind, timezone="UTC"), 0)

    def spare(self, level: int) -> int:
        """Return the number of another column of a level, which has no array: a decoder's notes."""
        self.level_of.append(level)
        return len(self.level_of) - 1

    def _column(self, kind: t.DataType, arrow: pa.DataType, level: int) -> Column:
        at = len(self.level_of)
        self.level_of += [level] * (2 if isinstance(kind, t.DecimalType) else 1)
        children: list[Column] = []
        if isinstance(kind, t.StructType):
            twice = [name for name in kind.names if kind.names.count(name) > 1]
            if twice:
                raise ValueError(f"a struct of the column has two fields {twice[0]}")
            children = [self._column(each.dataType, arrow.field(no).type, level) for no, each in enumerate(kind)]
        elif isinstance(kind, t.ArrayType | t.MapType):
            below, self.levels = self.levels, self.levels + 1
            if isinstance(kind, t.ArrayType):
                children = [self._column(kind.elementType, arrow.value_type, below)]
            else:
                children = [self._column(kind.keyType, arrow.key_type, below)]
                children.append(self._column(kind.valueType, arrow.item_type, below))
        return Column(at, level, kind, arrow, tuple(children))


class Cells(NamedTuple):
    """The memory of all columns; what a compiled decoder writes."""

    values: Int64s
    valid: Bytes
    base: Int64s
    """By column, where its cells begin, in both."""
    level_of: Int64s
    used: Int64s
    """By level, the number of rows."""
    row: Int64s
    """By level, the current row."""


class CellMaker:
    """Allocates memory for columns, and reuses it."""

    def __init__(self, layout: Layout) -> None:
        self._level_of = np.array(layout.level_of, np.int64)
        self._levels = layout.levels
        self._values, self._valid = np.empty(0, np.int64), np.empty(0, np.uint8)

    def make(self, rows: int, most_below: int) -> Cells:
        """Return cells for some rows, all of which are null; levels below the first have room for ``most_below``.

        They share memory with the last call's, so its results must have been copied.
        """
        room = np.where(self._level_of == 0, rows, most_below)
        base = np.concatenate([[0], np.cumsum(room)[:-1]])
        total = int(room.sum())
        if self._values.shape[0] < total:
            self._values = np.empty(total, np.int64)
        self._valid = np.zeros(total, np.uint8)
        used = np.zeros(self._levels, np.int64)
        used[0] = rows
        return Cells(self._values, self._valid, base, self._level_of, used, np.zeros(self._levels, np.int64))


def to_arrow(
    column: Column, cells: Cells, data: Bytes, pool: Bytes, kept: Mapping[int, Bytes] | None = None
) -> pa.Array:
    """Return a column's array, those below it included.

    ``data`` is what spans point to, and ``pool`` holds the constants. ``kept`` has for some maps, by the number of
    their column, which of their entries are kept.
    """
    first, count = int(cells.base[column.at]), int(cells.used[column.level])
    valid, values = cells.valid[first : first + count], cells.values[first : first + count]
    kind = column.kind
    children = None
    buffers: list[NDArray[np.generic]]
    if isinstance(kind, t.StructType):
        buffers, children = [], [to_arrow(child, cells, data, pool, kept) for child in column.children]
    elif isinstance(kind, t.ArrayType | t.MapType):
        children = [to_arrow(child, cells, data, pool, kept) for child in column.children]
        if isinstance(kind, t.MapType):
            children = [pa.StructArray.from_arrays(children, fields=[column.arrow.key_field, column.arrow.item_field])]
        offsets = _offsets(values, valid, int(cells.used[column.below]))
        if kept is not None and column.at in kept:
            offsets = np.append([0], np.cumsum(kept[column.at]))[offsets].astype(np.int32)
            children = [children[0].filter(pa.array(kept[column.at].astype(np.bool_)))]
        buffers = [offsets]
    elif isinstance(kind, t.StringType | t.BinaryType):
        buffers = _texts(values, valid, data, pool)
    elif isinstance(kind, t.DecimalType):
        buffers = [_decimals(cells, column.at, count)]
    elif isinstance(kind, t.BooleanType):
        buffers = [np.packbits(np.where(valid, values, 0).astype(np.uint8), bitorder="little")]
    elif isinstance(kind, t.DoubleType):
        buffers = [values.view(np.float64).copy()]
    elif isinstance(kind, t.FloatType):
        buffers = [values.astype(np.int32).view(np.float32)]
    else:
        buffers = [values.astype(_WORDS[type(kind)])]
    nulls = count - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(
        column.arrow, count, [bits, *(pa.py_buffer(each) for each in buffers)], nulls, children=children
    )


def _offsets(starts: Int64s, valid: Bytes, total: int) -> NDArray[np.int32]:
    """Return where each list begins, and the end of the last; lists that are null are empty."""
    offsets = np.append(np.where(valid, starts, total), total)
    return np.minimum.accumulate(offsets[::-1])[::-1].astype(np.int32)


def _decimals(cells: Cells, at: int, count: int) -> Int64s:
    both = np.empty((count, 2), np.int64)
    for word in range(2):
        first = int(cells.base[at + word])
        both[:, word] = cells.values[first : first + count]
    return both


def _texts(spans: Int64s, valid: Bytes, data: Bytes, pool: Bytes) -> list[NDArray[np.generic]]:
    lengths = np.where(valid, spans & SPAN_MASK, 0)
    offsets = np.zeros(spans.shape[0] + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{offsets[-1]} bytes of text in one column are more than Arrow holds")
    texts = np.empty(int(offsets[-1]), np.uint8)
    gather(spans, offsets, data, pool, texts)
    return [offsets.astype(np.int32), texts]


@compiled
def gather(spans: Int64s, offsets: Int64s, data: Bytes, pool: Bytes, into: Bytes) -> None:
    """Copy texts to where ``offsets`` says; those without bytes may have any span."""
    for row in range(spans.shape[0]):
        length = offsets[row + 1] - offsets[row]
        if length == 0:
            continue
        start = spans[row] >> SPAN_BITS
        if start >= 0:
            copy_bytes(into, offsets[row], data, start, length)
        else:
            copy_bytes(into, offsets[row], pool, -1 - start, length)


def slices(data: Bytes, starts: Int64s, ends: Int64s, valid: NDArray[np.bool_]) -> pa.BinaryArray:
    """Return pieces of ``data`` as an array, null where not valid."""
    spans = (starts << SPAN_BITS) | (ends - starts)
    buffers = _texts(spans, valid.view(np.uint8), data, data)
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), starts.shape[0], [bits, *map(pa.py_buffer, buffers)])


def binary_array(data: Bytes, offsets: Int32s, valid: Bytes) -> pa.BinaryArray:
    """Return an array of values that an encoder has written end to end; ``valid`` marks those that are not null."""
    nulls = int(valid.shape[0] - np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.binary(), valid.shape[0], [bits, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


class Filled(NamedTuple):
    """The cells of an array, and the target of spans; those of an array or map have its first row and length."""

    cells: Cells
    data: Bytes


def from_arrow(layout: Layout, array: pa.Array) -> Filled:
    """Return the cells of an array of the layout's type: the inverse of `to_arrow`."""
    filler = _Filler(len(layout.level_of), layout.levels)
    filler.fill(layout.root, array)
    lengths = [part.shape[0] for part in filler.values]
    base = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    cells = Cells(
        np.concatenate(filler.values),
        np.concatenate(filler.valid),
        base,
        np.array(layout.level_of, np.int64),
        filler.used,
        np.zeros(layout.levels, np.int64),
    )
    texts = np.concatenate([*filler.texts, np.zeros(1, np.uint8)])
    return Filled(cells, texts)


class _Filler:
    def __init__(self, columns: int, levels: int) -> None:
        self.values: list[Int64s] = [np.empty(0, np.int64)] * columns
        self.valid: list[Bytes] = [np.empty(0, np.uint8)] * columns
        self.used: Int64s = np.zeros(levels, np.int64)
        self.texts: list[Bytes] = []
        self._text_bytes = 0

    def fill(self, column: Column, array: pa.Array) -> None:
        count, kind, at = len(array), column.kind, column.at
        self.used[column.level] = count
        self.valid[at] = np.asarray(array.is_valid()).view(np.uint8) if array.null_count else np.ones(count, np.uint8)
        if isinstance(kind, t.StructType):
            self.values[at] = np.zeros(count, np.int64)
            for no, child in enumerate(column.children):
                self.fill(child, array.field(no))
        elif isinstance(kind, t.ArrayType | t.MapType):
            offsets = _offsets_of(array)
            first, last = int(offsets[0]), int(offsets[-1])
            self.values[at] = ((offsets[:-1] - first) << SPAN_BITS) | np.diff(offsets)
            below = (array.values,) if isinstance(kind, t.ArrayType) else (array.keys, array.items)
            for child, part in zip(column.children, below, strict=True):
                self.fill(child, part.slice(first, last - first))
        elif isinstance(kind, t.StringType | t.BinaryType):
            self.values[at] = self._spans(array)
        elif isinstance(kind, t.DecimalType):
            words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + count)]
            self.values[at], self.values[at + 1] = words[::2].copy(), words[1::2].copy()
            self.valid[at + 1] = self.valid[at]
        elif isinstance(kind, t.BooleanType):
            self.values[at] = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            word = _BITS.get(type(kind)) or _WORDS[type(kind)]
            found = np.frombuffer(array.buffers()[1], word)[array.offset : array.offset + count]
            self.values[at] = found.astype(np.int64)

    def _spans(self, array: pa.Array) -> Int64s:
        if array.type not in (pa.string(), pa.binary()):
            array = array.cast(pa.binary())
        content, offsets = array.buffers()[2], _offsets_of(array)
        starts = offsets[:-1] - offsets[0] + self._text_bytes
        if content is not None and content.size:
            self.texts.append(np.frombuffer(content, np.uint8)[int(offsets[0]) : int(offsets[-1])])
            self._text_bytes += int(offsets[-1] - offsets[0])
        spans: Int64s = (starts << SPAN_BITS) | np.diff(offsets)
        return spans


def _offsets_of(array: pa.Array) -> Int64s:
    """Return the start of each text or list, and the end of the last one; an empty array may have no offsets at all."""
    if not len(array):
        return np.zeros(1, np.int64)
    found = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return found.astype(np.int64)


_BITS: dict[type[t.DataType], type[np.generic]] = {t.FloatType: np.int32, t.DoubleType: np.int64}


@compiled
def forget(cells: Cells, before: Int64s, row: int) -> None:
    """Set to null what an unreadable value has written, and free its rows below."""
    for column in range(cells.base.shape[0]):
        level = cells.level_of[column]
        if level == 0:
            cells.valid[cells.base[column] + row] = 0
        else:
            for below in range(before[level], cells.used[level]):
                cells.valid[cells.base[column] + below] = 0
    for level in range(1, before.shape[0]):
        cells.used[level] = before[level]
