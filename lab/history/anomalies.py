"""What can be wrong with a history: the names of the anomalies, and a finding.

The names follow Jepsen's workload for Kafka (jepsen.tests.kafka), whose documentation defines them over its own kind
of history; what each means here is said below and in `docs/histories.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lab.history.events import Event


class AnomalyName(StrEnum):
    """Every kind of finding, with what it means."""

    LOST_WRITE = "lost-write"
    """An acknowledged record that no reader saw although one went past it; or that a result table lacks."""
    DUPLICATE = "duplicate"
    """One value at two offsets, or twice in a result table."""
    ABORTED_READ = "aborted-read"
    """A `read_committed` reader saw a record of an aborted transaction, or any reader one whose send failed."""
    TORN_TRANSACTION = "torn-transaction"
    """Of one transaction, `read_committed` readers saw a part and went past the rest without seeing it."""
    NON_MONOTONIC_POLL = "non-monotonic-poll"
    """A consumer's offsets went back, or stood still, without a rebalance or a seek."""
    SKIPPED_POLL = "skipped-poll"
    """A consumer jumped over a record that another reader shows to be there."""
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    """One offset with two values; or a value acknowledged at one offset and read at another."""
    UNWRITTEN_READ = "unwritten-read"
    """A value was read that no producer sent. Judged only where every producer says before a send that it begins."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding: what is wrong in a sentence, and the events that show it."""

    name: AnomalyName
    explanation: str
    events: tuple[Event, ...]


def unique(*events: Event | None) -> tuple[Event, ...]:
    """Return the events once each, in the order given, without the Nones."""
    return tuple({event.where: event for event in events if event is not None}.values())


def named(events: Iterable[Event]) -> str:
    """Return the clients of some events, each once."""
    return ", ".join(sorted({event.client for event in events}))
