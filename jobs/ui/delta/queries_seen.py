"""The queries that write to a table, by its commits: batches, rates, guarantees, and shared appIds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import CommittedBatch, PartitionKey, Writes

RECENT = 64
"""The number of commits of a query to keep in full."""
MINUTES = 60
MINUTE_MS = 60_000
MAX_QUERIES = 500
"""Per table; further ones, of an application that always deletes its checkpoint, replace the least recent ones."""
MAX_SWITCHES = 20

BOTH = Writes.ROWS | Writes.OFFSETS


@dataclass(slots=True)
class Minute:
    """The commits of one minute."""

    batches: int = 0
    records: int = 0
    """Offsets covered: including gaps and transaction markers."""
    rows: int | None = None
    """Rows written; None if not counted."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of an application's query."""

    app_id: str
    before: str
    """The id of the previous query."""
    after: str
    version: int
    at_ms: int


@dataclass(slots=True)
class QuerySeen:
    """One query, by its appId and its Spark id; the latter is kept with the checkpoint."""

    app_id: str
    query_id: str
    last_version: int = 0
    last_ms: int = 0
    last_batch: int = -1
    commits: int = 0
    guarantee: Guarantee | None = None
    """By the order of the newest attempt's two writes; None while only one of them was seen."""
    ends: dict[PartitionKey, OffsetRange] = field(default_factory=dict)
    """The newest range of each partition."""
    recent: deque[CommittedBatch] = field(default_factory=lambda: deque(maxlen=RECENT))
    minutes: dict[int, Minute] = field(default_factory=dict)
    """By minutes since 1970, the newest `MINUTES`."""
    _half: tuple[str, Writes] | None = None

    def copy(self) -> QuerySeen:
        """Return a copy of the current state, which other threads do not change."""
        return replace(self, ends=self.ends.copy(), recent=self.recent.copy(), minutes=self.minutes.copy())

    def add(self, batch: CommittedBatch) -> None:
        """Add its next commit."""
        self.commits += 1
        self.last_version, self.last_ms = batch.version, batch.timestamp_ms
        self.last_batch = batch.record.batch_id
        self.recent.append(batch)
        self._note_guarantee(batch)
        if Writes.OFFSETS in batch.writes:
            self.ends |= batch.record.moved
        self._note_minute(batch)

    def _note_guarantee(self, batch: CommittedBatch) -> None:
        half, self._half = self._half, None
        if batch.writes == BOTH:
            self.guarantee = Guarantee.EXACTLY_ONCE
        elif half is not None and half[0] == batch.record.attempt_id and half[1] != batch.writes:
            rows_first = half[1] == Writes.ROWS
            self.guarantee = Guarantee.AT_LEAST_ONCE if rows_first else Guarantee.AT_MOST_ONCE
        else:
            self._half = batch.record.attempt_id, batch.writes

    def _note_minute(self, batch: CommittedBatch) -> None:
        number = batch.timestamp_ms // MINUTE_MS
        minute = self.minutes.setdefault(number, Minute())
        if Writes.OFFSETS in batch.writes:
            minute.batches += 1
            minute.records += sum(extent.end - extent.start for extent in batch.record.moved.values())
        counts = batch.record.counts
        if Writes.ROWS in batch.writes and counts is not None:
            minute.rows = (minute.rows or 0) + counts.rows
        while len(self.minutes) > MINUTES + 1:
            del self.minutes[min(self.minutes)]


@dataclass(slots=True)
class QueriesSeen:
    """All queries of one table."""

    _queries: dict[tuple[str, str], QuerySeen] = field(default_factory=dict)
    _writers: dict[str, str] = field(default_factory=dict)
    """The query that last wrote for each application."""
    switches: deque[Switch] = field(default_factory=lambda: deque(maxlen=MAX_SWITCHES))

    def add(self, batch: CommittedBatch) -> None:
        """Add the next commit."""
        key = batch.record.app_id, batch.record.query_id
        query = self._queries.pop(key, None) or QuerySeen(*key)
        self._queries[key] = query  # the newest is last
        query.add(batch)
        before = self._writers.get(key[0])
        if before is not None and before != key[1]:
            self.switches.append(Switch(key[0], before, key[1], batch.version, batch.timestamp_ms))
        self._writers[key[0]] = key[1]
        if len(self._queries) > MAX_QUERIES:
            del self._queries[next(iter(self._queries))]

    def all(self) -> Mapping[tuple[str, str], QuerySeen]:
        """Return the queries by appId and query id, the most recent one last."""
        return self._queries
