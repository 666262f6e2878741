"""What is known of each query, within bounds: queries come and go, and some have thousands of partitions.

A query is known by its id, which stays over restarts from its checkpoint; so its counters go on. An ended one stays
for a while, for a scraper to see how it ended. Entries are immutable and replaced under a lock, so readers have a
consistent snapshot. Time is passed in, in seconds of a monotonic clock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkonce.connectors.lag.progress import SourceLag

MAX_QUERIES = 200
MAX_PARTITIONS = 20_000
"""Of all queries together; those beyond are counted in the sums only."""
KEEP_ENDED_S = 300.0


@dataclass(frozen=True, slots=True)
class QueryLag:
    """What is known of one query; durations in milliseconds as in Spark, timestamps in seconds."""

    query_id: str
    run_id: str
    name: str
    heard_at: float
    batch_at: float | None = None
    """When the last progress came; None before the first."""
    batch_id: int = -1
    batch_duration_ms: int = 0
    batches: int = 0
    rows: int = 0
    duration_sum_ms: int = 0
    sources: tuple[SourceLag, ...] = ()
    ended_at: float | None = None
    failed: bool = False


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
        """Note that a query began, or began again."""
        with self._lock:
            known = self._entry(query_id, run_id, name or query_id, now)
            self._put(replace(known, heard_at=now), now)

    def progressed(self, batch: Batch, now: float) -> None:
        """Note that a batch is done."""
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
                sources=_within(batch.sources, max(self._max_partitions - taken, 0)),
            )
            self._put(entry, now)

    def idle(self, query_id: str, run_id: str, now: float) -> None:
        """Note that a query lives, and has nothing to do."""
        with self._lock:
            self._put(replace(self._entry(query_id, run_id, query_id, now), heard_at=now), now)

    def ended(self, query_id: str, run_id: str, failed: bool, now: float) -> None:
        """Record the end of a run. A late report of an older run does not end the newer one."""
        with self._lock:
            known = self._queries.get(query_id)
            if known is not None and known.run_id == run_id:
                self._put(replace(known, heard_at=now, ended_at=now, failed=failed), now)

    def queries(self, now: float) -> tuple[QueryLag, ...]:
        """Return what is known, in the order of names."""
        with self._lock:
            self._forget(now)
            return tuple(sorted(self._queries.values(), key=lambda query: (query.name, query.query_id)))

    def _entry(self, query_id: str, run_id: str, name: str, now: float) -> QueryLag:
        known = self._queries.get(query_id)
        if known is None:
            return QueryLag(query_id, run_id, name, now)
        if known.run_id != run_id:
            return replace(known, run_id=run_id, name=name, ended_at=None, failed=False)
        return known

    def _put(self, entry: QueryLag, now: float) -> None:
        self._queries[entry.query_id] = entry
        self._forget(now)
        while len(self._queries) > self._max_queries:
            # Those that ended go first, then those that were silent for longest.
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


def _held(query: QueryLag) -> int:
    return sum(len(source.partitions) for source in query.sources)


def _within(sources: Sequence[SourceLag], room: int) -> tuple[SourceLag, ...]:
    """Leave out the partitions for which there is no room."""
    kept = []
    for source in sources:
        fits = source.partitions[:room]
        room -= len(fits)
        kept.append(replace(source, partitions=fits, partitions_left_out=len(source.partitions) - len(fits)))
    return tuple(kept)
