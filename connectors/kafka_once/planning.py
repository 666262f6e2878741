"""The arithmetic of planning a batch: how much of each partition, and in how many pieces. No I/O, no state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from offset_store.offsets import OffsetRange, TopicPartition

SMALL_BATCH_RECORDS = 2_000
"""Up to so many records a batch is read by one task."""


def share_out(
    limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Give end offsets such that about ``limit`` records are read, by backlog, as Spark's connector shares them out.

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
    ranges: Mapping[TopicPartition, OffsetRange], min_partitions: int | None
) -> list[tuple[TopicPartition, OffsetRange]]:
    """Cut ranges into one piece per task: whole ranges, or about ``min_partitions`` pieces of like size.

    The pieces of a range differ by one record at most, and none is empty.
    """
    wanted = [(tp, extent) for tp, extent in sorted(ranges.items()) if extent.end > extent.start]
    if min_partitions is None or len(wanted) >= min_partitions:
        return wanted
    total = sum(extent.end - extent.start for _, extent in wanted)
    pieces = []
    for tp, extent in wanted:
        size = extent.end - extent.start
        count = min(size, max(1, math.floor(size / total * min_partitions + 0.5)))
        cuts = [extent.start + size * index // count for index in range(count + 1)]
        pieces += [(tp, OffsetRange(begin, end)) for begin, end in pairwise(cuts)]
    return pieces


def bundle(
    pieces: list[tuple[TopicPartition, OffsetRange]], min_partitions: int | None
) -> list[list[tuple[TopicPartition, OffsetRange]]]:
    """Give the pieces of each task: one, or all of them where the batch is small and no number of tasks is asked for.

    Starting a Python task costs Spark tens of milliseconds, reading a few hundred records one: a small micro-batch is
    quicker in one task, and its sink writes one file rather than one for each partition.
    """
    total = sum(extent.end - extent.start for _, extent in pieces)
    if pieces and min_partitions is None and total <= SMALL_BATCH_RECORDS:
        return [pieces]
    return [[piece] for piece in pieces]
