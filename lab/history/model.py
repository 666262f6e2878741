"""The contents of a history: which client wrote which value, each transaction's outcome, what each reader saw.

A value identifies a write, so each (topic, value) is sent once in a history: the verifiable producer numbers
its values. What a consumer reads from one partition between two changes of its position (start, rebalance, seek) is a
*session*: order and completeness are defined only within one. `understanding.py` makes these from events.

Lost, torn and skipped records have in common that a reader read past them without seeing them: `passed_records`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from lab.history.events import (
    End,
    EndReached,
    Event,
    Isolation,
    Outcome,
    Partition,
    PartitionOffset,
    RecordRead,
    ResetPolicy,
    ResultEnd,
    ResultRow,
    SendFailed,
    SendStarted,
    SendSucceeded,
    TransactionStep,
)


class Fate(Enum):
    """A transaction's outcome, as far as its producer knows."""

    COMMITTED = auto()
    ABORTED = auto()
    """Aborted, or its commit never began: no `read_committed` reader may ever see it."""
    UNKNOWN = auto()
    """A commit began, and its outcome is unknown: all of it may be seen, or nothing."""


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    begin: TransactionStep
    commit_started: bool = False
    end: TransactionStep | None = None
    writes: list[Write] = field(default_factory=list)

    @property
    def fate(self) -> Fate:
        """Its outcome."""
        if self.end is not None and self.end.outcome is Outcome.SUCCESS:
            return Fate.COMMITTED if self.end.name == "transaction_commit" else Fate.ABORTED
        return Fate.UNKNOWN if self.commit_started else Fate.ABORTED

    def __str__(self) -> str:
        return f"transaction {self.begin.transaction} of {self.begin.client}"


@dataclass(slots=True, eq=False)
class Write:
    """One record that a producer sent, or started to send."""

    topic: str
    value: str
    transaction: Transaction | None
    started: SendStarted | None = None
    acknowledged: SendSucceeded | None = None
    failed: SendFailed | None = None

    @property
    def place(self) -> PartitionOffset | None:
        """Its partition and offset by the acknowledgement; None without one, or without an offset (acks=0)."""
        return self.acknowledged.place if self.acknowledged and self.acknowledged.place.offset >= 0 else None

    @property
    def certainly_failed(self) -> bool:
        """Whether no reader at all may see it."""
        return self.acknowledged is None and self.failed is not None and self.failed.outcome is Outcome.FAILED

    @property
    def aborted(self) -> bool:
        """Whether `read_committed` readers must not see it."""
        return self.transaction is not None and self.transaction.fate is Fate.ABORTED

    @property
    def must_be_seen(self) -> bool:
        """Whether every reader that reads past it must see it."""
        if self.transaction is not None:
            return self.transaction.fate is Fate.COMMITTED and not self.certainly_failed
        return self.place is not None

    @property
    def outcome_unknown(self) -> bool:
        """Whether it may or may not be in the log."""
        if self.transaction is not None:
            return self.transaction.fate is Fate.UNKNOWN and not self.certainly_failed
        return self.place is None and not self.certainly_failed

    @property
    def events(self) -> tuple[Event, ...]:
        """The producer's events about it."""
        return tuple(event for event in (self.started, self.acknowledged, self.failed) if event is not None)

    def __str__(self) -> str:
        return f"value {self.value!r}"


class Reader(NamedTuple):
    """A consumer from its start to its end, or a result table."""

    stream: tuple[str, str]
    isolation: Isolation
    reset_policy: ResetPolicy

    def __str__(self) -> str:
        return self.stream[1]


class Sighting(NamedTuple):
    """One reader saw a value once."""

    event: RecordRead | ResultRow
    reader: Reader

    @property
    def isolation(self) -> Isolation:
        """The reader's isolation level."""
        return self.reader.isolation


