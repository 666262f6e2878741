"""The offset range of each partition that a batch covers, from Spark's own offset log.

The range comes from the checkpoint and not from the rows, so it is valid whatever the query does between source and
sink: filters, joins, unions, aggregations. Lines of ``kafka_once`` are marked; offsets of other sources mean nothing
outside this checkpoint, and only their presence is recorded. A query without a line of ours is still identified by
its query id, batch id and fingerprint, which survive a crash, but not the loss of the checkpoint.

The fingerprint covers what the batch reads: for our own sources the ranges that move (not the text of their lines,
which also has the checkpoint's origin), for others both lines unchanged, and for Spark's file source the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from sparkonce.exactly_once.checkpoint import Checkpoint, LoggedBatch
from sparkonce.exactly_once.errors import CheckpointError, MissingEntryError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import (
    OffsetFormatError,
    OffsetRange,
    SourceOffset,
    TopicPartition,
    batch_ranges,
    is_ours,
)
from sparkonce.offset_store.record import BatchRecord, PartitionKey


def _unknown(batch_id: int, known: Fingerprint) -> bool:  # noqa: ARG001
    """Return True: no earlier batch is known."""
    return True


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one query, in one attempt to write it."""

    record: BatchRecord
    stateful: bool
    foreign: bool = False
    """Whether the query also reads sources that are not ours: the record does not cover their rows."""
    is_one_of_all: bool = False
    """Whether every batch of the query has this target. Not if a function of foreachBatch may return early, or
    dead letters were disabled for a time."""
    read_before: Mapping[PartitionKey, int] = field(default_factory=dict, compare=False)
    """For each partition of which the query's checkpoint read records before this batch: where it began."""
    is_logged: Callable[[int, Fingerprint], bool] = field(default=_unknown, repr=False, compare=False)
    """Whether an earlier batch in the checkpoint has this fingerprint, if Spark still has its entry.

    Raises `CheckpointError` if it cannot be read.
    """

    def __str__(self) -> str:
        return f"batch {self.record.batch_id} of query {self.record.query_id} (appId {self.record.app_id})"

    @property
    def is_determined_by_offsets(self) -> bool:
        """Whether the offsets of our sources determine everything that it writes: no state, and no other sources."""
        return not (self.stateful or self.foreign)


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Spark's entry of a batch, written before it ran: what all of its targets share."""

    checkpoint: Checkpoint
    batch_id: int
    query_id: str
    stateful: bool
    inputs: _Inputs

    @classmethod
    def read(cls, checkpoint: Checkpoint, batch_id: int, *, reads_ranges: bool = False) -> BatchEntry:
        """Read the entry of a batch; ``reads_ranges`` if its rows may be ranges to read.

        Raises:
            CheckpointError: if the checkpoint lacks it, two sources of one name disagree, or the batch consists of
                ranges and nobody reads them.
        """
        found = _read(checkpoint, batch_id)
        if found.hands_over_ranges and not reads_ranges:
            raise CheckpointError(
                f"batch {batch_id} in {checkpoint.location} was planned with handOver=ranges: Spark has one row for "
                "each range to read, and no records. Only delta_once and kafka_once as the sink read them, and with no "
                "operator in between (select, filter, join, groupBy, …); for all else, set handOver=rows on the "
                "source. If that was changed just now: complete this batch with handOver=ranges first. If the table "
                "refuses that, as for a constraint: take a new checkpointLocation, with offsetStore and appId on the "
                "source, so that it begins where the table ends"
            )
        return cls(checkpoint, batch_id, checkpoint.query_id(), checkpoint.is_stateful(), found)

    @property
    def moved_topics(self) -> frozenset[str]:
        """The topics of which the batch reads anything."""
        return frozenset(tp.topic for (_, tp), extent in self.inputs.ranges.items() if extent.end > extent.start)

    def batch(self, app_id: str, attempt_id: str, topics: Set[str] | None = None) -> Batch:
        """Return the batch of an application; with ``topics``, the part of it that reads these."""
        found = self.inputs.part(topics)
        record = BatchRecord(
            app_id, self.query_id, self.batch_id, attempt_id, found.ranges, fingerprint=found.fingerprint
        )
        # Called by every check of the store, computed once.
        is_logged = cache(partial(_is_logged, self.checkpoint, self.stateful, topics))
        return Batch(record, self.stateful, found.is_foreign, read_before=found.read_before, is_logged=is_logged)


def read_batch(
    checkpoint: Checkpoint, batch_id: int, app_id: str, attempt_id: str, *, reads_ranges: bool = False
) -> Batch:
    """Return all of a batch. Raises CheckpointError as `BatchEntry.read`."""
    return BatchEntry.read(checkpoint, batch_id, reads_ranges=reads_ranges).batch(app_id, attempt_id)


