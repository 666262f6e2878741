"""One value, one offset; one offset, one value; no unwritten value; no reading backwards or skipping."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise

from lab.history.anomalies import Anomaly, AnomalyName, named, unique
from lab.history.events import Event, PartitionOffset, ResultRow
from lab.history.model import History, LogRecord, Passed, Result, Write


def duplicates(history: History) -> Iterator[Anomaly]:
    """Find values that were read at two offsets, and rows that a result table holds twice."""
    for (topic, value), sightings in history.sightings.items():
        at: dict[PartitionOffset, Event] = {}
        for sighting in sightings:
            if sighting.event.place is not None:
                at.setdefault(sighting.event.place, sighting.event)
        if len(at) > 1:
            places = " and ".join(str(place) for place in sorted(at))
            sent = history.writes[(topic, value)].events if (topic, value) in history.writes else ()
            yield Anomaly(AnomalyName.DUPLICATE, f"value {value!r} was read at {places}", unique(*sent, *at.values()))
    for result in history.results:
        yield from _repeated_rows(result)


def _repeated_rows(result: Result) -> Iterator[Anomaly]:
    rows: dict[tuple[object, str | None], list[ResultRow]] = defaultdict(list)
    for row in result.rows:
        rows[row.place or row.topic, row.value].append(row)
    for (where, value), those in rows.items():
        if len(those) > 1 and (value is not None or isinstance(where, PartitionOffset)):
            explanation = f"{result.reader} holds value {value!r}, of {where}, {len(those)} times"
            yield Anomaly(AnomalyName.DUPLICATE, explanation, tuple(those))


def inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    """Find offsets with two values, and values acknowledged at one offset and read at another."""
    for records in history.records.values():
        at: dict[PartitionOffset, list[LogRecord]] = defaultdict(list)
        for record in records:
            at[record.place].append(record)
        for place, those in at.items():
            if len(those) > 1:
                yield _two_values(place, those)
            elif those[0].acknowledged is not None and not those[0].sightings:
                yield from _read_elsewhere(history, those[0])


def _two_values(place: PartitionOffset, records: list[LogRecord]) -> Anomaly:
    shown: list[Event | None] = []
    said: list[str] = []
    for record in records:
        readers = [sighting.event for sighting in record.sightings]
        how = ["acknowledged"] if record.acknowledged else []
        how += [f"read by {named(readers)}"] if readers else []
        said.append(f"{record.value!r} ({', '.join(how)})")
        shown += [record.acknowledged, *readers[:1]]
    return Anomaly(AnomalyName.INCONSISTENT_OFFSETS, f"{place} holds {' and '.join(said)}", unique(*shown))


def _read_elsewhere(history: History, record: LogRecord) -> Iterator[Anomaly]:
    assert record.write is not None
    elsewhere = [each.event for each in history.sightings_of(record.write) if each.event.place is not None]
    if elsewhere:
        explanation = f"{record.write} was acknowledged at {record.place}, and read at {elsewhere[0].place}"
        yield Anomaly(AnomalyName.INCONSISTENT_OFFSETS, explanation, unique(*record.write.events, elsewhere[0]))


def unwritten_reads(history: History) -> Iterator[Anomaly]:
    """Find values that nobody has sent, in topics whose producers all announce their sends."""
    announced: dict[str, bool] = defaultdict(lambda: True)
    for write in history.writes.values():
        announced[write.topic] &= write.started is not None
    for (topic, value), sightings in history.sightings.items():
        if topic in announced and announced[topic] and (topic, value) not in history.writes:
            seen = [sighting.event for sighting in sightings]
            explanation = (
                f"value {value!r} of {topic} was read by {named(seen)}, and no producer of this history sent it"
            )
            yield Anomaly(AnomalyName.UNWRITTEN_READ, explanation, unique(*seen))


def non_monotonic_polls(history: History) -> Iterator[Anomaly]:
    """Find steps back within a session, one finding for each."""
    for session in history.sessions:
        for before, after in pairwise(session.reads):
            if after.place.offset <= before.place.offset:
                jump = f"{after.place} after offset {before.place.offset}"
                explanation = f"{session.reader} read {jump}, without a rebalance or a seek"
                yield Anomaly(AnomalyName.NON_MONOTONIC_POLL, explanation, (before, after))


def skipped_polls(passed: Iterable[Passed], explained: Container[Write | None]) -> Iterator[Anomaly]:
    """Find skipped records that others saw, one finding for each skip; without `explained` writes."""
    jumps: dict[tuple[object, tuple[Event, ...]], list[Passed]] = defaultdict(list)
    for each in passed:
        visible = each.record.shown_to(each.reader.isolation)
        if visible and not each.in_result and each.record.write not in explained:
            jumps[each.reader, each.jump].append(each)
    for (reader, jump), missed in jumps.items():
        first = missed[0].record
        others = f" and {len(missed) - 1} more" if len(missed) > 1 else ""
        sighting = first.shown_to(missed[0].reader.isolation)[0]
        explanation = f"{reader} jumped over {first.place}{others}, where {sighting.reader} read {first.value!r}"
        yield Anomaly(AnomalyName.SKIPPED_POLL, explanation, unique(*jump, first.acknowledged, sighting.event))