@dataclass(slots=True)
class LogRecord:
    """One value at one offset, acknowledged or read there, or both."""

    place: PartitionOffset
    value: str | None
    write: Write | None = None
    """Its write, if the history has its producer."""
    acknowledged: SendSucceeded | None = None
    """The acknowledgement with this offset."""
    sightings: list[Sighting] = field(default_factory=list)
    """The reader that read it here."""

    def shown_to(self, isolation: Isolation) -> list[Sighting]:
        """Return the sightings that prove that a reader of this isolation level must see it."""
        of_whole_log = isolation is Isolation.READ_UNCOMMITTED
        if of_whole_log or (self.write is not None and self.write.must_be_seen):
            return self.sightings
        if self.write is not None and self.write.aborted:
            return []
        return [each for each in self.sightings if each.isolation is Isolation.READ_COMMITTED]


@dataclass(slots=True)
class Session:
    """What one consumer read from one partition without a change of its position."""

    reader: Reader
    partition: Partition
    begin: int | None = None
    """The offset from which it started, if the consumer reported it."""
    end: int | None = None
    """The offset up to which everything was read, if the consumer reported it."""
    reads: list[RecordRead] = field(default_factory=list)

    @property
    def covers(self) -> range:
        """The offsets of which it should have seen every visible record."""
        offsets = [read.place.offset for read in self.reads]
        if self.end is not None:
            offsets.append(self.end - 1)
        if not offsets:
            return range(0)
        begin = min(offsets[: len(self.reads)], default=self.end) if self.begin is None else self.begin
        assert begin is not None
        return range(begin, max(offsets) + 1)


@dataclass(slots=True)
class Result:
    """A result table, as far as the history includes it."""

    reader: Reader
    rows: list[ResultRow] = field(default_factory=list)
    ends: dict[Partition, End] = field(default_factory=dict)
    said: dict[Partition, ResultEnd] = field(default_factory=dict)
    """The event of each end."""


@dataclass(slots=True)
class History:
    """The model in which anomalies are searched."""

    events: int = 0
    writes: dict[tuple[str, str], Write] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    sightings: dict[tuple[str, str], list[Sighting]] = field(default_factory=lambda: defaultdict(list))
    """The readers of each value, and where."""
    log_starts: dict[Partition, int] = field(default_factory=dict)
    """The offsets below which retention deleted records, as reported by readers."""
    final_ends: dict[Partition, EndReached] = field(default_factory=dict)
    """Partitions that were read to the end after the last producer had finished."""
    records: dict[Partition, list[LogRecord]] = field(default_factory=lambda: defaultdict(list))
    """The known records of each partition, in the order of its offsets."""

    def records_at(self, partition: Partition, offsets: range) -> list[LogRecord]:
        """Return a partition's known records at these offsets."""
        records = self.records.get(partition, [])
        first = bisect_left(records, offsets.start, key=lambda record: record.place.offset)
        last = bisect_left(records, offsets.stop, key=lambda record: record.place.offset)
        return records[first:last]

    def sightings_of(self, write: Write) -> list[Sighting]:
        """Return the readers of a write's value."""
        return self.sightings.get((write.topic, write.value), [])


@dataclass(frozen=True, slots=True)
class Passed:
    """One record that one reader should have seen, if visible to it, and did not."""

    record: LogRecord
    reader: Reader
    jump: tuple[Event, ...]
    """What the reader saw before and after."""
    in_result: bool
    """Whether the reader is a result table."""


def passed_records(history: History) -> Iterator[Passed]:
    """Yield every record that some reader read past, visible or not."""
    for session in history.sessions:
        yield from _by_session(history, session)
    for result in history.results:
        yield from _by_result(history, result)


def _by_session(history: History, session: Session) -> Iterator[Passed]:
    reads = sorted(session.reads, key=lambda read: read.place.offset)
    seen = {read.place.offset for read in reads}
    for record in history.records_at(session.partition, session.covers):
        if record.place.offset not in seen:
            after = bisect_left(reads, record.place.offset, key=lambda read: read.place.offset)
            yield Passed(record, session.reader, tuple(reads[max(0, after - 1) : after + 1]), in_result=False)


def _by_result(history: History, result: Result) -> Iterator[Passed]:
    # A row stands for its offset and for its value: if the two contradict others, that is another anomaly.
    seen = {key for row in result.rows for key in (row.place, (row.topic, row.value))}
    for partition, end in result.ends.items():
        for record in history.records_at(partition, range(end.start_offset, end.offset)):
            if record.place not in seen and (partition.topic, record.value) not in seen:
                yield Passed(record, result.reader, (result.said[partition],), in_result=True)
