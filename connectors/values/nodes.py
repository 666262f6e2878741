"""The schema of values as a tree of nodes, each of which builds the Arrow array of its place from spans.

A node's `build` takes the level of its spans (see `scanning`), allocates buffers, has them filled, and lays
an Arrow array over them. Structs, arrays and maps first find the spans of their contents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import types as t

from sparkonce.connectors.runtime.compiled import Bytes, Int32s
from sparkonce.connectors.values import datetimes, leaves, scanning
from sparkonce.connectors.values.options import JsonOptions
from sparkonce.connectors.values.scanning import Fields, Level
from sparkonce.connectors.values.zones import SECONDS_PER_DAY, Zone, offset_at, parse_zone

_POWERS = np.power(10.0, np.arange(leaves.MAX_EXACT_POWER + 1), dtype=np.float64)
_BASE64 = np.full(256, 255, np.uint8)
_BASE64[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)

_BUCKET_S = 900
"""Clocks are set at full quarters of an hour, and have been ahead of UTC by multiples of it, since this year."""
_FROM_YEAR = 1973
_TO_YEAR = 9000


class Node(ABC):
    """One place in the schema."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow

    @abstractmethod
    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        """Return the array of the values at ``level``; those of odd records may be anything."""


def make_node(kind: t.DataType, arrow: pa.DataType, options: JsonOptions) -> Node:
    """Return the node for a type."""
    if isinstance(kind, t.StructType):
        children = [make_node(field.dataType, arrow.field(at).type, options) for at, field in enumerate(kind)]
        return _Struct(arrow, kind.names, children)
    if isinstance(kind, t.ArrayType):
        return _List(arrow, make_node(kind.elementType, arrow.value_type, options))
    if isinstance(kind, t.MapType):
        return _Map(arrow, make_node(kind.valueType, arrow.item_type, options))
    if isinstance(kind, t.DecimalType):
        return _Decimal(arrow, kind)
    if isinstance(kind, t.DateType):
        read = datetimes.pattern_date(options.date_format) if options.date_format else None
        return _Date(arrow) if read is None else _Parsed(arrow, read)
    if isinstance(kind, t.TimestampNTZType):
        pattern = options.timestamp_ntz_format
        return (
            _Parsed(arrow, datetimes.pattern_timestamp_ntz(pattern)) if pattern else _Timestamp(arrow, 0, zoned=False)
        )
    if isinstance(kind, t.TimestampType):
        zone = parse_zone(options.time_zone)
        pattern = options.timestamp_format
        return (
            _Parsed(arrow, datetimes.pattern_timestamp(pattern, zone))
            if pattern
            else _Timestamp(arrow, zone, zoned=True)
        )
    if type(kind) in _INTEGERS:
        return _Integer(arrow, *_INTEGERS[type(kind)])
    return _SIMPLE[type(kind)](arrow)


