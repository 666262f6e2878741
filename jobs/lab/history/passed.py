"""Records that a reader went past without seeing them: what lost, torn and skipped have in common."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from sparkonce.jobs.lab.history.events import Event
from sparkonce.jobs.lab.history.model import History, Reader, Record, Result, Session


@dataclass(frozen=True, slots=True)
class Passed:
    """One record that one reader should have seen, if it was visible to it, and did not."""

    record: Record
    reader: Reader
    jump: tuple[Event, ...]
    """What the reader saw on either side."""
    in_result: bool
    """Whether the reader is a result table."""


def passed_records(history: History) -> Iterator[Passed]:
    """Yield every record that some reader went past, visible or not."""
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
    # A row stands for its place and for its value: where the two contradict others, that is another anomaly.
    seen = {key for row in result.rows for key in (row.place, (row.topic, row.value))}
    for partition, end in result.ends.items():
        for record in history.records_at(partition, range(end.start_offset, end.offset)):
            if record.place not in seen and (partition.topic, record.value) not in seen:
                yield Passed(record, result.reader, (result.said[partition],), in_result=True)
