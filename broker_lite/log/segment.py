"""One segment: a `.log` file of record batches, and the two indexes into it.

Appends go to the file at once; the indexes grow in memory and reach their files when the segment is rolled or closed.
A segment that is only read opens its file and its indexes when they are first needed. The rules for when an index
gets an entry, and when a segment is full, are those of Kafka's LogSegment.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from sparkonce.broker_lite.log.offset_index import MAX_RELATIVE_OFFSET, CorruptIndexError, OffsetIndex
from sparkonce.broker_lite.log.storage import NO_FILE, File, Storage
from sparkonce.broker_lite.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from sparkonce.broker_lite.log.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from sparkonce.broker_lite.log.transaction_index import SUFFIX as TRANSACTION_INDEX_SUFFIX
from sparkonce.broker_lite.log.transaction_index import TransactionIndex
from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import (
    HEADER_BYTES,
    LEGACY_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
_SCAN_BYTES = 4096
"""How many bytes are read at once when walking over headers."""
_MAX_SCAN_BYTES = 128 * 1024
"""The same, for a walk over many small batches."""

_OFFSETS = struct.Struct(">qi4xb6xi")
"""Of a batch's header: base offset, length, magic, last offset delta."""

logger = logging.getLogger(__name__)


class Slice(NamedTuple):
    """A slice of a segment's file that begins at a batch boundary; `size` is in bytes."""

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.pread(self.size, self.position)


class BatchPosition(NamedTuple):
    """A batch's position in the file, and its header."""

    position: int
    header: BatchHeader


