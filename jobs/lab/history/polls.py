"""The order of what one consumer reads: never back, and over nothing that is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise

from sparkonce.jobs.lab.history.anomalies import Anomaly, AnomalyName, unique
from sparkonce.jobs.lab.history.events import Event
from sparkonce.jobs.lab.history.model import History, Write
from sparkonce.jobs.lab.history.passed import Passed


def non_monotonic_polls(history: History) -> Iterator[Anomaly]:
    """Find steps back within a session, one finding for each."""
    for session in history.sessions:
        for before, after in pairwise(session.reads):
            if after.place.offset <= before.place.offset:
                jump = f"{after.place} after offset {before.place.offset}"
                explanation = f"{session.reader} read {jump}, without a rebalance or a seek"
                yield Anomaly(AnomalyName.NON_MONOTONIC_POLL, explanation, (before, after))


def skipped_polls(passed: Iterable[Passed], explained: Container[Write | None]) -> Iterator[Anomaly]:
    """Find jumps over records that others saw, one finding for each jump; `explained` writes are left out."""
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
