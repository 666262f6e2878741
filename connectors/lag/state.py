"""The state of each query, with limits: queries come and go, and some have thousands of partitions.

A query is identified by its id, which its checkpoint keeps over restarts; so its counters continue. An ended one is
kept for a while, for a scraper to see how it ended. Entries are immutable and replaced under a lock, so readers have a
consistent snapshot. Time is passed in, in seconds of a monotonic clock.

The lag of a batch is in its progress: two offsets for each partition, the end of the batch and the latest one. Both are
JSON text, of ``kafka_once`` (`offset_store.offsets`) or in the form of Spark's own connector, ``{"topic":{"0":23}}``.
Sources of other kinds have rows and no partitions. The latest offset is from when the batch was planned: records that
arrived while it ran are in the next one's progress.

What Spark counts are records, except where a source hands over ranges: there it counts ranges. Then a batch has as many
records as its sink has counted (`connectors.sinks.batch_reports`), or, where nothing is reported, as many as its
offsets have moved, which is too many if the log has gaps.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkonce.notebook import table
from sparkonce.offset_store.offsets import (
    HAND_OVER,
    MARK,
    OffsetFormatError,
    SourceOffset,
    batch_ranges,
    is_ours,
    lag,
    total_lag,
)
from sparkonce.offset_store.record import BatchCounts

MAX_QUERIES = 200
MAX_PARTITIONS = 20_000
"""Limit over all queries; further ones are only in the sums."""
KEEP_ENDED_S = 300.0

BATCH_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""The bounds of the histogram of batches' durations: a small direct one takes 0.1 s, one of a backlog minutes."""

_NO_COUNTS = BatchCounts()

Slot = tuple[str, int]
"""A topic's name, and a partition."""

SPARKS_NAME = "kafka"
"""The name of a source without one in its offsets: Spark's own connector."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition after a batch: the offset to read next, and the latest one when the batch was planned."""

    topic: str
    partition: int
    next: int
    latest: int | None
    """None if the source reports no latest offset."""

    @property
    def records(self) -> int:
        """How many offsets lie between the two: gaps and transaction markers count as records."""
        return total_lag([lag(self.next, self.latest)]) or 0


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source of a query after a batch; ``position`` is its number among the query's sources, from 0."""

    position: int
    name: str
    description: str
    rows: int
    partitions: tuple[PartitionLag, ...]
    min_offsets_behind_latest: int = 0
    max_offsets_behind_latest: int = 0
    offsets_behind_latest: int = 0
    """The sum over all partitions, those in ``partitions_left_out`` included."""
    partition_count: int = 0
    """Those that have a latest offset."""
    partitions_left_out: int = 0
    """Of a source with very many partitions: the number that are only in the sums."""
    hands_over_ranges: bool = False
    """Whether its rows are ranges, so that ``rows`` is not Spark's number."""

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that Spark's own connector adds to the progress, under its names; empty without partitions."""
        if not self.partition_count:
            return {}
        return {
            "minOffsetsBehindLatest": self.min_offsets_behind_latest,
            "maxOffsetsBehindLatest": self.max_offsets_behind_latest,
            "avgOffsetsBehindLatest": self.offsets_behind_latest / self.partition_count,
        }

    def _repr_html_(self) -> str:
        return _source_table(self)


def source_lag(position: int, source: Any) -> SourceLag:
    """Read one entry of a progress' ``sources``; offsets that cannot be read count as none."""
    name, reached = read_offsets(source.endOffset)
    _, latest = read_offsets(source.latestOffset)
    partitions = tuple(
        PartitionLag(topic, partition, offset, latest.get((topic, partition)))
        for (topic, partition), offset in sorted(reached.items())
    )
    behind = [each.records for each in partitions if each.latest is not None]
    moved = offsets_moved(source.startOffset, source.endOffset)
    return SourceLag(
        position=position,
        name=name or source.description,
        description=source.description,
        rows=(source.numInputRows or 0) if moved is None else moved,
        partitions=partitions,
        min_offsets_behind_latest=min(behind, default=0),
        max_offsets_behind_latest=max(behind, default=0),
        offsets_behind_latest=sum(behind),
        partition_count=len(behind),
        hands_over_ranges=moved is not None,
    )


def offsets_moved(start: str | None, end: str | None) -> int | None:
    """Return how far a batch has moved the offsets of a source that hands over ranges; None for all others."""
    if f'"{HAND_OVER}"' not in (end or ""):  # most have none, and parsing thousands of partitions again is slow
        return None
    try:
        after = SourceOffset.from_json(end or "")
        before = SourceOffset.from_json(start) if start and is_ours(start) else None  # "None" before batch 0
    except OffsetFormatError:
        return None
    if not after.hands_over_ranges:
        return None
    return sum(extent.end - extent.start for extent in batch_ranges(before, after).values())


