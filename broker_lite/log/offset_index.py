"""The offset index of one segment: where in the `.log` file to start looking for an offset.

An entry is eight bytes: the last offset of a batch, relative to the segment's base offset, and the position at which
that batch begins (Kafka's OffsetIndex). There is one for about every `index.interval.bytes` of log. The index of a
segment that is written to is kept in memory and written to the file when the segment is rolled, flushed or closed:
after a crash the segment is read anyway, and the index rebuilt.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

from sparkonce.kafka.protocol.primitives import Buffer

ENTRY_BYTES = 8
MAX_RELATIVE_OFFSET = 2**31 - 1

assert array("i").itemsize == 4


class CorruptIndexError(Exception):
    """An index file is corrupt; it is rebuilt from the log."""


class OffsetIndex:
    """The entries of one segment's index, in order."""

    __slots__ = ("_positions", "_relative_offsets", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._relative_offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def last_position(self) -> int:
        """The position of the last entry, 0 if there is none."""
        return self._positions[-1] if self._positions else 0

    def append(self, last_offset: int, position: int) -> None:
        """Note that the batch at `position` ends with `last_offset`."""
        relative = last_offset - self.base_offset
        assert not self._relative_offsets or relative > self._relative_offsets[-1]
        self._relative_offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """Return a position at or before the batch that holds `offset`."""
        entry = bisect_right(self._relative_offsets, min(offset - self.base_offset, MAX_RELATIVE_OFFSET))
        return self._positions[entry - 1] if entry else 0

    def upper_bound(self, position: int) -> int | None:
        """Return an offset that is above all batches before `position`, or None if only the segment's end is."""
        entry = bisect_left(self._positions, position)
        return self.base_offset + self._relative_offsets[entry] if entry < len(self._positions) else None

    def encode(self) -> bytes:
        """Return the file's content."""
        flat = array("i", bytes(len(self) * ENTRY_BYTES))
        flat[0::2] = self._relative_offsets
        flat[1::2] = self._positions
        _swap(flat)
        return flat.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: Buffer, log_bytes: int) -> OffsetIndex:
        """Read a file, for a log of `log_bytes`. Raises CorruptIndexError for entries out of order or of the log."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndexError(f"offset index of {len(data)} bytes, which is no multiple of {ENTRY_BYTES}")
        flat = array("i")
        flat.frombytes(bytes(data))
        _swap(flat)
        index = cls(base_offset)
        index._relative_offsets = flat[0::2]
        index._positions = flat[1::2]
        if flat and not (0 <= flat[0] <= flat[-2] and 0 <= flat[1] <= flat[-1] < log_bytes):
            raise CorruptIndexError(f"offset index from {flat[0]}:{flat[1]} to {flat[-2]}:{flat[-1]}")
        return index


def _swap(values: array[int]) -> None:
    if sys.byteorder == "little":
        values.byteswap()
