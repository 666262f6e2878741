"""The lag in the progress of a batch: two offsets for each partition, the end of the batch and the latest one.

Both are JSON text in the progress, of ``kafka_once`` (`offset_store.offsets`) or in the form of Spark's own connector,
``{"topic":{"0":23}}``. Sources of other kinds have rows and no partitions. The latest offset is from when the batch was
planned: records that arrived while it ran are in the next one's progress. No state here, and no clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sparkonce.offset_store.offsets import MARK, SourceOffset

Slot = tuple[str, int]
"""A topic's name, and a partition."""

SPARKS_NAME = "kafka"
"""What a source is called whose offsets hold no name: Spark's own connector."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition after a batch: the offset to read next, and the latest one when the batch was planned."""

    topic: str
    partition: int
    next: int
    latest: int | None
    """None where the source reports no latest offset."""

    @property
    def records(self) -> int:
        """How many offsets lie between the two: gaps and transaction markers count as records."""
        return 0 if self.latest is None else max(self.latest - self.next, 0)


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source of a query after a batch; ``position`` is its number among the query's sources, from 0."""

    position: int
    name: str
    description: str
    rows: int
    partitions: tuple[PartitionLag, ...]
    min_offsets_behind_latest: int = 0
    max_offsets_behind_latest: int = 0
    offsets_behind_latest: int = 0
    """The sum over all partitions, those in ``partitions_left_out`` included."""
    partition_count: int = 0
    """Those that have a latest offset."""
    partitions_left_out: int = 0
    """Of a source with very many partitions: how many are in the sums only."""

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that Spark's own connector adds to the progress, under its names; empty without partitions."""
        if not self.partition_count:
            return {}
        return {
            "minOffsetsBehindLatest": self.min_offsets_behind_latest,
            "maxOffsetsBehindLatest": self.max_offsets_behind_latest,
            "avgOffsetsBehindLatest": self.offsets_behind_latest / self.partition_count,
        }


def source_lag(position: int, source: Any) -> SourceLag:
    """Read one entry of a progress' ``sources``; offsets that cannot be read count as none."""
    name, reached = read_offsets(source.endOffset)
    _, latest = read_offsets(source.latestOffset)
    partitions = tuple(
        PartitionLag(topic, partition, offset, latest.get((topic, partition)))
        for (topic, partition), offset in sorted(reached.items())
    )
    behind = [each.records for each in partitions if each.latest is not None]
    return SourceLag(
        position=position,
        name=name or source.description,
        description=source.description,
        rows=source.numInputRows or 0,
        partitions=partitions,
        min_offsets_behind_latest=min(behind, default=0),
        max_offsets_behind_latest=max(behind, default=0),
        offsets_behind_latest=sum(behind),
        partition_count=len(behind),
    )


def read_offsets(text: str | None) -> tuple[str, dict[Slot, int]]:
    """Return the source's name in an offset's text, and the next offset of each partition; nothing for other kinds."""
    try:
        document = json.loads(text or "null")
        if not isinstance(document, dict):
            return "", {}
        if MARK in document:
            offset = SourceOffset.from_json(text or "")
            return offset.source, {(tp.topic, tp.partition): at.next for tp, at in offset.positions.items()}
        found = {(topic, int(number)): at for topic, numbers in document.items() for number, at in numbers.items()}
    except (ValueError, AttributeError):
        return "", {}
    return (SPARKS_NAME, found) if found and all(type(at) is int for at in found.values()) else ("", {})