def _bits(valid: Bytes) -> tuple[pa.Buffer | None, int]:
    """Return the validity bitmap, None if all are valid, and the number of nulls."""
    nulls = valid.shape[0] - int(np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls


def _array(arrow: pa.DataType, valid: Bytes, *buffers: Any, children: list[pa.Array] | None = None) -> pa.Array:
    bits, nulls = _bits(valid)
    made = [bits, *(pa.py_buffer(buffer) for buffer in buffers)]
    return pa.Array.from_buffers(arrow, valid.shape[0], made, nulls, children=children)


def _present(level: Level) -> Bytes:
    return (level.starts >= 0).view(np.uint8)


def _total_bytes(level: Level) -> int:
    here = level.starts >= 0
    return int((level.ends[here].astype(np.int64) - level.starts[here]).sum())


class _Struct(Node):
    def __init__(self, arrow: pa.DataType, names: list[str], children: list[Node]) -> None:
        super().__init__(arrow)
        self._names = scanning.names_of(names)
        self._children = children

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count, fields = level.starts.shape[0], len(self._children)
        found = Fields(np.empty((fields, count), np.int32), np.empty((fields, count), np.int32))
        scanning.objects(data, level, self._names, found, scanning.no_gaps(fields), odd)
        children = [
            child.build(data, Level(found.starts[at], found.ends[at], level.owners), odd)
            for at, child in enumerate(self._children)
        ]
        return _array(self.arrow, _present(level), children=children)


class _List(Node):
    def __init__(self, arrow: pa.DataType, element: Node) -> None:
        super().__init__(arrow)
        self._element = element

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        offsets = np.empty(level.starts.shape[0] + 1, np.int32)
        elements = _room(_total_bytes(level) // 2)
        scanning.lists(data, level, offsets, elements, odd)
        children = [self._element.build(data, _cut(elements, offsets[-1]), odd)]
        return _array(self.arrow, _present(level), offsets, children=children)


class _Map(Node):
    def __init__(self, arrow: pa.DataType, value: Node) -> None:
        super().__init__(arrow)
        self._key = _String(pa.string(), texts_only=True)
        self._value = value

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        offsets = np.empty(level.starts.shape[0] + 1, np.int32)
        most = _total_bytes(level) // 4
        keys, values = _room(most), _room(most)
        scanning.maps(data, level, offsets, keys, values, odd)
        count = offsets[-1]
        made_keys = _as_required(self._key.build(data, _cut(keys, count), odd))
        made_values = self._value.build(data, _cut(values, count), odd)
        entry = pa.struct([self.arrow.key_field, self.arrow.item_field])
        entries = pa.Array.from_buffers(entry, int(count), [None], 0, children=[made_keys, made_values])
        return _array(self.arrow, _present(level), offsets, children=[entries])


def _room(most: int) -> Level:
    """Allocate the maximum number of elements; untouched pages cost nothing."""
    return Level(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32))


def _cut(level: Level, count: int) -> Level:
    return Level(level.starts[:count], level.ends[:count], level.owners[:count])


def _as_required(keys: pa.Array) -> pa.Array:
    """Drop the nulls of keys: only an odd record, which is decoded again, can have some."""
    return pa.Array.from_buffers(keys.type, len(keys), [None, *keys.buffers()[1:]], 0)


_INTEGERS: dict[type[t.DataType], tuple[int, int, type[np.signedinteger[Any]]]] = {
    t.ByteType: (-(1 << 7), (1 << 7) - 1, np.int8),
    t.ShortType: (-(1 << 15), (1 << 15) - 1, np.int16),
    t.IntegerType: (-(1 << 31), (1 << 31) - 1, np.int32),
    t.LongType: (-(1 << 63), (1 << 63) - 1, np.int64),
}


class _Integer(Node):
    def __init__(self, arrow: pa.DataType, least: int, most: int, kind: type[np.signedinteger[Any]]) -> None:
        super().__init__(arrow)
        self._least, self._most, self._kind = least, most, kind

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        values, valid = np.empty(count, np.int64), np.empty(count, np.uint8)
        leaves.integers(data, level, self._least, self._most, values, valid, odd)
        return _array(self.arrow, valid, values.astype(self._kind, copy=False))


class _Boolean(Node):
    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        values, valid = np.empty(count, np.uint8), np.empty(count, np.uint8)
        leaves.booleans(data, level, values, valid, odd)
        return _array(self.arrow, valid, np.packbits(values, bitorder="little"))


def _doubles(data: Bytes, level: Level, odd: Bytes) -> tuple[NDArray[np.float64], Bytes]:
    count = level.starts.shape[0]
    values, valid, unsure = np.empty(count), np.empty(count, np.uint8), np.empty(count, np.uint8)
    more = leaves.doubles(data, level, _POWERS, values, valid, unsure, odd)
    if more:
        offsets, texts = np.zeros(more + 1, np.int32), np.empty(_total_bytes(level), np.uint8)
        leaves.marked_texts(data, level, unsure, offsets, texts)
        found = pa.Array.from_buffers(pa.string(), more, [None, pa.py_buffer(offsets), pa.py_buffer(texts)], 0)
        values[unsure.view(np.bool_)] = pc.cast(found, pa.float64()).to_numpy()
    return values, valid


class _Double(Node):
    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        values, valid = _doubles(data, level, odd)
        return _array(self.arrow, valid, values)


class _Float(Node):
    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        values, valid = _doubles(data, level, odd)
        leaves.between_floats(level, values.view(np.int64), valid, odd)
        with np.errstate(over="ignore", under="ignore"):
            return _array(self.arrow, valid, values.astype(np.float32))


class _Decimal(Node):
    def __init__(self, arrow: pa.DataType, kind: t.DecimalType) -> None:
        super().__init__(arrow)
        self._scale = kind.scale
        self._most = 10 ** min(kind.precision, leaves.MAX_EXACT_DIGITS) - 1

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        values, valid = np.empty(count, np.int64), np.empty(count, np.uint8)
        leaves.decimals(data, level, self._scale, self._most, values, valid, odd)
        words = np.empty((count, 2), np.int64)
        words[:, 0] = values
        words[:, 1] = values >> 63
        return _array(self.arrow, valid, words)


class _String(Node):
    def __init__(self, arrow: pa.DataType, texts_only: bool = False) -> None:
        super().__init__(arrow)
        self._texts_only = texts_only

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        offsets, valid = np.empty(count + 1, np.int32), np.empty(count, np.uint8)
        target = np.empty(_total_bytes(level), np.uint8)
        leaves.strings(data, level, self._texts_only, offsets, target, valid, odd)
        return _array(self.arrow, valid, offsets, target[: offsets[-1]])


class _Binary(Node):
    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        offsets, valid = np.empty(count + 1, np.int32), np.empty(count, np.uint8)
        target = np.empty(_total_bytes(level), np.uint8)
        leaves.base64(data, level, _BASE64, offsets, target, valid, odd)
        return _array(self.arrow, valid, offsets, target[: offsets[-1]])


class _Date(Node):
    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        values, valid = np.empty(count, np.int32), np.empty(count, np.uint8)
        leaves.dates(data, level, values, valid, odd)
        return _array(self.arrow, valid, values)


class _Timestamp(Node):
    def __init__(self, arrow: pa.DataType, zone: Zone, zoned: bool) -> None:
        super().__init__(arrow)
        self._zone, self._zoned = zone, zoned
        self._offsets: dict[int, int | None] = {}

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        count = level.starts.shape[0]
        values, valid, local = np.empty(count, np.int64), np.empty(count, np.uint8), np.empty(count, np.uint8)
        zone_s = self._zone if isinstance(self._zone, int) else leaves.NO_ZONE
        more = leaves.timestamps(data, level, zone_s, self._zoned, values, valid, local, odd)
        if more:
            self._to_utc(level.owners, values, local.view(np.bool_), odd)
        return _array(self.arrow, valid, values)

    def _to_utc(self, owners: Int32s, values: NDArray[np.int64], local: NDArray[np.bool_], odd: Bytes) -> None:
        """Interpret local times in the zone, a quarter of an hour at a time."""
        buckets, which = np.unique(values[local] // (_BUCKET_S * datetimes.MICROS_PER_SECOND), return_inverse=True)
        offsets = [self._offset(int(bucket)) for bucket in buckets]
        unknown = np.array([offset is None for offset in offsets])
        ahead = np.array([offset or 0 for offset in offsets], np.int64) * datetimes.MICROS_PER_SECOND
        values[local] -= ahead[which]
        odd[owners[local][unknown[which]]] = 1

    def _offset(self, bucket: int) -> int | None:
        """Return the seconds ahead of UTC in a quarter of an hour of local time; None if they might vary in it."""
        if bucket not in self._offsets:
            days, second = divmod(bucket * _BUCKET_S, SECONDS_PER_DAY)
            first, last = datetimes.days_of(_FROM_YEAR, 1, 1), datetimes.days_of(_TO_YEAR, 1, 1)
            known = first <= days < last
            day = np.datetime64(days, "D").item() if known else None
            self._offsets[bucket] = offset_at(self._zone, day.year, day.month, day.day, second) if day else None
        return self._offsets[bucket]


class _Parsed(Node):
    """Dates and timestamps by a pattern: each text by a function."""

    def __init__(self, arrow: pa.DataType, read: Callable[[str], int]) -> None:
        super().__init__(arrow)
        self._texts = _String(pa.string(), texts_only=True)
        self._read = read
        self._kind = np.int32 if pa.types.is_date32(arrow) else np.int64

    def build(self, data: Bytes, level: Level, odd: Bytes) -> pa.Array:
        values = np.zeros(level.starts.shape[0], self._kind)
        texts = self._texts.build(data, level, odd)
        valid = np.zeros(level.starts.shape[0], np.uint8)
        for row, text in enumerate(texts.cast(pa.binary()).to_pylist()):
            if text is None or odd[level.owners[row]]:
                continue
            try:
                values[row] = self._read(text.decode())
                valid[row] = 1
            except ValueError:
                odd[level.owners[row]] = 1
        return _array(self.arrow, valid, values)


_SIMPLE: dict[type[t.DataType], Callable[[pa.DataType], Node]] = {
    t.BooleanType: _Boolean,
    t.FloatType: _Float,
    t.DoubleType: _Double,
    t.StringType: _String,
    t.BinaryType: _Binary,
}
