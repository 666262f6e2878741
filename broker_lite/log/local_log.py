"""The files of one partition: segments one after the other, appended to at the end and read from anywhere.

`partition_log.py` adds the high watermark and appends as a follower (Kafka's LocalLog and UnifiedLog).

An append checks the batch against the producer state, writes base offset and leader epoch into the batch in place,
and writes it to the active segment; a full segment is rolled. A read finds the segment by binary search, the batch by
the index and a walk over headers, and returns a slice of the file.

A new partition has no directory: it is created with the first record, so that a topic of thousands of partitions is
created, and deleted, without disk access for each. Until then the leader epochs of an empty log are in memory: its
next leader begins a new epoch anyway.

The recovery point is the offset up to which the log is flushed. As in Kafka, nothing is flushed on append unless
`flush.messages` or `flush.ms` asks for it; a rolled segment is flushed in the background.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from sparkonce.broker_lite.assertions import beyond_end, broken, older_cluster
from sparkonce.broker_lite.log.checkpoints import PARTITION_METADATA
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import is_log_file
from sparkonce.broker_lite.log.flush_state import FlushState
from sparkonce.broker_lite.log.leader_epochs import LeaderEpochs
from sparkonce.broker_lite.log.offset_index import CorruptIndexError
from sparkonce.broker_lite.log.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from sparkonce.broker_lite.log.producer_snapshot import encode_snapshot
from sparkonce.broker_lite.log.producer_state import CompletedTransaction, Marker, ProducerStates, Verification
from sparkonce.broker_lite.log.recovery import (
    load_producers,
    rebuild_transaction_index,
    recover_segments,
    remove_stray_snapshots,
)
from sparkonce.broker_lite.log.segment import LOG_SUFFIX, Segment, Slice, file_name
from sparkonce.broker_lite.log.segment_swap import CLEANED, DELETED, SWAP, DeletedSegments, finish_swaps
from sparkonce.broker_lite.log.storage import Flush, Storage
from sparkonce.broker_lite.log.time_index import NO_TIMESTAMP, TimestampOffset
from sparkonce.broker_lite.log.transaction_index import AbortedTransaction
from sparkonce.broker_lite.log.validation import check_batch
from sparkonce.kafka.protocol.control_records import EndMarker, encode_end_marker
from sparkonce.kafka.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from sparkonce.kafka.protocol.legacy_records import first_since
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import BatchHeader, read_header, set_log_append_time

logger = logging.getLogger(__name__)

_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")


class Appended(NamedTuple):
    """Where a batch was appended; `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class LocalLog:
    """One partition's files. Not safe for use by several threads at once."""

    def __init__(
        self, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes | None = None
    ) -> None:
        """Private: use `open` or `begin`."""
        self._storage = storage
        self.directory = directory
        self.config = config
        self.log_start_offset = 0
        self.log_end_offset = 0
        self._unmade = metadata
        """The future content of `partition.metadata`, until the directory is created."""
        self._unflushed_names: tuple[str, ...] = ()
        """The parent directories of this log's directory and files that may not be flushed yet."""
        self._is_unchanged = False
        """Whether its files are as a clean stop left them, so that the next one need not flush them."""
        self.leader_epochs = LeaderEpochs(storage, directory, unmade=metadata is not None)
        self.producers = ProducerStates()
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._flushes = FlushState(directory, now_ms)
        self.noted_recovery_point = 0
        """The recovery point in the checkpoint file."""
        self.note_recovery_point: Callable[[], None] = lambda: None
        """Writes the checkpoint; does nothing if the log's owner keeps none."""
        self.deleted = DeletedSegments()
        self.cleaned_offset: int | None = None
        """The offset up to which the log was compacted, None if it never was."""
        self.closed = False

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: str,
        config: LogConfig,
        now_ms: int,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        holes_allowed: bool = False,
        metadata: bytes | None = None,
    ) -> Self:
        """Open the log in `directory`, or create it; unless `clean`, check everything from the recovery point on.

        With `holes_allowed`, missing offsets between two segments there do not end the log. `metadata` is the content
        of `partition.metadata`, in case a crash has kept it from being written.
        """
        storage.make_directory(directory)
        if metadata is not None and PARTITION_METADATA not in storage.list_directory(directory):
            storage.write(f"{directory}/{PARTITION_METADATA}", metadata, durable=False)
        log = cls(storage, directory, config, now_ms)
        log._load(now_ms, recovery_point, log_start_offset, clean, holes_allowed)
        return log

    @classmethod
    def begin(cls, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes) -> Self:
        """Return the log of a new partition; its directory, with `metadata` in it, is created with its first record."""
        log = cls(storage, directory, config, now_ms, metadata)
        log._segments.append(Segment.unmade(storage, directory, config, now_ms))
        log._bases.append(0)
        return log

    @property
    def is_made(self) -> bool:
        """Whether the directory exists."""
        return self._unmade is None

    def make(self) -> None:
        """Create the directory of a new partition, if it does not exist yet.

        Raises:
            OSError: if that fails; the next call retries.
        """
        if self._unmade is None:
            return
        storage, directory, (unmade,) = self._storage, self.directory, self._segments
        storage.make_directory(directory)
        storage.write(f"{directory}/{PARTITION_METADATA}", self._unmade, durable=False)
        self.leader_epochs.make()
        self._segments[0] = Segment.create(storage, directory, 0, self.config, unmade.created_ms)
        self._unflushed_names = (directory, directory.rpartition("/")[0])
        self._unmade = None

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._bases[0]

    @property
    def size(self) -> int:
        """Bytes in all `.log` files."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    @property
    def failure(self) -> OSError | None:
        """The permanent disk failure, if any: of a flush, or of a read or write that will not succeed later."""
        return self._flushes.failure or self._flushes.access_failure

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is flushed."""
        return self._flushes.recovery_point

    def append(
        self,
        batch: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None = None,
        by_coordinator: bool = False,
    ) -> Appended:
        """Append one batch of a producer; its base offset and leader epoch are written into `batch` in place.

        A batch that an idempotent producer sent before is not appended again; its first offsets are returned.
        `verification`: for a batch that begins a transaction here, the coordinator's confirmation.
        `by_coordinator`: a group coordinator writes the batch for a producer; it has no sequence.

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
                INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, or KAFKA_STORAGE_ERROR if the
                write failed, a flush has failed before, or the log is closed. In each case the log is unchanged,
                unless it was the flush that failed.
        """
        self._check_writable()
        batch, header = check_batch(self.config, batch, now_ms, by_coordinator)
        append_time_ms = NO_TIMESTAMP
        if header.producer_id >= 0:
            repeated = self.producers.check(header, verification, by_coordinator)
            if repeated is not None:
                append_time_ms = repeated.timestamp_ms if self.config.log_append_time else NO_TIMESTAMP
                return Appended(repeated.first_offset, repeated.last_offset, append_time_ms, self.log_start_offset)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        if isinstance(batch, memoryview) and batch.readonly:
            batch = bytearray(batch)
        if self.config.log_append_time:
            append_time_ms = now_ms
            header = set_log_append_time(batch, header, now_ms)
        try:
            self._write(batch, header, leader_epoch, now_ms)
            if header.producer_id >= 0:
                self.producers.update(header, last_offset)
            self._count_unflushed(header.last_offset_delta + 1, now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
        return Appended(base_offset, last_offset, append_time_ms, self.log_start_offset)

    def append_marker(self, marker: Marker, leader_epoch: int, now_ms: int) -> Appended:
        """Append a transaction marker, a control batch; it also advances the last stable offset.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or KAFKA_STORAGE_ERROR if the write
                failed, a flush has failed before, or the log is closed; then the log is unchanged, unless it was the
                flush that failed.
        """
        self._check_writable()
        self.producers.check_marker(marker)
        content = EndMarker(marker.committed, marker.coordinator_epoch)
        batch = encode_end_marker(content, marker.producer_id, marker.producer_epoch, now_ms, leader_epoch)
        header = read_header(batch)
        append_time_ms = NO_TIMESTAMP
        if self.config.log_append_time:
            append_time_ms = now_ms
            header = set_log_append_time(batch, header, now_ms)
        offset = self.log_end_offset
        try:
            segment = self._write(batch, header, leader_epoch, now_ms)
            self._end_transaction(segment, marker, offset, now_ms)
            self._count_unflushed(1, now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
        return Appended(offset, offset, append_time_ms, self.log_start_offset)

    def _end_transaction(
        self, segment: Segment, marker: Marker, offset: int, timestamp_ms: int
    ) -> CompletedTransaction | None:
        ended = self.producers.end(marker, offset, timestamp_ms)
        if ended is not None and not ended.committed:
            segment.transaction_index.append(AbortedTransaction(*ended[:4]))
        return ended

    def _check_writable(self) -> None:
        if self.closed:  # called too late: the files may be removed, or in use by another broker
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: the log is closed")
        if self._flushes.failure is not None:
            text = f"{self.directory}: a flush has failed, so nothing is appended: {self._flushes.failure}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    def _storage_error(self, error: OSError) -> KafkaError:
        """Note a disk error; return the client's error."""
        self._flushes.access_failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}")

    def _write(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Segment:
        """Assign the batch its offset and write it; returns its segment."""
        self.make()
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        _OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
        latest = self.leader_epochs.latest
        if leader_epoch < latest:
            raise older_cluster(self.directory, latest, leader_epoch)
        if leader_epoch > latest:
            self.leader_epochs.assign(leader_epoch, base_offset)
        return self._put(batch, header, last_offset, now_ms)

    def _put(self, batch: Buffer, header: BatchHeader, last_offset: int, now_ms: int) -> Segment:
        """Write a batch that has its offset; returns its segment."""
        self._is_unchanged = False
        end = self.log_end_offset
        if not end <= last_offset - header.last_offset_delta <= last_offset:
            raise broken("offsets-in-order", f"{self.directory}: a batch that ends at {last_offset} comes at {end}")
        if self.noted_recovery_point > end:
            # As in Kafka's LogManager.truncateTo: the next append is not flushed. One write covers all logs.
            self.note_recovery_point()
        segment = self._segments[-1]
        if segment.should_roll(self.config, len(batch), header.max_timestamp, last_offset, now_ms):
            segment = self.roll(now_ms)
        segment.append(batch, header, last_offset)
        self.log_end_offset = last_offset + 1
        return segment

    def _count_unflushed(self, messages: int, now_ms: int) -> None:
        if self._flushes.count(messages) >= self.config.flush_messages:
            self.flush(now_ms)

    def advance_start(self, offset: int) -> None:
        """Advance the log start offset to `offset`, unless it is there or beyond.

        Leader epochs before it stay as long as their segments: the start reaches the disk later, so that a crash can
        bring these records back. A follower that has others there has to be told to cut them off.
        """
        self.log_start_offset = max(offset, self.log_start_offset)

    def read(self, offset: int, max_bytes: int, min_one_batch: bool, up_to_offset: int | None = None) -> Slice:
        """Return a slice of the log, within one segment, that begins with the batch that holds `offset`.

        It has at most `max_bytes` and may end within a batch; with `min_one_batch` it has the first batch whole,
        whatever its size. It ends before the batch that holds `up_to_offset`. At the log end offset, and from
        `up_to_offset` on, it is empty.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE below the log's start or above its end; CORRUPT_MESSAGE or
                KAFKA_STORAGE_ERROR if the file is corrupt or cannot be read.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.log_start_offset} to {self.log_end_offset}",
            )
        try:
            return self._read(offset, max_bytes, min_one_batch, up_to_offset)
        except CorruptBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        except OSError as error:
            raise self._storage_error(error) from error

    def _read(self, offset: int, max_bytes: int, min_one_batch: bool, up_to_offset: int | None) -> Slice:
        end_offset = self.log_end_offset if up_to_offset is None else up_to_offset
        if end_offset > self.log_end_offset:
            raise beyond_end(self.directory, end_offset, self.log_end_offset)
        index = max(bisect_right(self._bases, offset) - 1, 0)
        while offset < end_offset and index < len(self._segments):
            segment = self._segments[index]
            found = segment.find(offset)
            if found is not None:
                least = found.header.size if min_one_batch else 0
                end = segment.size
                if end_offset < self.log_end_offset:
                    beyond = segment.find(end_offset)
                    end = end if beyond is None else beyond.position
                return Slice(segment.file, found.position, min(max(max_bytes, least), max(end - found.position, 0)))
            index += 1
        return Slice(self._segments[-1].file, self._segments[-1].size, 0)

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `from_offset` to below `upto_offset`.

        Raises:
            KafkaError: CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR if an index can be neither read nor rebuilt.
        """
        found: list[AbortedTransaction] = []
        try:
            for index in range(max(bisect_right(self._bases, from_offset) - 1, 0), len(self._segments)):
                try:
                    entries = self._segments[index].transaction_index
                except CorruptIndexError as error:
                    logger.warning("%s: building it again: %s", self._segments[index].paths()[-1], error)
                    rebuild_transaction_index(self._storage, self.directory, self._segments, index)
                    entries = self._segments[index].transaction_index
                if entries.collect(from_offset, upto_offset, found):
                    break
        except CorruptBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        except OSError as error:
            raise self._storage_error(error) from error
        return found

    def upper_bound(self, offset: int, stretch: Slice) -> int:
        """Return an offset beyond all batches of a slice that `read` returned for `offset`."""
        index = max(bisect_right(self._bases, offset) - 1, 0)
        while index < len(self._segments) - 1 and self._segments[index].file is not stretch.file:
            index += 1
        bound = self._segments[index].offset_index.upper_bound(stretch.position + stretch.size)
        if bound is not None:
            return bound + 1
        return self._bases[index + 1] if index + 1 < len(self._bases) else self.log_end_offset

    def offset_for_timestamp(self, timestamp_ms: int) -> Generator[int, None, TimestampOffset | None]:
        """Find the first record whose timestamp is at least `timestamp_ms`; returns (timestamp, offset).

        Yields units of work. The log may change in between: each batch is looked up again.

        Raises:
            KafkaError: CORRUPT_MESSAGE if the batch that should hold it cannot be decoded, KAFKA_STORAGE_ERROR.
        """
        offset = self.log_start_offset
        try:
            while (batch := self._batch_since(timestamp_ms, offset)) is not None:
                found = yield from first_since(batch, timestamp_ms, offset)
                if found is not None:
                    return TimestampOffset(*found)
                offset = max(read_header(batch).next_offset, self.log_start_offset)
        except CorruptBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        return None

    def _batch_since(self, timestamp_ms: int, offset: int) -> bytes | None:
        if self.closed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: the log is closed")
        try:
            for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
                if segment.size and segment.max_timestamp.timestamp_ms >= timestamp_ms:
                    batch = segment.batch_since(timestamp_ms, offset)
                    if batch is not None:
                        return batch
        except OSError as error:
            raise self._storage_error(error) from error
        return None

    def max_timestamp_offset(self) -> Generator[int, None, TimestampOffset | None]:
        """Find the first record that has the log's latest timestamp (ListOffsets' -3, KIP-734), in the same way."""
        filled = [segment.max_timestamp for segment in self._segments if segment.size]
        latest = max((each.timestamp_ms for each in filled), default=NO_TIMESTAMP)
        return (yield from self.offset_for_timestamp(latest)) if latest != NO_TIMESTAMP else None

    def roll(self, now_ms: int) -> Segment:
        """Roll: close the active segment for appends and begin a new one; flush the old one in the background."""
        old = self._segments[-1]
        base_offset = self.log_end_offset
        if old.base_offset == base_offset:
            return old  # it is empty
        self._is_unchanged = False
        old.write_indexes()
        written = [*old.paths(), self._write_snapshot()]
        if self._flushes.recovery_point == base_offset:
            # A flush has moved the recovery point to the end of this segment. Once there is a new segment, a restart
            # after a power failure would trust this one's indexes, so they must be flushed first.
            self._flushes.wait(self._storage.flush_later(written))
        new = Segment.create(self._storage, self.directory, base_offset, self.config, now_ms)
        self._segments.append(new)
        self._bases.append(base_offset)
        names = self._unflushed_names or (self.directory,)
        self._flushes.begun(base_offset, self._storage.flush_later([*written, *names]))
        self._unflushed_names = ()
        return new

    def flush(self, now_ms: int) -> None:
        """Return when everything appended so far is flushed. Raises OSError if that fails, or has failed before."""
        if self._unflushed_names:
            self._flushes.wait(self._storage.flush_later(self._unflushed_names))
            self._unflushed_names = ()
        self._flushes.flush(self._segments[-1].file, self.log_end_offset, now_ms)

    def flush_if_due(self, now_ms: int) -> None:
        """Flush if `flush.ms` have passed since and something was appended. A failure is logged, and fails appends."""
        if self._flushes.due(now_ms, self.config.flush_ms):
            with contextlib.suppress(OSError):
                self.flush(now_ms)

    def abandon(self) -> None:
        """Close all files without flushing."""
        self.closed = True
        for segment in self._segments:
            segment.close()

    def forget(self) -> None:
        """Close all files, each when its last sender has finished."""
        self.closed = True
        for segment in self._segments:
            segment.release()

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; the last one is active."""
        return tuple(self._segments)

    def segments_between(self, start_offset: int, end_offset: int) -> Sequence[Segment]:
        """Return the segments that begin before `end_offset`, from the one that holds `start_offset` on."""
        first = max(bisect_right(self._bases, start_offset) - 1, 0)
        return tuple(self._segments[first : bisect_left(self._bases, end_offset)])

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Delete the oldest segments, not all of them; the log start offset becomes that of the first one left."""
        assert 0 < count < len(self._segments)
        dropped = self._segments[:count]
        self.advance_start(self._bases[count])
        del self._segments[:count], self._bases[:count]
        self._delete(dropped, now_ms)
        self.leader_epochs.truncate_from_start(self.first_base_offset)

    def begin_cleaned(self, base_offset: int, now_ms: int) -> Segment:
        """Create a segment that is to replace others."""
        return Segment.create(self._storage, self.directory, base_offset, self.config, now_ms, CLEANED)

    def flush_segment(self, segment: Segment) -> Flush:
        """Begin to flush a segment's files."""
        return self._storage.flush_later([*segment.paths(), self.directory])

    def swap_segments(self, cleaned: Segment, old: Sequence[Segment], now_ms: int) -> None:
        """Replace neighbouring segments by a flushed segment with their compacted content."""
        cleaned.modified_ms = old[-1].modified_ms
        cleaned.rename(SWAP)
        first = self._segments.index(old[0])
        self._segments[first : first + len(old)] = [cleaned]
        self._bases[first : first + len(old)] = [cleaned.base_offset]
        self._delete(old, now_ms, keep_snapshot=cleaned.base_offset)
        cleaned.rename("")

    def _delete(self, segments: Sequence[Segment], now_ms: int, keep_snapshot: int = -1) -> None:
        self._is_unchanged = False
        self.deleted.add(segments, now_ms, self.config.file_delete_delay_ms)
        for segment in segments:
            if segment.base_offset != keep_snapshot:
                self._storage.remove(f"{self.directory}/{file_name(segment.base_offset, SNAPSHOT_SUFFIX)}")

    def _write_snapshot(self) -> str:
        path = f"{self.directory}/{file_name(self.log_end_offset, SNAPSHOT_SUFFIX)}"
        self._storage.write(path, encode_snapshot(self.producers.entries()), durable=False)
        return path

    def _load(self, now_ms: int, recovery_point: int, log_start_offset: int, clean: bool, holes_allowed: bool) -> None:
        names = self._storage.list_directory(self.directory)
        self._is_unchanged = clean
        if any(name.endswith((CLEANED, SWAP, DELETED)) for name in names):
            self._is_unchanged = False
            finish_swaps(self._storage, self.directory, self.config, now_ms)
            names = self._storage.list_directory(self.directory)
        stems = [name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX) and is_log_file(name)]
        for base_offset in sorted(map(int, stems)):
            self._segments.append(Segment(self._storage, self.directory, base_offset, self.config, now_ms))
        if not self._segments:
            self._is_unchanged = False
            self._segments.append(Segment.create(self._storage, self.directory, log_start_offset, self.config, now_ms))
        self.log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        if clean:
            recovered_from = self.log_end_offset = self._segments[-1].next_offset()
        else:
            recovered_from, self.log_end_offset = recover_segments(
                self._segments, recovery_point, holes_allowed, self._assign_epoch
            )
        if self.log_end_offset < self.log_start_offset:
            recovered_from = self._begin_again(now_ms)
        self._bases = [segment.base_offset for segment in self._segments]
        self._flushes.start_at(self.log_end_offset if clean else min(recovery_point, self.log_end_offset))
        if self.leader_epochs.is_damaged:
            headers = (header for segment in self._segments for _, header in segment.batches(0))
            self.leader_epochs.rebuild((each.partition_leader_epoch, each.base_offset) for each in headers)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.leader_epochs.truncate_from_start(self.first_base_offset)
        self.producers = load_producers(
            self._storage, self.directory, self._segments, self.log_end_offset, recovered_from
        )
        remove_stray_snapshots(self._storage, self.directory, self._bases)
        if self.log_end_offset > self._flushes.recovery_point:
            self._count_recovered(now_ms, wait=holes_allowed)

    def _count_recovered(self, now_ms: int, *, wait: bool) -> None:
        """Count what lies past the recovery point as appended now: it may be in the page cache only.

        With `wait` all segments but the last are flushed when this returns, and below the recovery point: holes that
        were allowed at this start must not count as losses at the next one.
        """
        names = (self.directory, self.directory.rpartition("/")[0])
        first = max(bisect_right(self._bases, self._flushes.recovery_point) - 1, 0)
        if older := self._segments[first:-1]:
            paths = [path for segment in older for path in segment.paths()]
            flush = self._storage.flush_later([*paths, *names])
            self._flushes.begun(self._segments[-1].base_offset, flush)
            if wait:
                with suppress(OSError):  # which the recovery point reports
                    flush.result()
        self._unflushed_names = names
        self._count_unflushed(self.log_end_offset - self._flushes.recovery_point, now_ms)

    def _begin_again(self, now_ms: int) -> int:
        """Begin an empty log at the log start offset, as the recovered end lies before it."""
        logger.warning(
            "%s: its start %d is beyond its end, so nothing in it counts", self.directory, self.log_start_offset
        )
        self._is_unchanged = False
        for segment in self._segments:
            segment.remove()
        begun = Segment.create(self._storage, self.directory, self.log_start_offset, self.config, now_ms)
        self._segments[:] = [begun]
        self.log_end_offset = self.log_start_offset
        return self.log_start_offset

    def _assign_epoch(self, header: BatchHeader) -> None:
        self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
