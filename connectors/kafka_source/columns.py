"""Buffers for the decoder to fill, and the Arrow columns over them, without a copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkonce.connectors.kafka_source import kernel
from sparkonce.connectors.kafka_source.kernel import Column, Headers, Rows
from sparkonce.connectors.runtime.compiled import Int64s

MOST_IN_ADVANCE = 1 << 20
"""Rows; more than so many are made room for only if asked for."""

_NO_BYTES = np.zeros(0, np.uint8)
_NO_INT32S = np.zeros(0, np.int32)
_NO_INT64S = np.zeros(0, np.int64)
_NO_COLUMN = Column(_NO_INT32S, _NO_BYTES, _NO_BYTES)
_NO_HEADERS = Headers(_NO_INT32S, _NO_BYTES, _NO_COLUMN, _NO_COLUMN)


def allocate(capacity: int, size: int, wanted: int) -> Rows:
    """Make room for the ``wanted`` columns of ``capacity`` records that take ``size`` bytes together.

    No column can hold more bytes than were read, so there is nothing to count beforehand; pages that stay untouched
    cost nothing.
    """
    return Rows(
        np.empty(capacity, np.int64) if wanted & kernel.OFFSETS else _NO_INT64S,
        np.empty(capacity, np.int64) if wanted & kernel.TIMES else _NO_INT64S,
        np.empty(capacity, np.int32) if wanted & kernel.TIME_TYPES else _NO_INT32S,
        _column(capacity, size) if wanted & kernel.KEYS else _NO_COLUMN,
        _column(capacity, size) if wanted & kernel.VALUES else _NO_COLUMN,
        _header_columns(capacity, size) if wanted & kernel.WITH_HEADERS else _NO_HEADERS,
    )


def fixed(kind: pa.DataType, values: NDArray[np.int64] | NDArray[np.int32], count: int) -> pa.Array:
    """Return the first ``count`` values as a column without nulls."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values[:count])], 0)


def binary(kind: pa.DataType, column: Column, count: int, state: Int64s, used_slot: int) -> pa.Array:
    """Return the first ``count`` values of a column of variable length."""
    nulls = int(state[used_slot + 1])
    buffers = [
        pa.py_buffer(column.bits[: (count + 7) // 8]) if nulls else None,
        pa.py_buffer(column.offsets[: count + 1]),
        pa.py_buffer(column.data[: int(state[used_slot])]),
    ]
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def header_lists(kind: pa.ListType, headers: Headers, count: int, state: Int64s) -> pa.Array:
    """Return the column of headers; as in Spark's connector it is null for a record that has none."""
    entries = int(state[kernel.HEADERS])
    keys = binary(pa.string(), headers.keys, entries, state, kernel.HEADER_KEY_BYTES)
    values = binary(pa.binary(), headers.values, entries, state, kernel.HEADER_VALUE_BYTES)
    entry = pa.Array.from_buffers(kind.value_type, entries, [None], 0, children=[keys, values])
    validity = pa.py_buffer(headers.list_bits[: (count + 7) // 8])
    lists = pa.py_buffer(headers.lists[: count + 1])
    nulls = count - int(state[kernel.HEADER_LISTS])
    return pa.Array.from_buffers(kind, count, [validity, lists], nulls, children=[entry])


class Constants:
    """Columns that hold one value throughout, made once and sliced."""

    def __init__(self, topic: str, partition: int) -> None:
        self._name = topic.encode()
        self._partition = partition
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    def topics(self, count: int) -> pa.Array:
        """Return the column topic for ``count`` rows."""
        if count > len(self._topics):
            capacity = _capacity(count, len(self._topics))
            offsets = np.arange(capacity + 1, dtype=np.int32) * len(self._name)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._name * capacity)]
            self._topics = pa.Array.from_buffers(pa.string(), capacity, buffers, 0)
        return self._topics.slice(0, count)

    def partitions(self, count: int) -> pa.Array:
        """Return the column partition for ``count`` rows."""
        if count > len(self._partitions):
            capacity = _capacity(count, len(self._partitions))
            self._partitions = pa.array(np.full(capacity, self._partition, np.int32))
        return self._partitions.slice(0, count)


def _capacity(count: int, so_far: int) -> int:
    return max(count, min(2 * so_far, MOST_IN_ADVANCE))


def _column(capacity: int, size: int) -> Column:
    offsets = np.empty(capacity + 1, np.int32)
    offsets[0] = 0
    return Column(offsets, np.zeros((capacity + 7) // 8, np.uint8), np.empty(size, np.uint8))


def _header_columns(capacity: int, size: int) -> Headers:
    most = size // 2 + 1  # a header takes two bytes at least: two lengths
    lists = np.empty(capacity + 1, np.int32)
    lists[0] = 0
    return Headers(lists, np.zeros((capacity + 7) // 8, np.uint8), _column(most, size), _column(most, size))
