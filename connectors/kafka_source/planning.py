"""The arithmetic of planning a batch: how much of each partition, in how many pieces, and when. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate, chain, pairwise, repeat
from typing import NamedTuple

from sparkonce.offset_store.offsets import OffsetRange, Position, TopicPartition

Piece = tuple[TopicPartition, OffsetRange]

TASK_BYTES, TASK_RECORDS = 128 << 20, 4_000_000
"""The maximal work of a task that also writes what it reads, so that several cores share it and a failed task is
soon repeated."""
LEAST_SHARE = 1 / 8
"""The minimal part of that per task, if there is more."""
SMALL_BATCH_RECORDS = 2_000
"""A batch of up to this many records is read by one task."""


def share_out(
    limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return end offsets such that about ``limit`` records are read, by backlog, as in Spark's connector.

    A partition with anything to read gets at least one record, so that a small one does not starve beside a large one.
    """
    backlog = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
    total = sum(backlog.values())
    ends = dict(latest)
    for tp, size in backlog.items():
        share = limit * (size / total)
        part = math.ceil(share) if share < 1 else math.floor(share)
        ends[tp] = min(latest[tp], start[tp] + part)
    return ends


def split(
    ranges: Mapping[TopicPartition, OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[Piece]:
    """Split ranges into one piece per task, as Spark's connector does (KafkaOffsetRangeCalculator).

    First each range is split so that no piece has more than ``max_records``. If there are then fewer pieces than
    ``min_partitions``, the large ones are split again, in proportion, into about that many in all. The pieces that
    one is split into differ by one record at most, and none is empty.
    """
    pieces = [(tp, extent) for tp, extent in sorted(ranges.items()) if extent.end > extent.start]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-_size(piece) // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(map(_size, pieces))
    # Partitions with a piece worth only one task stay whole, and their records are left out of the proportion.
    whole = [piece for piece in pieces if _part_count(piece, total, min_partitions) == 1]
    owners = {tp for tp, _ in whole}
    rest, wanted = total - sum(map(_size, whole)), max(min_partitions - len(whole), 1)
    return [
        part for piece in pieces for part in _cut(piece, 1 if piece[0] in owners else _part_count(piece, rest, wanted))
    ]


def _size(piece: Piece) -> int:
    return piece[1].end - piece[1].start


def _part_count(piece: Piece, total: int, wanted: int) -> int:
    return max(1, math.floor(_size(piece) / total * wanted + 0.5))


def _cut(piece: Piece, count: int) -> list[Piece]:
    """Split into ``count`` pieces, the larger ones last, or into single records if there are fewer."""
    tp, extent = piece
    small, larger = divmod(_size(piece), count)
    ends = accumulate(chain(repeat(small, count - larger), repeat(small + 1, larger)), initial=extent.start)
    return [(tp, OffsetRange(start, end)) for start, end in pairwise(ends) if end > start]


def bundle(pieces: list[Piece], *, asked_for: bool) -> list[list[Piece]]:
    """Return the pieces of each task: one, or all where the batch is small and no number of tasks ``asked_for``.

    Starting a Python task costs Spark tens of milliseconds, reading a few hundred records one: a small micro-batch is
    faster in one task, and its sink writes one file rather than one for each partition.
    """
    total = sum(map(_size, pieces))
    if pieces and not asked_for and total <= SMALL_BATCH_RECORDS:
        return [pieces]
    return [[piece] for piece in pieces]


class Density(NamedTuple):
    """The average size of an offset of a topic."""

    bytes_per_offset: float
    """As stored, compressed."""
    records_per_offset: float
    """Less than 1 in a compacted topic."""


def divide(
    ranges: Mapping[TopicPartition, OffsetRange], densities: Mapping[str, Density], *, may_cut: bool
) -> list[list[Piece]]:
    """Return the pieces of each task such that tasks have work of a fair size, and so have the files that they write.

    Small ranges share one task: a task for each Kafka partition would write a small file for each. With ``may_cut``, a
    large range is read by several, which may write its records in any order. ``densities`` are by topic.
    """
    tasks: list[list[Piece]] = []
    filled = 1.0
    for tp, extent in sorted(ranges.items()):
        size = (extent.end - extent.start) * _task_share(densities[tp.topic])
        count = max(1, math.ceil(size)) if may_cut else 1
        for piece in _cut((tp, extent), count):
            if filled >= LEAST_SHARE:
                tasks.append([])
                filled = 0.0
            tasks[-1].append(piece)
            filled += size / count
    return tasks


def _task_share(density: Density) -> float:
    """Return an offset's share of a task's work."""
    return max(density.bytes_per_offset / TASK_BYTES, density.records_per_offset / TASK_RECORDS)


class TriggerDelay:
    """Whether a small backlog may wait: options ``minOffsetsPerTrigger`` and ``maxTriggerDelay``, for one query.

    A batch is delayed while fewer records than ``min_records`` are available, until ``max_delay_ms`` have passed since
    the last one. The first batch of a run never waits (KafkaMicroBatchStream.delayBatch). PySpark cannot pass both
    limits of a query, or the delay, to a source, so the source keeps count. The time is in monotonic milliseconds.
    """

    def __init__(self, min_records: int, max_delay_ms: int) -> None:
        self._min_records = min_records
        self._max_delay_ms = max_delay_ms
        self._last_trigger_ms: float | None = None

    def holds_back(self, available: int, now_ms: float) -> bool:
        """Whether to wait for more than the ``available`` records; if not, this counts as a trigger."""
        last = self._last_trigger_ms
        if last is not None and now_ms - last < self._max_delay_ms and available < self._min_records:
            return True
        self._last_trigger_ms = now_ms
        return False


class TopicDelays:
    """Which topics wait for more records: options ``minOffsetsPerTopic`` and ``maxTriggerDelay``, for one query.

    Each topic waits as a query does with `TriggerDelay`, so that tables which are each of one topic get files of a fair
    size, while the records wait in Kafka.
    """

    def __init__(self, min_records: int, max_delay_ms: int) -> None:
        self._limits = min_records, max_delay_ms
        self._delays: dict[str, TriggerDelay] = {}

    def held_back(self, available: Mapping[str, int], now_ms: float) -> frozenset[str]:
        """Return the topics that wait for more than the ``available`` records; topics without records are not told."""
        self._delays = {topic: self._delays.get(topic) or TriggerDelay(*self._limits) for topic in available}
        return frozenset(
            topic for topic, count in available.items() if count > 0 and self._delays[topic].holds_back(count, now_ms)
        )


def moved_position(
    tp: TopicPartition, before: Position, end: int, written: Mapping[TopicPartition, Position] | None = None
) -> Position:
    """Return a moved position; one that goes back gets a new origin, and keeps how far had been read.

    Or how far its table was ``written``, where that is known.
    """
    if end == before.next:
        return before
    if end > before.next:
        return Position(before.origin, end, None, before.cut_from, before.cut_epoch)
    if written is not None and tp in written:
        return written[tp].back_to(end) if written[tp].next > end else Position(end, end)
    nothing_read = before.next == before.origin and before.cut_from is not None
    return replace(before, origin=end, next=end, epoch=None) if nothing_read else before.back_to(end)