def _padded(window: bytes) -> bytes:
    """Return a window on the file's end with room for a whole header: the smallest old message is smaller than that."""
    return window if len(window) >= HEADER_BYTES else window.ljust(HEADER_BYTES, b"\0")


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of one of a segment's files: the base offset in 20 digits."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """One segment of a partition's log."""

    __slots__ = (
        "_bytes_since_entry",
        "_config",
        "_created_ms",
        "_file",
        "_first_timestamp_ms",
        "_max",
        "_offset_index",
        "_path",
        "_state",
        "_storage",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "size",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        state: str = "",
        file: File | None = None,
    ) -> None:
        """Open a segment that is on the disk, or `file`; use `create` or `unmade` for a new one.

        `state` is the suffix of its files' names: empty for a segment of the log, see `segment_swap`.
        """
        self._storage = storage
        self._path = f"{directory}/{base_offset:020d}"
        self._state = state
        self._config = config
        self._created_ms = now_ms
        self.base_offset = base_offset
        self._file = file
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._max: TimestampOffset | None = None
        self._first_timestamp_ms: int | None = None
        self._bytes_since_entry = 0
        self.size = storage.size(self._name(LOG_SUFFIX)) if file is None else file.size

    @classmethod
    def create(
        cls, storage: Storage, directory: str, base_offset: int, config: LogConfig, now_ms: int, state: str = ""
    ) -> Segment:
        """Create an empty segment."""
        file = storage.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX + state)}")
        if file.size:
            file.truncate(0)
        segment = cls(storage, directory, base_offset, config, now_ms, state, file)
        segment.reset_indexes()
        segment.reset_transaction_index()
        return segment

    @classmethod
    def unmade(cls, storage: Storage, directory: str, config: LogConfig, now_ms: int) -> Segment:
        """Return the empty segment of a log whose directory does not exist yet; nothing is written to it."""
        segment = cls(storage, directory, 0, config, now_ms, file=NO_FILE)
        segment.reset_indexes()
        segment._transaction_index = TransactionIndex()
        return segment

    @property
    def file(self) -> File:
        """The `.log` file, opened if need be."""
        if self._file is None:
            self._file = self._storage.open(self._name(LOG_SUFFIX))
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, read from its file if need be."""
        if self._offset_index is None:
            self._load_indexes()
            assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read from its file if need be."""
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """The aborted transactions whose markers lie in this segment. Raises CorruptIndexError if the file is."""
        if self._transaction_index is None:
            try:
                data = self._storage.read(self._name(TRANSACTION_INDEX_SUFFIX))
            except FileNotFoundError:
                data = b""
            self._transaction_index = TransactionIndex.decode(self.base_offset, data)
        return self._transaction_index

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The latest timestamp in the segment, and the last offset of the first batch with it."""
        if self._max is None:
            self._max = self.time_index.last
        return self._max

    @property
    def largest_timestamp_ms(self) -> int:
        """The latest timestamp; if there is none, when the file was last written to."""
        latest = self.max_timestamp.timestamp_ms if self.size else NO_TIMESTAMP
        return latest if latest >= 0 else self.modified_ms

    @property
    def first_timestamp_ms(self) -> int:
        """The timestamp of the first batch, -1 if there is none."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = self._find_first_timestamp()
        return self._first_timestamp_ms

    @property
    def created_ms(self) -> int:
        """When it was created or opened."""
        return self._created_ms

    @property
    def modified_ms(self) -> int:
        """When the `.log` file was last written to; a compacted one has the time of the segments that it replaces."""
        return self._storage.modified_ms(self._name(LOG_SUFFIX))

    @modified_ms.setter
    def modified_ms(self, time_ms: int) -> None:
        self._storage.set_modified_ms(self._name(LOG_SUFFIX), time_ms)

    def paths(self) -> list[str]:
        """Return the paths of the segment's files."""
        suffixes = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        return [self._name(suffix) for suffix in suffixes]

    def _name(self, suffix: str) -> str:
        return f"{self._path}{suffix}{self._state}"

    def append(self, batch: Buffer, header: BatchHeader, last_offset: int) -> None:
        """Write one batch, whose last record has `last_offset`, at the end.

        Raises:
            OSError: if the write fails; the file is truncated to its former size.
        """
        position = self.size
        file = self.file
        try:
            file.append(batch)
        except OSError:
            file.truncate(position)
            raise
        size = len(batch)
        self.size = position + size
        self.note(header.max_timestamp, last_offset, position, size)

    def note(self, max_timestamp_ms: int, last_offset: int, position: int, size: int) -> None:
        """Update the indexes for a batch of `size` bytes at `position`."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = self._find_first_timestamp() if position else max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp.timestamp_ms:
            self._max = TimestampOffset(max_timestamp_ms, last_offset)
        if self._bytes_since_entry > self._config.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*self.max_timestamp)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def should_roll(self, config: LogConfig, size: int, max_timestamp_ms: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes belongs into a new segment (Kafka's LogSegment.shouldRoll)."""
        return (
            self.size > config.segment_bytes - size
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or (self.size > 0 and self._waited_ms(max_timestamp_ms, now_ms) > self._roll_ms(config))
            or len(self.offset_index) >= config.segment_index_bytes // OFFSET_ENTRY_BYTES
            or len(self.time_index) >= config.segment_index_bytes // TIME_ENTRY_BYTES - 1
        )

    def _roll_ms(self, config: LogConfig) -> int:
        most = config.segment_ms
        if "compact" in config.cleanup_policy:
            most = min(most, config.max_compaction_lag_ms)  # what is in the active segment is never compacted
        jitter = min(config.segment_jitter_ms, most)
        # Any number will do that differs between partitions and between segments.
        return most - zlib.crc32(self._path.encode()) % jitter if jitter else most

    def _waited_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        first_ms = self.first_timestamp_ms
        return max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self._created_ms

    def _find_first_timestamp(self) -> int:
        first = next(self.batches(0), None)
        return NO_TIMESTAMP if first is None else first.header.max_timestamp

    def batches(self, position: int) -> Iterator[BatchPosition]:
        """Iterate over headers from `position`, a batch boundary. Raises CorruptBatchError for an impossible length."""
        file, end = self.file, self.size
        window, window_start, step = b"", position, _SCAN_BYTES
        while end - position >= LEGACY_HEADER_BYTES:
            if position - window_start + HEADER_BYTES > len(window):
                # Small batches are read many at a time; of large ones only the header is read.
                small = position - window_start < 2 * len(window)
                step = min(step * 2, _MAX_SCAN_BYTES) if small else _SCAN_BYTES
                window, window_start = _padded(file.pread(min(step, end - position), position)), position
            header = read_header(window, position - window_start)
            size = header.size
            if header.magic >= MAGIC and end - position < HEADER_BYTES:
                return
            if size < (HEADER_BYTES if header.magic >= MAGIC else LEGACY_HEADER_BYTES):
                raise CorruptBatchError(f"{self._name(LOG_SUFFIX)}: batch of {size} bytes at {position}")
            if size > end - position:
                return
            yield BatchPosition(position, header)
            position += size

    def find(self, offset: int) -> BatchPosition | None:
        """Return the first batch that ends at or after `offset`."""
        # The hot loop of every read: only the three fields that decide are unpacked.
        file, end, position = self.file, self.size, self.offset_index.lookup(offset)
        window, window_start = b"", position
        while end - position >= LEGACY_HEADER_BYTES:
            at = position - window_start
            if at + HEADER_BYTES > len(window):
                window, window_start, at = _padded(file.pread(min(_SCAN_BYTES, end - position), position)), position, 0
            base_offset, length, magic, last_offset_delta = _OFFSETS.unpack_from(window, at)
            size = length + LOG_OVERHEAD_BYTES
            if magic < MAGIC:  # formats v0 and v1: the offset of a message set is that of its last message
                last_offset_delta = 0
            elif end - position < HEADER_BYTES:
                break
            if size < (HEADER_BYTES if magic >= MAGIC else LEGACY_HEADER_BYTES):
                raise CorruptBatchError(f"{self._name(LOG_SUFFIX)}: batch of {size} bytes at {position}")
            if base_offset + last_offset_delta >= offset:
                return BatchPosition(position, read_header(window, at)) if size <= end - position else None
            position += size
        return None

    def batch_since(self, timestamp_ms: int, start_offset: int) -> bytes | None:
        """Return the first batch that ends at `start_offset` or later with a header timestamp >= `timestamp_ms`."""
        offset = max(self.time_index.lookup(timestamp_ms), start_offset)
        for batch in self.batches(self.offset_index.lookup(offset)):
            if batch.header.max_timestamp >= timestamp_ms and batch.header.last_offset >= start_offset:
                return self.file.pread(batch.header.size, batch.position)
        return None

    def next_offset(self) -> int:
        """Return the offset after the segment's last, found from the last index entry on."""
        next_offset = self.base_offset
        for batch in self.batches(self.offset_index.last_position):
            next_offset = batch.header.next_offset
        return next_offset

    def reset_indexes(self) -> None:
        """Empty the indexes, to `note` the batches again."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._max = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._first_timestamp_ms = None
        self._bytes_since_entry = 0

    def reset_transaction_index(self) -> None:
        """Empty the transaction index, and remove its file."""
        self._transaction_index = TransactionIndex()
        self._storage.remove(self._name(TRANSACTION_INDEX_SUFFIX))

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes; the indexes must already end before."""
        self.file.truncate(size)
        self.size = size

    def cut_at(self, position: int) -> None:
        """Truncate the file at a batch boundary, and the indexes with it; empties the transaction index."""
        self.truncate(position)
        self.reset_transaction_index()
        self._rebuild_indexes()
        self.write_indexes()

    def write_indexes(self, *, durable: bool = False) -> None:
        """Write the indexes to their files, with a last entry for the latest timestamp; flushed if `durable`."""
        self.write_transaction_index(durable=durable)
        if self._offset_index is None or self._time_index is None:
            return  # never loaded, so never changed
        self._time_index.maybe_append(*self.max_timestamp)
        self._storage.write(self._name(OFFSET_INDEX_SUFFIX), self._offset_index.encode(), durable=durable)
        self._storage.write(self._name(TIME_INDEX_SUFFIX), self._time_index.encode(), durable=durable)

    def write_transaction_index(self, *, durable: bool = False) -> None:
        """Write the transaction index to its file, which does not exist while the index is empty."""
        if self._transaction_index:
            path = self._name(TRANSACTION_INDEX_SUFFIX)
            self._storage.write(path, self._transaction_index.encode(), durable=durable)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the segment's files."""
        self.close()
        for path in self.paths():
            self._storage.remove(path)

    def release(self) -> None:
        """Close the file once its last sender has finished."""
        self._file = None

    def forget(self) -> None:
        """Delete the segment's files; connections that are sending from the open file can finish."""
        self.release()
        for path in self.paths():
            self._storage.remove(path)

    def rename(self, state: str) -> None:
        """Rename the files to names that end in `state`; the `.log` file comes first."""
        before = self.paths()
        self._state = state
        for source, target in zip(before, self.paths(), strict=True):
            with contextlib.suppress(FileNotFoundError):  # not every segment has every index
                self._storage.rename(source, target)

    def _load_indexes(self) -> None:
        try:
            offsets = self._storage.read(self._name(OFFSET_INDEX_SUFFIX))
            times = self._storage.read(self._name(TIME_INDEX_SUFFIX))
            offset_index = OffsetIndex.decode(self.base_offset, offsets, self.size)
            time_index = TimeIndex.decode(self.base_offset, times)
            if self.size and not len(time_index):
                raise CorruptIndexError("time index of a segment with records is empty")
        except (CorruptIndexError, FileNotFoundError) as error:
            logger.warning("%s: building the indexes again: %s", self._path, error)
            self._rebuild_indexes()
            self.write_indexes(durable=True)  # no clean stop flushes them
            return
        self._offset_index, self._time_index = offset_index, time_index
        self._bytes_since_entry = self.size - offset_index.last_position

    def _rebuild_indexes(self) -> None:
        self.reset_indexes()
        try:
            for position, header in self.batches(0):
                self.note(header.max_timestamp, header.last_offset, position, header.size)
        except OSError:
            self._offset_index = self._time_index = self._max = None  # all or none: a failed load is retried
            raise
