"""Acknowledged records that are missing.

A write is required only where a client has read: up to the largest offset that a consumer reached in its
partition, and from the beginning of the partition on, unless all its consumers start at the latest offset or report
that retention has deleted the beginning. A final read, when no producer writes any more, requires everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from lab.history.anomalies import Anomaly, AnomalyName, unique
from lab.history.events import EndReached, Event, Partition, ResetPolicy
from lab.history.model import History, Passed, Session, Write


@dataclass(frozen=True, slots=True)
class _Claim:
    """The ranges that all consumers of one partition together have read."""

    offsets: range
    furthest: Event | None
    final: EndReached | None


def lost_writes(history: History, passed: Iterable[Passed], explained: Container[Write | None]) -> Iterator[Anomaly]:
    """Find lost writes, except those that another finding explains."""
    claims = _claims(history)
    lost: set[Write | None] = set()
    for write in history.writes.values():
        if write.must_be_seen and not history.sightings_of(write) and write not in explained:
            found = _lost(history, write, claims)
            if found is not None:
                lost.add(write)
                yield found
    for each in passed:
        if each.in_result and each.record.write not in explained and each.record.write not in lost:
            yield from _lost_in_result(each)


def _lost(history: History, write: Write, claims: dict[Partition, _Claim]) -> Anomaly | None:
    end = write.transaction.end if write.transaction else None
    place = write.place
    if place is None:
        # A committed transaction contains all of its records, even those whose acknowledgement was never reported.
        finals = [event for partition, event in history.final_ends.items() if partition.topic == write.topic]
        if not finals:
            return None
        explanation = f"{write} of {write.topic} was committed with {write.transaction}, and the final read lacks it"
        return Anomaly(AnomalyName.LOST_WRITE, explanation, unique(*write.events, end, finals[0]))
    claim = claims.get(place.of)
    if claim is None or place.offset < claim.offsets.start:
        return None
    acknowledged = f"{write} was acknowledged at {place}"
    if place.offset < claim.offsets.stop:
        explanation = f"{acknowledged}, and no reader saw it, although offset {claim.offsets.stop - 1} was reached"
        return Anomaly(AnomalyName.LOST_WRITE, explanation, unique(*write.events, end, claim.furthest))
    if claim.final is not None:
        explanation = f"{acknowledged}, and the final read ended at {claim.offsets.stop}, before it"
        return Anomaly(AnomalyName.LOST_WRITE, explanation, unique(*write.events, end, claim.final))
    return None


def _lost_in_result(passed: Passed) -> Iterator[Anomaly]:
    record, write = passed.record, passed.record.write
    shown = record.shown_to(passed.reader.isolation)
    if shown or (write is not None and write.must_be_seen):
        known = "acknowledged" if record.acknowledged else f"read by {shown[0].reader}"
        held = f"value {record.value!r}, {known} at {record.place}"
        explanation = f"{held}, is not in {passed.reader}, which has everything up to there"
        evidence = shown[0].event if shown else None
        yield Anomaly(AnomalyName.LOST_WRITE, explanation, unique(record.acknowledged, evidence, *passed.jump))


def _claims(history: History) -> dict[Partition, _Claim]:
    sessions: dict[Partition, list[Session]] = defaultdict(list)
    for session in history.sessions:
        sessions[session.partition].append(session)
    return {partition: _claim(history, partition, those) for partition, those in sessions.items()}


def _claim(history: History, partition: Partition, sessions: list[Session]) -> _Claim:
    begin = 0
    if all(session.reader.reset_policy is not ResetPolicy.EARLIEST for session in sessions):
        begin = min((session.covers.start for session in sessions if session.covers), default=0)
    begin = max(begin, history.log_starts.get(partition, 0))
    furthest = max((read for session in sessions for read in session.reads), key=lambda read: read.place, default=None)
    stop = max([furthest.place.offset + 1 if furthest else 0, *(session.end or 0 for session in sessions)])
    return _Claim(range(begin, max(begin, stop)), furthest, history.final_ends.get(partition))
