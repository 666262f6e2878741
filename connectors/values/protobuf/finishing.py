"""Steps after the bytes are read: defaults, the names of enums, duplicate keys of maps."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from google.protobuf.descriptor import EnumDescriptor
from pyspark.sql import types as t

from sparkonce.connectors.runtime.compiled import Bytes, Int64s, compiled
from sparkonce.connectors.values.columns import SPAN_BITS, SPAN_MASK, Cells, Column
from sparkonce.connectors.values.protobuf.message_tree import Default, MessageTree

UNKNOWN = 2
"""Marks in a byte of `Cells.valid` a number that its enum lacks."""
FEW = 12
"""Up to this many keys of one map are compared one by one."""
_SEED = secrets.randbits(62)
"""Random, so that nobody can choose colliding keys."""


class Finishing:
    """Finishes the columns of one reader's message."""

    def __init__(self, tree: MessageTree) -> None:
        self._tree = tree
        self._pool = bytearray()
        self._fills = [(each, self._cell(each)) for each in tree.filled]
        self._enums = [(at, field.enum_type, *self._names(field.enum_type)) for at, field in tree.enums]

    def finish(self, cells: Cells, data: Bytes) -> tuple[Bytes, dict[int, Bytes]]:
        """Finish all columns; return the texts of constants, and for maps which entries are kept, unless all are."""
        for each, cell in self._fills:
            wide = isinstance(each.kind, t.DecimalType)
            last = int(cells.used[self._below(each)]) if each.default is None else cell
            fill(cells, each.at, each.parent, last, wide)
        pool = bytearray(self._pool)
        for at, enum, numbers, spans in self._enums:
            if name_numbers(cells, at, numbers, spans):
                _name_unknown(cells, at, enum, pool)
        kept = {}
        for column in self._tree.maps:
            keep = _last_entries(cells, column, data)
            if keep is not None:
                kept[column.at] = keep
        return np.frombuffer(bytes(pool) or b"\0", np.uint8), kept

    def _below(self, each: Default) -> int:
        return next(column.below for column in self._tree.lists if column.at == each.at)

    def _names(self, enum: EnumDescriptor) -> tuple[Int64s, Int64s]:
        """Return the numbers of an enum, in order, and the spans of their first names."""
        names: dict[int, str] = {}
        for value in enum.values:
            names.setdefault(value.number, value.name)
        numbers = sorted(names)
        spans = [_text(self._pool, names[each].encode()) for each in numbers]
        return np.array(numbers, np.int64), np.array(spans, np.int64)

    def _cell(self, each: Default) -> int:
        """Return the cell of a default."""
        default = each.default
        if isinstance(default, str | bytes):
            return _text(self._pool, default.encode() if isinstance(default, str) else default)
        if isinstance(each.kind, t.FloatType):
            return int(np.float32(default).view(np.int32))  # type: ignore[arg-type]
        if isinstance(each.kind, t.DoubleType):
            return int(np.float64(default).view(np.int64))  # type: ignore[arg-type]
        if default is None:
            return 0
        assert isinstance(default, int)
        if isinstance(each.kind, t.IntegerType):
            return ((default + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        return ((default + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)


def _text(pool: bytearray, text: bytes) -> int:
    start = -1 - len(pool)
    pool += text
    return (start << SPAN_BITS) | len(text)


def unnamed_prefix(enum: EnumDescriptor) -> str:
    """Return the prefix of the names of numbers that an enum lacks."""
    return f"UNKNOWN_ENUM_VALUE_{enum.name}_"


def _name_unknown(cells: Cells, at: int, enum: EnumDescriptor, pool: bytearray) -> None:
    """Name numbers that an enum lacks, as Java does: ``UNKNOWN_ENUM_VALUE_Color_7``."""
    first = int(cells.base[at])
    last = first + int(cells.used[cells.level_of[at]])
    values, valid = cells.values[first:last], cells.valid[first:last]
    rows = np.flatnonzero(valid == UNKNOWN)
    numbers, inverse = np.unique(values[rows], return_inverse=True)
    prefix = unnamed_prefix(enum)
    spans = [_text(pool, f"{prefix}{number}".encode()) for number in numbers.tolist()]
    values[rows] = np.array(spans, np.int64)[inverse]
    valid[rows] = 1


def _last_entries(cells: Cells, column: Column, data: Bytes) -> Bytes | None:
    """Return which entries of a map column are the last of their keys; None if all are."""
    count = int(cells.used[column.below])
    keep = np.ones(count, np.uint8)
    room = 1 << (2 * count).bit_length() if count > FEW else 1
    key = column.children[0]
    table = np.empty(room, np.int64)
    dropped = drop_doubles(cells, column.at, key.at, isinstance(key.kind, t.StringType), data, table, _SEED, keep)
    return keep if dropped else None


@compiled
def fill(cells: Cells, column: int, parent: int, cell: int, wide: bool) -> None:
    """Write a cell wherever a column has none in an existing message."""
    first = cells.base[column]
    for row in range(cells.used[cells.level_of[column]]):
        if not cells.valid[first + row] and (parent < 0 or cells.valid[cells.base[parent] + row]):
            cells.valid[first + row] = 1
            cells.values[first + row] = cell
            if wide:
                cells.values[cells.base[column + 1] + row] = 0


@compiled
def name_numbers(cells: Cells, column: int, numbers: Int64s, spans: Int64s) -> int:
    """Replace an enum's numbers by the spans of their names; return how many are `UNKNOWN`, and stay numbers."""
    first, unknown, count = cells.base[column], 0, numbers.shape[0]
    for place in range(first, first + cells.used[cells.level_of[column]]):
        if not cells.valid[place]:
            continue
        number = cells.values[place]
        low = number - numbers[0]
        if low < 0 or low >= count or numbers[low] != number:
            low, high = 0, count
            while low < high:
                middle = (low + high) >> 1
                if numbers[middle] < number:
                    low = middle + 1
                else:
                    high = middle
        if low < count and numbers[low] == number:
            cells.values[place] = spans[low]
        else:
            cells.valid[place] = UNKNOWN
            unknown += 1
    return unknown


@compiled
def drop_doubles(
    cells: Cells, column: int, key: int, text: bool, data: Bytes, table: Int64s, seed: int, keep: Bytes
) -> int:
    """Mark map entries with a later one of the same key; return how many."""
    end, dropped = keep.shape[0], 0
    for row in range(cells.used[cells.level_of[column]] - 1, -1, -1):
        place = cells.base[column] + row
        if not cells.valid[place] or cells.values[place] >= end:
            continue
        start = cells.values[place]
        first = cells.base[key]
        if end - start <= FEW:
            for entry in range(start, end - 1):
                for later in range(entry + 1, end):
                    if same_key(cells.values[first + entry], cells.values[first + later], text, data):
                        keep[entry] = 0
                        dropped += 1
                        break
        else:
            dropped += drop_by_table(cells, first, start, end, text, data, table, seed, keep)
        end = start
    return dropped


@compiled
def drop_by_table(
    cells: Cells, first: int, start: int, end: int, text: bool, data: Bytes, table: Int64s, seed: int, keep: Bytes
) -> int:
    """Do what `drop_doubles` does, for one map with many entries."""
    size = 1
    while size < 2 * (end - start):
        size *= 2
    for slot in range(size):
        table[slot] = -1
    dropped = 0
    for entry in range(end - 1, start - 1, -1):
        cell = cells.values[first + entry]
        slot = mixed(cell, text, data, seed) & (size - 1)
        while table[slot] >= 0 and not same_key(cells.values[first + table[slot]], cell, text, data):
            slot = (slot + 1) & (size - 1)
        if table[slot] >= 0:
            keep[entry] = 0
            dropped += 1
        else:
            table[slot] = entry
    return dropped


@compiled
def same_key(one: int, other: int, text: bool, data: Bytes) -> bool:
    """Return whether two cells of keys are equal."""
    if not text:
        return one == other
    if one & SPAN_MASK != other & SPAN_MASK:
        return False
    equal, first, second = True, one >> SPAN_BITS, other >> SPAN_BITS
    for index in range(one & SPAN_MASK):
        equal &= data[first + index] == data[second + index]
    return equal


@compiled
def mixed(cell: int, text: bool, data: Bytes, seed: int) -> Any:
    """Return a hash of a number."""
    bits = np.uint64(seed)
    if text:
        start = cell >> SPAN_BITS
        for index in range(start, start + (cell & SPAN_MASK)):
            bits = (bits ^ np.uint64(data[index])) * np.uint64(0x9E3779B97F4A7C15)
            bits ^= bits >> np.uint64(29)
    else:
        bits = (bits ^ np.uint64(cell)) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(32)
    return np.int64(bits & np.uint64(0x7FFFFFFFFFFFFFFF))
