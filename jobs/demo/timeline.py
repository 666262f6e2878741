"""What happened when: the events of one demo, gathered as they come, with the commits read from the Delta log."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from sparkonce.offset_store.record import read_history


@dataclass(frozen=True, slots=True)
class Event:
    """A moment (``start_s`` alone) or a span, in seconds since the demo began, on one lane of the picture."""

    lane: str
    kind: str
    label: str
    start_s: float
    end_s: float | None = None
    sign: str = ""
    """A word or two to stand beside a moment in the picture."""


@dataclass(slots=True)
class Timeline:
    """Collects events; times are the wall clock's, so that the table's own commit times can stand beside them."""

    began_s: float = field(default_factory=time.time)
    events: list[Event] = field(default_factory=list)

    def now(self) -> float:
        """Return the seconds since the demo began."""
        return time.time() - self.began_s

    def moment(self, lane: str, kind: str, label: str, sign: str = "") -> None:
        """Note something that happens now."""
        self.events.append(Event(lane, kind, label, self.now(), sign=sign))

    def span(self, lane: str, kind: str, label: str, start_s: float) -> None:
        """Note something that began at ``start_s`` and ends now."""
        self.events.append(Event(lane, kind, label, start_s, self.now()))

    def add_commits(self, table: Path) -> int:
        """Add every commit of the table; return how many there are."""
        history = DeltaTable(table).history()
        batches = {batch.version: batch.record for batch in read_history(history)}
        for entry in reversed(history):
            record = batches.get(entry["version"])
            label = f"version {entry['version']}: {entry['operation'].lower()}"
            if record is not None:
                records = sum(extent.end - extent.start for extent in record.ranges.values())
                label = f"version {entry['version']}: batch {record.batch_id}, {records:,} records"
            self.events.append(Event("commits", "commit", label, entry["timestamp"] / 1000 - self.began_s))
        return len(history)
