"""Compaction of one log: for each key only the latest record is kept.

A log has a clean part, compacted before, and a dirty part behind it; the active segment, open transactions and records
younger than `min.compaction.lag.ms` come after both and are not compacted. A round of cleaning reads the keys of the
dirty part into an offset map, then copies all segments from the log's beginning to the end of the map's range, without
the records that the map has a later one for. Small neighbouring segments are merged.

Everything here is a generator that yields after a small piece of work, so that its caller can serve clients in between.
It yields None, or a `Flush` to be done before it continues. The log is consistent at each yield. The rules are those of
Kafka's LogCleanerManager and Cleaner.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from sparkonce.broker_lite.log.batch_filter import (
    RECORDS_PER_STEP,
    CleanedTransactions,
    CleaningRound,
    LastRecord,
    OffsetMap,
    filter_batch,
)
from sparkonce.broker_lite.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from sparkonce.broker_lite.log.offset_index import MAX_RELATIVE_OFFSET
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.segment import Segment
from sparkonce.broker_lite.log.storage import Flush
from sparkonce.broker_lite.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from sparkonce.kafka.protocol.legacy_records import decode_any
from sparkonce.kafka.protocol.record_scan import find_records, inflate
from sparkonce.kafka.protocol.records import MAGIC, BatchHeader, control_type, decode_records, read_header

logger = logging.getLogger(__name__)

Steps = Generator[Flush | None, None, None]


class OffsetMapFullError(Exception):
    """The keys of a single batch do not fit into the offset map."""


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """The dirty part of a log; the bytes are those of whole segments."""

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    """Whether a record has waited longer than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The dirty share of the compactable bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        """Whether the log's settings require a compaction now."""
        if self.overdue and self.cleanable_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def assess(log: PartitionLog, now_ms: int) -> DirtyLog:
    """Return which part of a log is dirty, and whether to compact it."""
    first_dirty = log.log_start_offset if log.cleaned_offset is None else log.cleaned_offset
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset  # records were deleted, or the log was truncated: everything may be dirty
    active = log.segments[-1]
    waiting = [segment for segment in log.segments_between(first_dirty, active.base_offset) if segment is not active]
    # Unflushed segments are not compacted, so that after a crash only segments without holes are recovered
    # up to the log end offset.
    uncleanable = min(log.last_stable_offset, active.base_offset, log.recovery_point)
    if log.config.min_compaction_lag_ms > 0:
        latest_ms = now_ms - log.config.min_compaction_lag_ms
        young = (segment.base_offset for segment in waiting if segment.largest_timestamp_ms > latest_ms)
        uncleanable = min(uncleanable, next(young, uncleanable))
    uncleanable = max(uncleanable, first_dirty)
    bounds = [each.base_offset for each in log.segments if each.base_offset <= uncleanable]
    first_uncleanable = bounds[-1] if bounds else log.segments[0].base_offset
    clean = [each.size for each in log.segments if each.base_offset < first_dirty]
    dirty_from = min(first_dirty, first_uncleanable)
    dirty = [each.size for each in log.segments_between(dirty_from, first_uncleanable)]
    return DirtyLog(log, first_dirty, first_uncleanable, sum(clean), sum(dirty), _overdue(log, waiting, now_ms))


def _overdue(log: PartitionLog, waiting: Sequence[Segment], now_ms: int) -> bool:
    horizon_ms = now_ms - log.config.max_compaction_lag_ms
    return horizon_ms > 0 and any(0 < segment.first_timestamp_ms < horizon_ms for segment in waiting)


def clean(dirty: DirtyLog, offset_map: OffsetMap, now_ms: int) -> Steps:
    """Run one round of cleaning; afterwards the log's `cleaned_offset` is where the dirty part begins.

    Closing the generator cancels the round; segments that are already replaced remain compacted.

    Raises:
        CorruptBatchError, OSError: if a segment cannot be read or written; the log is consistent then, too.
        OffsetMapFullError: if the map is too small for a single batch.
    """
    log = dirty.log
    upper_bound = dirty.first_uncleanable_offset
    before = log.segments_between(0, dirty.first_dirty_offset)
    horizon_ms = before[-1].modified_ms - log.config.delete_retention_ms if before else 0
    offset_map.advance(dirty.first_dirty_offset - 1)
    yield from _fill(log, dirty.first_dirty_offset, upper_bound, offset_map)
    end_offset = offset_map.latest_offset + 1
    if end_offset == dirty.first_dirty_offset:
        raise OffsetMapFullError(
            f"{log.directory}: a batch has more keys than the offset map's {offset_map.capacity}: "
            f"raise log.cleaner.dedupe.buffer.size"
        )
    last_records = {
        entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
        for entry in log.producers.entries()
    }
    cleaning = CleaningRound(offset_map, now_ms, log.config.delete_retention_ms, upper_bound, last_records)
    transactions = CleanedTransactions()
    for group in group_segments(log, log.segments_between(0, end_offset), upper_bound):
        yield from _clean_group(log, group, cleaning, transactions, horizon_ms)
    log.cleaned_offset = end_offset


