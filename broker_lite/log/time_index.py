"""The time index of one segment: the offset from which to search for a timestamp.

An entry is twelve bytes: a timestamp in milliseconds, and the last offset, relative to the base, of the batch that
brought it: no record before that offset has a later timestamp (Kafka's TimeIndex). Both increase from entry to entry.
As the offset index, it is kept in memory while the segment is written to.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

from sparkonce.broker_lite.log.offset_index import CorruptIndexError
from sparkonce.kafka.protocol.primitives import Buffer

ENTRY_BYTES = 12
NO_TIMESTAMP = -1
_ENTRY = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds since 1970, and the offset that goes with it."""

    timestamp_ms: int
    offset: int


class TimeIndex:
    """The entries of one segment's index, in order."""

    __slots__ = ("_relative_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        if not self._timestamps:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._timestamps[-1], self.base_offset + self._relative_offsets[-1])

    def maybe_append(self, timestamp_ms: int, last_offset: int) -> None:
        """Add an entry if its timestamp is later than the last one's."""
        if timestamp_ms > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp_ms)
            self._relative_offsets.append(last_offset - self.base_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """Return an offset before which no record has a timestamp after `timestamp_ms`."""
        entry = bisect_right(self._timestamps, timestamp_ms)
        return self.base_offset + (self._relative_offsets[entry - 1] if entry else 0)

    def encode(self) -> bytes:
        """Return the file's content."""
        pairs = zip(self._timestamps, self._relative_offsets, strict=True)
        return b"".join([_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs])

    @classmethod
    def decode(cls, base_offset: int, data: Buffer) -> TimeIndex:
        """Read a file's content. Raises CorruptIndexError if entries do not increase."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndexError(f"time index of {len(data)} bytes, which is no multiple of {ENTRY_BYTES}")
        index = cls(base_offset)
        for timestamp, offset in _ENTRY.iter_unpack(data):
            index._timestamps.append(timestamp)
            index._relative_offsets.append(offset)
        if index._timestamps and not (
            index._timestamps[0] <= index._timestamps[-1]
            and 0 <= index._relative_offsets[0] <= index._relative_offsets[-1]
        ):
            raise CorruptIndexError(f"time index of base offset {base_offset} does not rise")
        return index
