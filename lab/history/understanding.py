"""Build the model from events: one pass, in the order of each stream; streams need no common clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.history.events import (
    AssignmentChanged,
    EndReached,
    Event,
    HistoryError,
    Isolation,
    Outcome,
    Partition,
    PartitionOffset,
    RecordRead,
    RecordsConsumed,
    ResetPolicy,
    ResultEnd,
    ResultRow,
    Seek,
    SendFailed,
    SendStarted,
    SendSucceeded,
    Startup,
    TransactionStep,
)
from lab.history.model import History, LogRecord, Reader, Result, Session, Sighting, Transaction, Write


def understand(events: Iterable[Event]) -> History:
    """Build the model of a history.

    Raises:
        HistoryError: if the events contradict each other so that no verdict is possible: a value sent twice, a
            transaction that never began, polls without their records.
    """
    builder = _Builder()
    for event in events:
        builder.take(event)
    return builder.finish()


@dataclass(slots=True)
class _Stream:
    """The state of one stream."""

    reader: Reader
    transactions: dict[int, Transaction] = field(default_factory=dict)
    open_sessions: dict[Partition, Session] = field(default_factory=dict)
    records_since_poll: int = 0
    result: Result | None = None


class _Builder:
    """One pass over the events."""

    def __init__(self) -> None:
        self._history = History()
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._placed: list[tuple[PartitionOffset, Sighting]] = []

    def take(self, event: Event) -> None:
        """Add the next event."""
        self._history.events += 1
        if isinstance(event, Startup):
            self._streams[event.stream] = _Stream(Reader(event.stream, event.isolation, event.reset_policy))
            return
        stream = self._streams.get(event.stream)
        if stream is None:
            reader = Reader(event.stream, Isolation.READ_UNCOMMITTED, ResetPolicy.EARLIEST)
            stream = self._streams[event.stream] = _Stream(reader)
        match event:
            case SendStarted() | SendSucceeded() | SendFailed():
                self._take_send(stream, event)
            case TransactionStep():
                self._take_transaction(stream, event)
            case AssignmentChanged():
                for partition, begin in event.partitions:
                    self._end_session(stream, partition, begin)
            case Seek():
                self._end_session(stream, event.place.of, event.place.offset)
            case RecordRead():
                stream.records_since_poll += 1
                self._session(stream, event.place.of).reads.append(event)
                self._sight(stream, event.place.topic, event)
            case RecordsConsumed():
                self._take_poll(stream, event)
            case EndReached():
                self._take_ends(stream, event)
            case ResultRow():
                self._result(stream).rows.append(event)
                self._sight(stream, event.topic, event)
            case ResultEnd():
                result = self._result(stream)
                result.ends.update({end.partition: end for end in event.ends})
                result.said.update({end.partition: event for end in event.ends})

    def finish(self) -> History:
        """Return the model."""
        history = self._history
        for write in history.writes.values():
            if write.transaction is not None:
                write.transaction.writes.append(write)
        self._index_records()
        return history

    def _index_records(self) -> None:
        history = self._history
        records: dict[tuple[PartitionOffset, str | None], LogRecord] = {}
        for write in history.writes.values():
            if write.place is not None:
                records[write.place, write.value] = LogRecord(write.place, write.value, write, write.acknowledged)
        for place, sighting in self._placed:
            value = sighting.event.value
            sent = None if value is None else history.writes.get((place.topic, value))
            records.setdefault((place, value), LogRecord(place, value, sent)).sightings.append(sighting)
        for record in sorted(records.values(), key=lambda record: record.place.offset):
            history.records[record.place.of].append(record)

    def _take_send(self, stream: _Stream, event: SendStarted | SendSucceeded | SendFailed) -> None:
        if event.value is None:
            raise HistoryError(f"{event.where}: a record without a value cannot be followed; give every record its own")
        topic = event.place.topic if isinstance(event, SendSucceeded) else event.topic
        transaction = None
        if event.transaction is not None:
            transaction = self._transaction(stream, event, event.transaction)
        write = self._history.writes.setdefault((topic, event.value), Write(topic, event.value, transaction))
        earlier = {
            SendStarted: write.events[0] if write.events else None,
            SendSucceeded: write.acknowledged,
            SendFailed: write.failed,
        }[type(event)]
        if earlier is not None or (write.events and write.events[0].stream != event.stream):
            first = earlier or write.events[0]
            raise HistoryError(
                f"{event.where}: {event.value!r} is sent to {topic} a second time, after {first.where}; "
                "records are told apart by their values: give each producer a --value-prefix of its own"
            )
        match event:
            case SendStarted():
                write.started = event
            case SendSucceeded():
                write.acknowledged = event
            case SendFailed():
                write.failed = event

    def _take_transaction(self, stream: _Stream, event: TransactionStep) -> None:
        if event.name == "transaction_begin":
            transaction = Transaction(event)
            if stream.transactions.setdefault(event.transaction, transaction) is not transaction:
                raise HistoryError(
                    f"{event.where}: transaction {event.transaction} of {event.client} begins a second time"
                )
            self._history.transactions.append(transaction)
            return
        transaction = self._transaction(stream, event, event.transaction)
        if event.name != "transaction_abort":
            transaction.commit_started = True
        if event.name == "transaction_commit_started":
            return
        if transaction.end is not None and transaction.end.outcome is Outcome.SUCCESS:
            raise HistoryError(f"{event.where}: {transaction} had ended at {transaction.end.where}")
        transaction.end = event

    def _transaction(self, stream: _Stream, event: Event, number: int) -> Transaction:
        found = stream.transactions.get(number)
        if found is None:
            raise HistoryError(f"{event.where}: transaction {number} of {event.client} never began (transaction_begin)")
        return found

    def _end_session(self, stream: _Stream, partition: Partition, next_begin: int | None) -> None:
        stream.open_sessions.pop(partition, None)
        if next_begin is not None:
            self._session(stream, partition).begin = next_begin

    def _session(self, stream: _Stream, partition: Partition) -> Session:
        found = stream.open_sessions.get(partition)
        if found is None:
            found = stream.open_sessions[partition] = Session(stream.reader, partition)
            self._history.sessions.append(found)
        return found

    def _sight(self, stream: _Stream, topic: str, event: RecordRead | ResultRow) -> None:
        sighting = Sighting(event, stream.reader)
        if event.value is not None:
            self._history.sightings[(topic, event.value)].append(sighting)
        if event.place is not None:
            self._placed.append((event.place, sighting))

    def _take_poll(self, stream: _Stream, event: RecordsConsumed) -> None:
        if event.count > stream.records_since_poll:
            raise HistoryError(
                f"{event.where}: a poll of {event.count} records shows {stream.records_since_poll} of them: run the "
                "consumer with --verbose"
            )
        stream.records_since_poll = 0

    def _take_ends(self, stream: _Stream, event: EndReached) -> None:
        for end in event.ends:
            session = self._session(stream, end.partition)
            session.end = end.offset
            starts = self._history.log_starts
            starts[end.partition] = max(end.start_offset, starts.get(end.partition, 0))
            if event.final:
                self._history.final_ends[end.partition] = event

    def _result(self, stream: _Stream) -> Result:
        if stream.result is None:
            stream.result = Result(stream.reader)
            self._history.results.append(stream.result)
        return stream.result
