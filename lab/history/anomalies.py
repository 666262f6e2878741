"""The kinds of anomalies in a history, and a finding.

The names follow Jepsen's workload for Kafka (jepsen.tests.kafka), whose documentation defines them over its own kind
of history; their definitions here are below and in `docs/internals/histories.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lab.history.events import Event


class AnomalyName(StrEnum):
    """Every kind of finding, with what it means."""

    LOST_WRITE = "lost-write"
    """An acknowledged record that no reader saw although one read past it; or that a result table lacks."""
    DUPLICATE = "duplicate"
    """One value at two offsets, or twice in a result table."""
    ABORTED_READ = "aborted-read"
    """A `read_committed` reader saw a record of an aborted transaction, or any reader one whose send failed."""
    TORN_TRANSACTION = "torn-transaction"
    """Of one transaction, `read_committed` readers saw a part and read past the rest without seeing it."""
    NON_MONOTONIC_POLL = "non-monotonic-poll"
    """A consumer's position went back, or stayed, without a rebalance or a seek."""
    SKIPPED_POLL = "skipped-poll"
    """A consumer skipped a record that another reader proves to exist."""
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    """One offset with two values; or a value acknowledged at one offset and read at another."""
    UNWRITTEN_READ = "unwritten-read"
    """A value was read that no producer sent. Checked only if every producer announces its sends."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding: a sentence, and the events that prove it."""

    name: AnomalyName
    explanation: str
    events: tuple[Event, ...]


def unique(*events: Event | None) -> tuple[Event, ...]:
    """Return the distinct events, in the order given, without Nones."""
    return tuple({event.where: event for event in events if event is not None}.values())


def named(events: Iterable[Event]) -> str:
    """Return the clients of some events, each once."""
    return ", ".join(sorted({event.client for event in events}))
