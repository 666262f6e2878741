"""Which commits cover an offset: the ranges of all commits read, by partition.

The audit only stores the end of each chain. To find the batch of one record, and other commits that cover it,
the ranges themselves are stored, in arrays: 25 bytes per partition of a commit, up to `MAX_RANGES`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import CommittedBatch, PartitionKey, Writes

MAX_RANGES = 4_000_000
"""A hundred megabytes. Ranges of later commits are dropped: `RangeIndex.complete_to` is the last complete version."""

Owner = tuple[str, PartitionKey]
"""An application, and a partition of one of its sources."""


@dataclass(frozen=True, slots=True)
class Covering:
    """One commit that covers an offset."""

    version: int
    app_id: str
    source: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    writes: Writes

    @property
    def has_rows(self) -> bool:
        """Whether the commit has the rows of the range."""
        return Writes.ROWS in self.writes

    @property
    def has_offsets(self) -> bool:
        """Whether the commit stores the end of the range."""
        return Writes.OFFSETS in self.writes

    @property
    def owner(self) -> Owner:
        """The owner of the range."""
        return self.app_id, (self.source, TopicPartition(self.topic, self.topic_id, self.partition))


@dataclass(frozen=True, slots=True)
class Restore:
    """A commit that reverted the table's rows to an older version."""

    version: int
    to: int | None
    """None if unknown."""
    with_offsets: bool
    """Whether it also reverted the offsets; Delta's own does not."""

    def undoes(self, covering: Covering) -> bool:
        """Whether a commit was reverted, or may have been."""
        return covering.version < self.version and (self.to is None or self.to < covering.version)


@dataclass(slots=True)
class _Ranges:
    """The ranges of one owner, in the order of versions."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    versions: array[int] = field(default_factory=lambda: array("q"))
    writes: array[int] = field(default_factory=lambda: array("b"))


@dataclass(slots=True)
class RangeIndex:
    """The ranges of the commits of batches that were added, oldest first."""

    most: int = MAX_RANGES
    complete_to: int | None = None
    """The last complete version, once the index is full; None before."""
    restores: list[Restore] = field(default_factory=list)
    """Commits that reverted rows, in the order of versions."""
    _owners: dict[Owner, _Ranges] = field(default_factory=dict)
    _size: int = 0

    def add(self, batch: CommittedBatch) -> None:
        """Add a commit's ranges."""
        moved = batch.record.moved
        if self.complete_to is not None:
            return
        if self._size + len(moved) > self.most:
            self.complete_to = batch.version - 1
            return
        self._size += len(moved)
        for key, extent in moved.items():
            ranges = self._owners.setdefault((batch.record.app_id, key), _Ranges())
            ranges.starts.append(extent.start)
            ranges.ends.append(extent.end)
            ranges.versions.append(batch.version)
            ranges.writes.append(batch.writes.value)

    def is_undone(self, covering: Covering) -> bool:
        """Whether restores with offsets revert a commit; one may bring back what an earlier one reverted."""
        newest: int | None = None  # the versions to which the table is restored
        for restore in reversed([each for each in self.restores if each.with_offsets]):
            if newest is not None and restore.version > newest:
                continue  # it was reverted itself
            if covering.version > restore.version:
                break
            if restore.to is None:
                return True
            newest = restore.to
        return newest is not None and covering.version > newest

    def owners(self) -> list[Owner]:
        """Return the owners of ranges."""
        return sorted(self._owners)

    def covering(self, topic: str | None, partition: int, offset: int) -> list[Covering]:
        """Return the commits that cover an offset of a topic, by its name or id; None for any topic."""
        return sorted(
            (
                found
                for owner in self._owners
                if owner[1][1].partition == partition and topic in (None, owner[1][1].topic, owner[1][1].topic_id)
                for found in self.overlapping(owner, offset, offset + 1)
            ),
            key=lambda each: (each.version, each.app_id, each.source),
        )

    def of_others(self, owner: Owner, start: int, end: int) -> Iterator[Covering]:
        """Yield the commits of other applications or sources that cover some of the same offsets of the same topic."""
        tp = owner[1][1]
        for other in self._owners:
            also = other[1][1]
            by_name = not (tp.topic_id and also.topic_id)
            is_same = also.topic == tp.topic if by_name else also.topic_id == tp.topic_id
            if is_same and also.partition == tp.partition and (other[0], other[1][0]) != (owner[0], owner[1][0]):
                yield from self.overlapping(other, start, end)

    def overlapping(self, owner: Owner, start: int, end: int) -> Iterator[Covering]:
        """Yield the commits that cover some of an owner's offsets ``[start, end)``, in the order of versions."""
        ranges, (app_id, (source, tp)) = self._owners[owner], owner
        starts, ends = np.array(ranges.starts), np.array(ranges.ends)  # copies: a shared array cannot grow
        for at in np.flatnonzero((starts < end) & (start < ends)):
            yield Covering(
                ranges.versions[at], app_id, source, tp.topic, tp.topic_id, tp.partition, ranges.starts[at],
                ranges.ends[at], Writes(ranges.writes[at]),
            )  # fmt: skip
