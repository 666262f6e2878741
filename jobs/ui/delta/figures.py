"""What each of a query's newest batches has read and written, and how long it took: the charts of its page.

The same five as on Spark's page of a streaming query, as far as commits and checkpoints have them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sparkonce.jobs.shared import drawing
from sparkonce.jobs.shared.arguments import show_bytes
from sparkonce.jobs.ui.delta.checkpoints import CheckpointState
from sparkonce.jobs.ui.rendering import grouped, rate, took
from sparkonce.offset_store.record import CommittedBatch, PartitionKey, Writes

NEWEST = 60
"""The number of batches to show."""


@dataclass(slots=True)
class BatchFigures:
    """One batch, in all tables that it writes."""

    batch_id: int
    offsets: int = 0
    """Offsets that it covers: gaps and transaction markers too."""
    rows: int | None = None
    """Rows and dead letters; None if they were not counted."""
    written_bytes: int | None = None
    took_s: float | None = None
    """From its plan to its end; None if Spark's log of it is not kept, or it has not ended."""

    @property
    def per_second(self) -> float | None:
        """Offsets in each second of it."""
        return self.offsets / self.took_s if self.took_s else None


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of the batches."""

    name: str
    newest: str
    """That of the newest batch which has one."""
    most: str
    picture: str


def figures(commits: Iterable[CommittedBatch], checkpoint: CheckpointState | None) -> list[BatchFigures]:
    """Return the newest batches of one query, oldest first."""
    found, moved = dict[int, BatchFigures](), defaultdict[int, dict[PartitionKey, int]](dict)
    for commit in commits:
        batch = found.setdefault(commit.record.batch_id, BatchFigures(commit.record.batch_id))
        if Writes.OFFSETS in commit.writes:
            # Once for each partition: a table of dead letters has the offsets of the rows' table again.
            moved[batch.batch_id] |= {key: each.end - each.start for key, each in commit.record.moved.items()}
        counts = commit.record.counts
        if Writes.ROWS in commit.writes and counts is not None:
            batch.rows = (batch.rows or 0) + counts.rows + counts.dead_letters
            batch.written_bytes = (batch.written_bytes or 0) + counts.written_bytes
    for batch_id, batch in found.items():
        batch.offsets = sum(moved[batch_id].values())
        if checkpoint is not None and batch_id in checkpoint.planned and batch_id in checkpoint.done:
            batch.took_s = max(checkpoint.done[batch_id] - checkpoint.planned[batch_id], 0) / 1000
    return sorted(found.values(), key=lambda each: each.batch_id)[-NEWEST:]


def charts(batches: Sequence[BatchFigures]) -> list[Chart]:
    """Return a chart of each figure that some batch has."""
    shown: Sequence[tuple[str, Callable[[BatchFigures], float | None], Callable[[float], str]]] = (
        ("Offsets in a batch", lambda each: each.offsets, grouped),
        ("Offsets processed a second", lambda each: each.per_second, rate),
        ("Batch duration", lambda each: each.took_s, took),
        ("Rows written", lambda each: each.rows, grouped),
        ("Bytes written", lambda each: each.written_bytes, lambda size: show_bytes(int(size))),
    )
    return [made for name, value, text in shown if (made := _chart(name, batches, value, text)) is not None]


def _chart(
    name: str,
    batches: Sequence[BatchFigures],
    value: Callable[[BatchFigures], float | None],
    text: Callable[[float], str],
) -> Chart | None:
    known = [found for each in batches if (found := value(each)) is not None]
    if not known:
        return None
    most = max(known)
    boxes = [
        drawing.Mark("", f"batch {each.batch_id}: {text(found)}", at, at + 0.8, tall=found / (most or 1))
        for at, each in enumerate(batches)
        if (found := value(each)) is not None
    ]
    label = f"{name}, of {len(known)} batches up to {batches[-1].batch_id}; at most {text(most)}"
    picture = drawing.strip(boxes, 0, len(batches), label, "bars")
    return Chart(name, text(known[-1]), text(most), picture)