def _is_logged(
    checkpoint: Checkpoint, stateful: bool, topics: Set[str] | None, batch_id: int, known: Fingerprint
) -> bool:
    try:
        return known.matches(_read(checkpoint, batch_id).part(topics).fingerprint, stateful=stateful)
    except MissingEntryError:
        pass
    try:  # Spark keeps one batch (`minBatchesToRetain`): the start of this one is gone, but not at its planning
        return known.has_clock(checkpoint.logged(batch_id).clock)
    except MissingEntryError:
        return True


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The contents of Spark's entry of a batch."""

    batch_id: int
    clock: Mapping[str, Any]
    ranges: dict[PartitionKey, OffsetRange]
    others: dict[str, list[Any]]
    """Both lines, and the files between them, of each source that is not ours."""
    hands_over_ranges: bool
    read_before: dict[PartitionKey, int]
    by_topic: Mapping[str, Sequence[PartitionKey]]
    """The keys of the ranges, by the names of their topics."""

    @property
    def is_foreign(self) -> bool:
        """Whether it also reads sources that are not ours."""
        return bool(self.others)

    @property
    def fingerprint(self) -> Fingerprint:
        """See `offset_store.fingerprint`."""
        moved = [
            [source, *tp, at.start, at.end] for (source, tp), at in sorted(self.ranges.items()) if at.end > at.start
        ]
        return Fingerprint.of([self.batch_id, moved, self.others], self.clock)

    def part(self, topics: Set[str] | None) -> _Inputs:
        """Return what is read of some topics; of all, if that is None."""
        if topics is None:
            return self
        keys = [key for topic in sorted(topics) for key in self.by_topic.get(topic, ())]
        ranges = {key: self.ranges[key] for key in keys}
        read_before = {key: self.read_before[key] for key in keys if key in self.read_before}
        return replace(self, ranges=ranges, read_before=read_before)


def _read(checkpoint: Checkpoint, batch_id: int) -> _Inputs:
    logged = checkpoint.logged(batch_id)
    before = checkpoint.logged(batch_id - 1) if batch_id > 0 else LoggedBatch({}, {}, 0)
    ends = _source_offsets(checkpoint, batch_id, logged.lines)
    starts = _source_offsets(checkpoint, batch_id - 1, before.lines)
    ranges = _ranges(checkpoint, batch_id, starts, ends)
    taken_over = before.lines.keys() - starts.keys()
    others = {
        key: [before.lines.get(key), line, checkpoint.files_between(key, before.lines.get(key), line)]
        for key, line in logged.lines.items()
        if key not in ends
    }
    hands_over_ranges = any(end.hands_over_ranges for end in ends.values())
    read_before = _read_before(ranges, ends, taken_over)
    by_topic: dict[str, list[PartitionKey]] = {}
    for key in ranges:
        by_topic.setdefault(key[1].topic, []).append(key)
    return _Inputs(batch_id, logged.clock, ranges, others, hands_over_ranges, read_before, by_topic)


def _read_before(
    ranges: Mapping[PartitionKey, OffsetRange], ends: Mapping[str, SourceOffset], taken_over: Set[str]
) -> dict[PartitionKey, int]:
    """Return where the checkpoint began to read partitions, if that is before the batch; 0 behind another source."""
    found: dict[PartitionKey, int] = {}
    for line, end in ends.items():
        for tp, position in end.positions.items():
            key, origin = (end.source, tp), 0 if line in taken_over else position.origin
            if key in ranges and ranges[key].start > origin:
                found[key] = min(origin, found.get(key, origin))
    return found


def _ranges(
    checkpoint: Checkpoint, batch_id: int, starts: Mapping[str, SourceOffset], ends: Mapping[str, SourceOffset]
) -> dict[PartitionKey, OffsetRange]:
    """Return the range of each partition that our sources read in a batch."""
    ranges: dict[PartitionKey, OffsetRange] = {}
    topic_ids: dict[tuple[str, str], str] = {}
    known = {(end.source, tp.topic): tp.topic_id for end in ends.values() for tp in end.positions if tp.topic_id}
    for key, end in ends.items():
        start = starts.get(key)
        if start is not None and start.source != end.source:
            raise CheckpointError(
                f"{checkpoint.location}: source {key} was named {start.source!r} in batch {batch_id - 1} and is "
                f"{end.source!r} in batch {batch_id}. Set the option source to its old name"
            )
        for found, extent in batch_ranges(start, end).items():
            # One of two sources that read a topic may have learned its id before the other has moved.
            tp = TopicPartition(
                found.topic, found.topic_id or known.get((end.source, found.topic), ""), found.partition
            )
            _check_one_topic(topic_ids, end.source, tp)
            _merge(ranges, (end.source, tp), extent)
    return ranges


def _source_offsets(checkpoint: Checkpoint, batch_id: int, lines: Mapping[str, str]) -> dict[str, SourceOffset]:
    try:
        return {key: SourceOffset.from_json(line) for key, line in lines.items() if is_ours(line)}
    except OffsetFormatError as error:
        raise CheckpointError(f"{checkpoint.location}/offsets/{batch_id}: {error}") from error


def _check_one_topic(topic_ids: dict[tuple[str, str], str], source: str, tp: TopicPartition) -> None:
    """Reject two topics of one name under one source's name: a commit's record has one key for both."""
    known = topic_ids.setdefault((source, tp.topic), tp.topic_id)
    if known != tp.topic_id:
        raise CheckpointError(
            f"two sources of this query are both named {source!r} and read a topic {tp.topic}, of different ids: "
            f"{known} and {tp.topic_id}. Two clusters with a topic of one name need sources of two names: name each "
            "with .option('source', '<name>') on the reader"
        )


def _merge(ranges: dict[PartitionKey, OffsetRange], key: PartitionKey, extent: OffsetRange) -> None:
    """Add one source's range; a self-union has the same range twice, which counts once."""
    known = ranges.setdefault(key, extent)
    if known != extent:
        source, tp = key
        raise CheckpointError(
            f"two sources of this query are both named {source!r} and read different parts of {tp}: "
            f"[{known.start}, {known.end}) and [{extent.start}, {extent.end}). Their offsets cannot share one name: "
            "name each with .option('source', '<name>') on the reader"
        )
