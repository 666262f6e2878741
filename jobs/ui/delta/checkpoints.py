"""The state of a query's checkpoint: planned and finished batches, their times, and their offsets.

Spark writes ``offsets/<N>`` when it has planned batch N, and ``commits/<N>`` when the sink has returned; it keeps the
newest hundred. This module only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.connectors.lag.state import Slot, read_offsets
from sparkonce.exactly_once.checkpoint import Checkpoint, LoggedBatch
from sparkonce.offset_store.offsets import OffsetFormatError, SourceOffset, is_ours

PLANNED, DONE = "offsets", "commits"
TIME = "batchTimestampMs"
"""The field of a batch's entry with its planning time."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """One source of a query, at the end of the newest planned batch."""

    name: str
    """Its option ``source``; "" for sources of other kinds."""
    description: str
    next: Mapping[Slot, int]
    """The next offset of each topic and partition; empty for other kinds."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic name, if the source stores names."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The state of a checkpoint."""

    place: str
    query_id: str
    planned: Mapping[int, int]
    """When each of the newest batches was planned, in ms since 1970."""
    done: Mapping[int, int]
    """When Spark recorded each batch as finished."""
    sources: tuple[SourceState, ...] = ()
    is_stateful: bool = False

    @property
    def newest(self) -> int | None:
        """The newest planned batch; None if there is none."""
        return max(self.planned, default=None)

    @property
    def is_at_work(self) -> bool:
        """Whether its newest batch is planned and not finished: it is running, or its driver has died."""
        return self.newest is not None and self.newest not in self.done


def read_checkpoint(place: str, storage_options: Mapping[str, str]) -> CheckpointState:
    """Read a checkpoint. Raises CheckpointError if it is not a checkpoint, or cannot be read."""
    checkpoint = Checkpoint.open(place, storage_options if "://" in place else None)
    query_id = checkpoint.query_id()
    planned, done = _times(checkpoint, PLANNED), _times(checkpoint, DONE)
    if not planned:
        return CheckpointState(place, query_id, {}, done, is_stateful=checkpoint.is_stateful())
    newest = max(planned)
    logged = checkpoint.logged(newest)
    planned[newest] = _planned_at(logged, planned[newest])
    return CheckpointState(place, query_id, planned, done, _sources(logged), checkpoint.is_stateful())


def _times(checkpoint: Checkpoint, folder: str) -> dict[int, int]:
    return {
        int(info.base_name): (info.mtime_ns or 0) // 1_000_000
        for info in checkpoint.entries(folder)
        if info.base_name.isdecimal()
    }


def _planned_at(logged: LoggedBatch, otherwise: int) -> int:
    found = logged.clock.get(TIME)
    return found if type(found) is int and found > 0 else otherwise


def _sources(logged: LoggedBatch) -> tuple[SourceState, ...]:
    found = []
    for key, line in logged.lines.items():
        name, offsets = read_offsets(line)
        topic_ids: dict[str, str] = {}
        if is_ours(line):
            try:
                topic_ids = {tp.topic: tp.topic_id for tp in SourceOffset.from_json(line).positions}
            except OffsetFormatError:
                topic_ids = {}
        kind = "kafka_once" if topic_ids else "Kafka, by Spark's connector" if offsets else "another kind"
        found.append(SourceState(name, f"source {key}: {kind}", offsets, topic_ids))
    return tuple(found)