def _fill(log: PartitionLog, start: int, end: int, offset_map: OffsetMap) -> Steps:
    """Add the keys from offset `start` on to the map, up to `end` or until the map is full."""
    transactions = CleanedTransactions()
    transactions.add(log.aborted_transactions(start, end))
    segments = log.segments_between(start, end)
    for index, segment in enumerate(segments):
        next_start = segments[index + 1].base_offset if index + 1 < len(segments) else end
        for position, header in segment.batches(segment.offset_index.lookup(start)):
            batch = segment.file.pread(header.size, position)
            if not _may_go(batch, header, transactions) and not header.is_control and header.last_offset >= start:
                for found in _keys(batch, header):
                    for key, offset in found:
                        if key is not None and offset >= start and not offset_map.put(key, offset):
                            return
                    yield None
            if header.last_offset >= start:
                offset_map.advance(header.last_offset)
            yield None
        offset_map.advance(next_start - 1)


def _keys(batch: bytes, header: BatchHeader) -> Generator[list[tuple[bytes | None, int]], None, None]:
    if header.magic < MAGIC:
        yield [(message.key, message.offset) for message in decode_any(batch)]
        return
    for found in find_records(header, inflate(batch, header), RECORDS_PER_STEP):
        yield [(record.key, record.offset) for record in found]


def _may_go(batch: bytes, header: BatchHeader, transactions: CleanedTransactions) -> bool:
    """Note the transactions of a batch; return whether it may be removed."""
    if not header.is_control:
        return transactions.on_batch(header)
    found = decode_records(batch) if header.record_count else []
    return transactions.on_marker(header, control_type(found[0]) if found else None, not found)


def group_segments(log: PartitionLog, segments: Sequence[Segment], first_uncleanable: int) -> list[list[Segment]]:
    """Group neighbours that fit into one segment, by size, index sizes and range of offsets."""
    config = log.config
    groups: list[list[Segment]] = []
    left = list(segments)
    while left:
        group = [left.pop(0)]
        size, entries, times = group[0].size, len(group[0].offset_index), len(group[0].time_index)
        while left:
            each = left[0]
            size, entries, times = size + each.size, entries + len(each.offset_index), times + len(each.time_index)
            last_offset = (left[1].base_offset if len(left) > 1 else first_uncleanable) - 1
            if (
                size > config.segment_bytes
                or entries * OFFSET_ENTRY_BYTES > config.segment_index_bytes
                or times * TIME_ENTRY_BYTES > config.segment_index_bytes
                or (each.size and last_offset - group[0].base_offset > MAX_RELATIVE_OFFSET)
            ):
                break
            group.append(left.pop(0))
        groups.append(group)
    return groups


def _clean_group(
    log: PartitionLog,
    group: Sequence[Segment],
    cleaning: CleaningRound,
    transactions: CleanedTransactions,
    horizon_ms: int,
) -> Steps:
    """Copy the remaining records of some segments into one, and swap it in."""
    cleaned = log.begin_cleaned(group[0].base_offset, cleaning.now_ms)
    transactions.keep = cleaned.transaction_index.append
    try:
        for index, segment in enumerate(group):
            end = group[index + 1].base_offset if index + 1 < len(group) else segment.next_offset()
            transactions.add(log.aborted_transactions(segment.base_offset, end))
            keep_old_tombstones = segment.modified_ms > horizon_ms
            for position, header in segment.batches(0):
                batch = segment.file.pread(header.size, position)
                may_go = _may_go(batch, header, transactions)
                kept = yield from filter_batch(cleaning, batch, header, may_go, keep_old_tombstones)
                if kept is not None:
                    cleaned.append(kept, read_header(kept), header.last_offset)
                yield None
        cleaned.write_indexes()
        flush = log.flush_segment(cleaned)
        yield flush
        flush.result()
        before = sum(segment.size for segment in group)
        log.swap_segments(cleaned, group, cleaning.now_ms)
        logger.info(
            "%s: compacted offsets from %d on, %d segments of %d bytes, into %d bytes",
            log.directory, group[0].base_offset, len(group), before, cleaned.size,
        )  # fmt: skip
    except BaseException:
        if cleaned not in log.segments:
            cleaned.remove()
        raise
