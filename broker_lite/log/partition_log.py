"""The log of one partition: its high watermark, appends as a follower, and truncation (Kafka's UnifiedLog).

Theory of operation: without other replicas an appended record is committed at once, and the high watermark is the log
end offset. With other replicas the high watermark is kept beside the log and only set from outside (replication
decides); it is never beyond the log end offset. A follower appends batches unchanged, with their offsets and epochs.
After a change of leaders it may have to truncate its end: whole batches are removed, indexes and producer state are
reverted with them (UnifiedLog.truncateTo). A transaction whose marker is above the high watermark still counts as open:
its marker could be truncated.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.assertions import beyond_end
from sparkonce.broker_lite.log.local_log import Appended, LocalLog
from sparkonce.broker_lite.log.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from sparkonce.broker_lite.log.producer_state import CompletedTransaction, Marker
from sparkonce.broker_lite.log.recovery import (
    ended_transactions,
    load_producers,
    remove_stray_snapshots,
    snapshot_offsets,
)
from sparkonce.broker_lite.log.segment import Segment, file_name
from sparkonce.broker_lite.log.storage import FLUSHERS
from sparkonce.kafka.protocol.control_records import read_end_marker
from sparkonce.kafka.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from sparkonce.kafka.protocol.legacy_records import check_any
from sparkonce.kafka.protocol.records import HEADER_BYTES, BatchHeader, decode_records, read_header

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.config import LogConfig
    from sparkonce.broker_lite.log.leader_epochs import EpochEnd
    from sparkonce.broker_lite.log.storage import Flush, Storage


__all__ = ["HIGH_WATERMARK", "Appended", "OverlappingBatchError", "PartitionLog", "close_together"]

HIGH_WATERMARK: Final = -1
"""Passed to `delete_records`: delete up to the high watermark."""


class OverlappingBatchError(KafkaError):
    """The leader's batch begins before the log end offset, and does not end there (OFFSET_OUT_OF_RANGE)."""

    def __init__(self, directory: str, base_offset: int, expected: int) -> None:
        text = f"{directory}: the leader sent a batch from offset {base_offset} on, {expected} comes next"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        self.base_offset = base_offset


logger = logging.getLogger(__name__)