def read_offsets(text: str | None) -> tuple[str, dict[Slot, int]]:
    """Return the source's name in an offset's text, and the next offset of each partition; nothing for other kinds."""
    try:
        document = json.loads(text or "null")
        if not isinstance(document, dict):
            return "", {}
        if MARK in document:
            offset = SourceOffset.from_json(text or "")
            return offset.source, {(tp.topic, tp.partition): at.next for tp, at in offset.positions.items()}
        found = {(topic, int(number)): at for topic, numbers in document.items() for number, at in numbers.items()}
    except (ValueError, AttributeError, RecursionError):
        return "", {}
    return (SPARKS_NAME, found) if found and all(type(at) is int for at in found.values()) else ("", {})


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The state of one query; durations in milliseconds as in Spark, timestamps in seconds."""

    query_id: str
    run_id: str
    name: str
    heard_at: float
    batch_at: float | None = None
    """When the last progress arrived; None before the first."""
    batch_id: int = -1
    batch_duration_ms: int = 0
    batches: int = 0
    rows: int = 0
    """Records that the batches have read."""
    duration_sum_ms: int = 0
    sources: tuple[SourceLag, ...] = ()
    ended_at: float | None = None
    failed: bool = False
    fenced: bool = False
    """Whether it failed because another driver wrote with its appId."""
    batch_rows: int = 0
    """Records that the last batch has read."""
    batch_counts: BatchCounts | None = None
    """Read and written by the last batch; None if its sink does not report it, or not to this machine."""
    counted_batches: int = 0
    """The number of batches in ``counts``."""
    counts: BatchCounts = _NO_COUNTS
    """What the batches that are reported have read and written."""
    duration_buckets: tuple[int, ...] = (0,) * (len(BATCH_BOUNDS_S) + 1)
    """How many batches took no longer than each of `BATCH_BOUNDS_S`, and longer than the one before; then the rest."""

    @property
    def records_per_second(self) -> float:
        """Records read by the last batch per second of its duration; 0 before the first."""
        return self._rate(self.batch_rows)

    @property
    def read_bytes_per_second(self) -> float | None:
        """Bytes read by the last batch per second of its duration; None if unknown."""
        known = None if self.batch_counts is None else self.batch_counts.read_bytes
        return None if known is None else self._rate(known)

    @property
    def written_rows_per_second(self) -> float | None:
        """Rows and dead letters written by the last batch per second of its duration; None if unknown."""
        known = self.batch_counts
        return None if known is None else self._rate(known.rows + known.dead_letters)

    @property
    def offsets_behind_latest(self) -> int | None:
        """The lag of all sources together after the last batch; None if none of them has a latest offset."""
        return total_lag(source.offsets_behind_latest for source in self.sources if source.partition_count)

    def _repr_html_(self) -> str:
        return _query_tables(self)

    def _rate(self, number: int) -> float:
        return 1000 * number / max(self.batch_duration_ms, 1)


@dataclass(frozen=True, slots=True)
class Batch:
    """The contents of one progress."""

    query_id: str
    run_id: str
    name: str
    batch_id: int
    duration_ms: int
    rows: int
    sources: tuple[SourceLag, ...]
    counts: BatchCounts | None = None
    """The report of its sink."""


def read_batch(progress: Any, counts: BatchCounts | None) -> Batch:
    """Return a progress as a batch, whose sink has reported ``counts``."""
    sources = tuple(source_lag(position, source) for position, source in enumerate(progress.sources))
    if counts is not None and counts.records is not None:
        sources = tuple(replace(each, rows=counts.records) if each.hands_over_ranges else each for each in sources)
    counts_ranges = any(source.hands_over_ranges for source in sources)
    return Batch(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        name=progress.name or str(progress.id),
        batch_id=progress.batchId,
        duration_ms=progress.batchDuration,
        rows=sum(source.rows for source in sources) if counts_ranges else progress.numInputRows or 0,
        sources=sources,
        counts=counts,
    )


class LagState:
    """All queries of one listener; every method may be called from any thread."""

    def __init__(
        self, max_queries: int = MAX_QUERIES, max_partitions: int = MAX_PARTITIONS, keep_ended_s: float = KEEP_ENDED_S
    ) -> None:
        self._max_queries = max_queries
        self._max_partitions = max_partitions
        self._keep_ended_s = keep_ended_s
        self._lock = threading.Lock()
        self._queries: dict[str, QueryLag] = {}

    def started(self, query_id: str, run_id: str, name: str | None, now: float) -> None:
        """Note that a query started, or restarted."""
        with self._lock:
            known = self._entry(query_id, run_id, name or query_id, now)
            self._put(replace(known, heard_at=now), now)

    def progressed(self, batch: Batch, now: float) -> QueryLag:
        """Note that a batch is done; return the state of its query then."""
        with self._lock:
            known = self._entry(batch.query_id, batch.run_id, batch.name, now)
            taken = sum(_held(query) for query in self._queries.values() if query.query_id != batch.query_id)
            entry = replace(
                known,
                heard_at=now,
                batch_at=now,
                batch_id=batch.batch_id,
                batch_duration_ms=batch.duration_ms,
                batches=known.batches + 1,
                rows=known.rows + batch.rows,
                duration_sum_ms=known.duration_sum_ms + batch.duration_ms,
                duration_buckets=_counted(known.duration_buckets, batch.duration_ms / 1000),
                sources=_within(batch.sources, max(self._max_partitions - taken, 0)),
                batch_rows=batch.rows,
                batch_counts=batch.counts,
                counted_batches=known.counted_batches + (batch.counts is not None),
                counts=known.counts if batch.counts is None else known.counts.of_tasks(batch.counts),
            )
            self._put(entry, now)
            return entry

    def idle(self, query_id: str, run_id: str, now: float) -> QueryLag:
        """Note that a query is idle; return its state."""
        with self._lock:
            entry = replace(self._entry(query_id, run_id, query_id, now), heard_at=now)
            self._put(entry, now)
            return entry

    def ended(self, query_id: str, run_id: str, failed: bool, now: float, *, fenced: bool = False) -> QueryLag | None:
        """Record the end of a run, and return the query's state.

        None for a late report of an older run, which does not end the newer one.
        """
        with self._lock:
            known = self._queries.get(query_id)
            if known is None or known.run_id != run_id:
                return None
            entry = replace(known, heard_at=now, ended_at=now, failed=failed, fenced=fenced)
            self._put(entry, now)
            return entry

    def queries(self, now: float) -> tuple[QueryLag, ...]:
        """Return the states, ordered by name."""
        with self._lock:
            self._forget(now)
            return tuple(sorted(self._queries.values(), key=lambda query: (query.name, query.query_id)))

    def _entry(self, query_id: str, run_id: str, name: str, now: float) -> QueryLag:
        known = self._queries.get(query_id)
        if known is None:
            return QueryLag(query_id, run_id, name, now)
        if known.run_id != run_id:
            return replace(known, run_id=run_id, name=name, ended_at=None, failed=False, fenced=False)
        return known

    def _put(self, entry: QueryLag, now: float) -> None:
        self._queries[entry.query_id] = entry
        self._forget(now)
        while len(self._queries) > self._max_queries:
            # Those that ended are evicted first, then those without events for longest.
            others = (query for query in self._queries.values() if query.query_id != entry.query_id)
            least = min(others, key=lambda query: (query.ended_at is None, query.heard_at))
            del self._queries[least.query_id]

    def _forget(self, now: float) -> None:
        old = [
            query.query_id
            for query in self._queries.values()
            if query.ended_at is not None and now - query.ended_at > self._keep_ended_s
        ]
        for query_id in old:
            del self._queries[query_id]


def _counted(buckets: tuple[int, ...], seconds: float) -> tuple[int, ...]:
    """Count one more batch."""
    at = bisect_left(BATCH_BOUNDS_S, seconds)
    return (*buckets[:at], buckets[at] + 1, *buckets[at + 1 :])


def _held(query: QueryLag) -> int:
    return sum(len(source.partitions) for source in query.sources)


def _within(sources: Sequence[SourceLag], room: int) -> tuple[SourceLag, ...]:
    """Drop the partitions beyond the limit."""
    kept = []
    for source in sources:
        fits = source.partitions[:room]
        room -= len(fits)
        kept.append(replace(source, partitions=fits, partitions_left_out=len(source.partitions) - len(fits)))
    return tuple(kept)


_HEAD_OF_SOURCE = ("topic", "partition", "next offset", "latest offset", "behind")


def queries_table(queries: Iterable[QueryLag]) -> str:
    """Return one row for each query."""
    head = ("query", "state", "batch", "records read", "records/s", "rows written", "behind")
    rows = [
        (
            query.name,
            state_of(query),
            None if query.batch_at is None else query.batch_id,
            query.rows,
            query.records_per_second,
            query.counts.rows if query.counted_batches else None,
            query.offsets_behind_latest,
        )
        for query in queries
    ]
    return table(head, rows, title="Queries", note="" if rows else "no query has started yet")


def _query_tables(query: QueryLag) -> str:
    """Return a query, and its partitions."""
    return queries_table([query]) + "".join(_source_table(source) for source in query.sources)


def _source_table(source: SourceLag) -> str:
    """Return one row for each partition, those that are furthest behind first."""
    furthest_first = sorted(source.partitions, key=lambda each: -each.records)
    rows = [
        (each.topic, each.partition, each.next, each.latest, None if each.latest is None else each.records)
        for each in furthest_first
    ]
    left_out = f"{source.partitions_left_out:,} more are in the sum only" if source.partitions_left_out else ""
    title = f"Source {source.name}: {source.offsets_behind_latest:,} behind"
    return table(
        _HEAD_OF_SOURCE, rows, title=title if source.partition_count else f"Source {source.name}", note=left_out
    )


def state_of(query: QueryLag) -> str:
    """Return a query's state in a word."""
    if query.ended_at is None:
        return "running"
    return "fenced" if query.fenced else "failed" if query.failed else "ended"
