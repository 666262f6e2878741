"""Check a history: all anomalies, explained, and what could not be checked.

    anomalies = check_history(read_history(["producer.jsonl", "consumer.jsonl"]))

The functions are pure: the same events give the same findings. Time and memory grow with the number of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.history.anomalies import Anomaly
from lab.history.events import Event
from lab.history.lost_writes import lost_writes
from lab.history.model import History, passed_records
from lab.history.offsets import (
    duplicates,
    inconsistent_offsets,
    non_monotonic_polls,
    skipped_polls,
    unwritten_reads,
)
from lab.history.transactions import aborted_reads, torn_transactions
from lab.history.understanding import understand


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a history."""

    anomalies: tuple[Anomaly, ...]
    events: int
    sent: int
    acknowledged: int
    """Records that every reader must see: acknowledged, and committed if they belong to a transaction."""
    read: int
    """Values that some reader saw."""
    unknown: int
    """Records of unknown outcome: they may be in the log or not."""
    unknown_read: int
    """Those of them that some reader saw; the rest is an upper bound of losses beside the findings."""


def check_history(events: Iterable[Event]) -> list[Anomaly]:
    """Find every anomaly of a history.

    Raises:
        HistoryError: if the events contradict each other so that no verdict is possible.
    """
    return list(judge(events).anomalies)


def judge(events: Iterable[Event]) -> Verdict:
    """Find every anomaly of a history, and count its records.

    Raises:
        HistoryError: if the events contradict each other so that no verdict is possible.
    """
    history = understand(events)
    unknown = [write for write in history.writes.values() if write.outcome_unknown]
    return Verdict(
        anomalies=_anomalies(history),
        events=history.events,
        sent=len(history.writes),
        acknowledged=sum(write.must_be_seen for write in history.writes.values()),
        read=len(history.sightings),
        unknown=len(unknown),
        unknown_read=sum(bool(history.sightings_of(write)) for write in unknown),
    )


def _anomalies(history: History) -> tuple[Anomaly, ...]:
    passed = list(passed_records(history))
    torn, explained = torn_transactions(history, passed)
    return (
        *lost_writes(history, passed, explained),
        *duplicates(history),
        *aborted_reads(history),
        *torn,
        *non_monotonic_polls(history),
        *skipped_polls(passed, explained),
        *inconsistent_offsets(history),
        *unwritten_reads(history),
    )