class PartitionLog(LocalLog):
    """One replica's log. Not safe for use by several threads at once."""

    def __init__(
        self, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes | None = None
    ) -> None:
        """Private: use `open` or `begin`."""
        super().__init__(storage, directory, config, now_ms, metadata)
        self._high_watermark: int | None = None
        """None if this is the only replica: then it is the log end offset."""
        self._unfinished_truncation: tuple[int, int] | None = None
        """A truncation to finish: the index of the segment, and the position in it at which the log ends."""
        self._unsafe_ends: deque[tuple[int, int]] | None = None
        """First offset and marker's offset of transactions whose marker is at or beyond the high watermark.

        None until first asked for, then read from the log: no file keeps them. Reading late is cheaper: after the loss
        of its checkpoint the high watermark is far from the end, until the other replicas have reported their offsets.
        """

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have the records; consumers read up to it."""
        known = self._high_watermark
        return self.log_end_offset if known is None else max(known, self.log_start_offset)

    def be_sole_replica(self) -> None:
        """Count everything in the log, now and later, as committed: there is no other replica."""
        self._high_watermark = None
        self._unsafe_ends = None

    def be_one_of_several(self, high_watermark: int | None = None) -> None:
        """Let replication set the high watermark, beginning at `high_watermark`, or where it was."""
        if high_watermark is not None:
            self._high_watermark = min(high_watermark, self.log_end_offset)
        elif self._high_watermark is None:
            self._high_watermark = self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The limit of read_committed reads: a transaction is open until the high watermark passes its marker.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if it has to be read from the log, and the read fails.
        """
        first_open = self.producers.first_unstable_offset
        if self._high_watermark is None:
            return self.log_end_offset if first_open is None else max(first_open, self.log_start_offset)
        if self.high_watermark == self.log_start_offset:
            return self.log_start_offset
        unstable = [self.high_watermark]
        if first_open is not None:
            unstable.append(first_open)
        unstable += [first for first, _ in self._known_unsafe_ends()]
        return max(min(unstable), self.log_start_offset)

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch that has begun here, -1 if none."""
        return self.leader_epochs.latest

    def epoch_end(self, epoch: int) -> EpochEnd | None:
        """Return the largest epoch not beyond `epoch`, and where it ends."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def begin_epoch(self, epoch: int, *, with_first_record: bool = False) -> None:
        """Note that `epoch` begins at the log end offset, and forget all verifications of transactions.

        `with_first_record`: write the epoch with its first record only, as where there is no other replica.

        Raises:
            OSError: if the epoch cannot be written.
        """
        if not with_first_record:
            with self._noting_failures():
                self._finish_truncation()
                self.leader_epochs.assign(epoch, self.log_end_offset)
        self.producers.forget_verifications()

    def _check_writable(self) -> None:
        super()._check_writable()
        known = self._high_watermark
        if known is not None and known > self.log_end_offset:  # what is appended would count as replicated
            raise beyond_end(self.directory, known, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most to the log end offset; return whether it moved."""
        offset = min(offset, self.log_end_offset)
        if self._high_watermark is None or offset <= self.high_watermark:
            return False
        self._high_watermark = offset
        unsafe_ends = self._unsafe_ends
        while unsafe_ends and unsafe_ends[0][1] < offset:
            unsafe_ends.popleft()
        return True

    def delete_records(self, before_offset: int) -> int:
        """Advance the log start offset to `before_offset` (-1: the high watermark), unless it is there or beyond.

        Records below the start are no longer read; the next retention check deletes the segments wholly below it. The
        start reaches the disk with the next checkpoint. Returns the log's start offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if `before_offset` is beyond the high watermark or below -1.
        """
        wanted = self.high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if not 0 <= wanted <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records before offset {wanted} cannot be deleted: the high watermark is {self.high_watermark}",
            )
        self.advance_start(wanted)
        return self.log_start_offset

    def _known_unsafe_ends(self) -> deque[tuple[int, int]]:
        if self._unsafe_ends is None:
            self._unsafe_ends = self._read_unsafe_ends()
        return self._unsafe_ends

    def _read_unsafe_ends(self) -> deque[tuple[int, int]]:
        if self.high_watermark >= self.log_end_offset:
            return deque()
        try:
            found = ended_transactions(self._storage, self.directory, self._segments, self.high_watermark)
        except CorruptBatchError as error:  # reading from there would fail, too
            logger.error("%s: what has ended beyond offset %d: %s", self.directory, self.high_watermark, error)
            found = []
        except OSError as error:
            raise self._storage_error(error) from error
        return deque((each.first_offset, each.last_offset) for each in found)

    def append_as_follower(self, data: bytes | bytearray | memoryview, leader_epoch: int, now_ms: int) -> int:
        """Append the whole batches at the beginning of `data`, as the leader sent them; returns how many bytes.

        Batches of an epoch later than `leader_epoch` are ignored: another leader wrote them.

        Raises:
            KafkaError: CORRUPT_MESSAGE for a damaged batch, KAFKA_STORAGE_ERROR as `append`. Earlier batches stay.
            OverlappingBatchError: for a batch that begins before the log end offset.
        """
        self._check_writable()
        view, position = memoryview(data), 0
        while len(view) - position >= HEADER_BYTES:
            header = read_header(view, position)
            if header.size > len(view) - position or header.partition_leader_epoch > leader_epoch:
                break
            try:
                check_any(view, position, header)
            except CorruptBatchError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.directory}: {error}") from None
            if header.base_offset < self.log_end_offset <= header.last_offset and self._is_empty:
                # The leader's log start offset lies within a batch, as after DeleteRecords: the batch is sent whole.
                start_offset = self.log_start_offset
                self.begin_at(header.base_offset)
                self.log_start_offset = start_offset
            if header.base_offset < self.log_end_offset:
                raise OverlappingBatchError(self.directory, header.base_offset, self.log_end_offset)
            self._take(view[position : position + header.size], header, now_ms)
            position += header.size
        return position

    @property
    def _is_empty(self) -> bool:
        return len(self._segments) == 1 and not self._segments[0].size

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that has a record at or beyond `offset`; lower the high watermark if needed.

        Epochs without a record at the end are removed, too: a former leader has one, which its leader may not know, so
        that it would ask for it again and again.

        Raises:
            OSError: if a file cannot be truncated.
        """
        with self._noting_failures():
            if offset >= self.log_end_offset:
                self._finish_truncation()
                self.leader_epochs.truncate_from_end(self.log_end_offset)
            elif offset <= self._bases[0]:
                self.begin_at(offset)
            else:
                self._cut(offset)

    @contextlib.contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """Record a permanent disk failure."""
        try:
            yield
        except OSError as error:
            self._flushes.access_failed(error)
            raise

    def _cut(self, offset: int) -> None:
        index = bisect_right(self._bases, offset) - 1
        if self._bases[index] == offset:
            index -= 1
        segment = self._segments[index]
        found = segment.find(offset)
        self.log_end_offset = offset if found is None else min(offset, found.header.base_offset)
        self._unfinished_truncation = index, segment.size if found is None else found.position
        self._finish_truncation()

    def _finish_truncation(self) -> None:
        """Finish a truncation: files and all state that depends on the end; does nothing if there is none.

        The disk may fail a part of it. Until the rest is done nothing is appended, and nothing beyond the end counts as
        committed: a leader would acknowledge at once what its followers do not have.
        """
        if self._unfinished_truncation is None:
            return
        self._is_unchanged = False
        index, position = self._unfinished_truncation
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, self.log_end_offset)
        while len(self._segments) > index + 1:
            self._segments[-1].forget()
            del self._segments[-1], self._bases[-1]
        self._segments[-1].cut_at(position)
        self._went_back()
        self._unfinished_truncation = None

    def roll(self, now_ms: int) -> Segment:
        """See `LocalLog`. Finishes a truncation first, so that the producer snapshot matches the log end offset."""
        self._finish_truncation()
        return super().roll(now_ms)

    def begin_close(self) -> list[str]:
        """Write the indexes, and a producer snapshot at the log end offset; return the paths of what is unflushed.

        Raises:
            OSError: if that fails.
        """
        self._finish_truncation()
        if self._unmade is not None or self._is_unchanged:
            return []
        self._segments[-1].write_indexes()
        names = self._unflushed_names or (self.directory,)
        return [*self._segments[-1].paths(), self._write_snapshot(), *names]

    def end_close(self, now_ms: int, flush: Flush | None) -> None:
        """Close when the flush of what `begin_close` returned has ended.

        Raises:
            OSError: if that fails, or a flush has failed before; then the log is not closed.
        """
        if flush is not None:
            flush.result()
        self.leader_epochs.wait()
        self._flushes.flush(None, self.log_end_offset, now_ms)
        self.abandon()

    def close(self, now_ms: int) -> None:
        """Close cleanly. Raises OSError as `begin_close` and `end_close`."""
        paths = self.begin_close()
        self.end_close(now_ms, self._storage.flush_later(paths) if paths else None)

    def begin_at(self, offset: int) -> None:
        """Drop everything and begin, empty, at `offset`. Raises OSError if a file cannot be created."""
        with self._noting_failures():
            self._begin_at(offset)

    def _begin_at(self, offset: int) -> None:
        self._is_unchanged = False
        self.make()
        for each in snapshot_offsets(self._storage, self.directory):
            self._storage.remove(f"{self.directory}/{file_name(each, SNAPSHOT_SUFFIX)}")
        created_ms = self._segments[-1].created_ms
        for segment in self._segments:
            segment.forget()
        begun = Segment.create(self._storage, self.directory, offset, self.config, created_ms)
        self._segments[:], self._bases[:] = [begun], [offset]
        self._unfinished_truncation = 0, 0
        self.log_start_offset = self.log_end_offset = offset
        if self._high_watermark is not None:
            self._high_watermark = offset
        self.leader_epochs.truncate_from_end(0)  # those before `offset`, too: none of their records is left
        self._went_back()
        self._unfinished_truncation = None

    def _take(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Append one batch that already has its offset and epoch."""
        last_offset = header.last_offset
        try:
            self.make()
            self._finish_truncation()
            if header.partition_leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            segment = self._put(batch, header, last_offset, now_ms)
            if header.is_control and header.has_producer_id:
                self._take_marker(segment, batch, header)
            elif header.has_producer_id:
                self.producers.update(header, last_offset)
            self._count_unflushed(header.last_offset_delta + 1, now_ms)
        except OSError as error:
            raise self._storage_error(error) from error

    def _take_marker(self, segment: Segment, batch: memoryview, header: BatchHeader) -> None:
        records = decode_records(batch)
        found = read_end_marker(records[0]) if records else None
        if found is not None:
            marker = Marker(header.producer_id, header.producer_epoch, found.committed, found.coordinator_epoch, 0)
            self._end_transaction(segment, marker, header.last_offset, records[0].timestamp)

    def _end_transaction(
        self, segment: Segment, marker: Marker, offset: int, timestamp_ms: int
    ) -> CompletedTransaction | None:
        ended = super()._end_transaction(segment, marker, offset, timestamp_ms)
        if ended is not None and self._unsafe_ends is not None:
            self._unsafe_ends.append((ended.first_offset, offset))
        return ended

    def _went_back(self) -> None:
        """Revert all state that depends on the log end offset to where it is now."""
        end = self.log_end_offset
        self._flushes.cut(end)
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, end)
        self.leader_epochs.truncate_from_end(end)
        self.producers = load_producers(
            self._storage, self.directory, self._segments, end, recovered_from=self._bases[-1]
        )
        remove_stray_snapshots(self._storage, self.directory, self._bases)
        if self._unsafe_ends is not None:
            safe = self.high_watermark
            self._unsafe_ends = deque((first, marker) for first, marker in self._unsafe_ends if safe <= marker < end)


def close_together(storage: Storage, logs: Iterable[PartitionLog], now_ms: int) -> list[OSError]:
    """Close logs cleanly, and flush their files together; return the errors of those that could not be."""
    failures: list[OSError] = []
    parts: list[tuple[list[PartitionLog], dict[str, None]]] = [([], {}) for _ in range(FLUSHERS)]
    for (begun, paths), log in zip(cycle(parts), logs):
        try:
            paths.update(dict.fromkeys(log.begin_close()))
            begun.append(log)
        except OSError as error:
            failures.append(error)
            log.abandon()
    flushes = [storage.flush_later(tuple(paths)) if paths else None for _, paths in parts]
    for (begun, _), flush in zip(parts, flushes, strict=True):
        for log in begun:
            try:
                log.end_close(now_ms, flush)
            except OSError as error:
                failures.append(error)
                log.abandon()
    return failures
