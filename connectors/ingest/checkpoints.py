"""Which checkpoint a query begins with, since tables, and not checkpoints, hold how far they are.

A checkpoint is left for a new one, in a folder with the next number, once its query could not go on with it: a table
was written by another query of the ingestion since, or is no longer there. The new one begins where the tables end. Old
ones are never used again, and never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from sparkonce.connectors.ingest.routing import Flow
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.offset_store import OffsetStore, OffsetStoreError
from sparkonce.offset_store.offsets import SourceOffset, TopicPartition, is_ours


def committed(checkpoint: str, storage: Mapping[str, str]) -> list[SourceOffset]:
    """Return where our sources stand after the last batch that Spark has committed; none before the first.

    Raises:
        CheckpointError: if it cannot be read.
    """
    return _last_in(checkpoint, storage, "commits")


def usable(
    flow: Flow,
    storage: Mapping[str, str],
    store_of: Callable[[str], OffsetStore | None],
    begun_later: Callable[[SourceOffset], Collection[TopicPartition]] | None = None,
) -> Flow:
    """Return a flow with the first checkpoint that its query can go on with, or a new one.

    ``store_of`` returns where the offsets of a topic are stored. Of a query of many tables, ``begun_later`` returns the
    partitions whose logs have records before where its checkpoint began.

    Raises:
        CheckpointError: if a checkpoint cannot be read.
    """
    if Checkpoint.open(flow.checkpoint, storage).is_stateful():  # begun anew, it would lack its state
        return flow
    number, checkpoint = 1, flow.checkpoint
    while not _can_go_on(checkpoint, storage, store_of, begun_later):
        number += 1
        checkpoint = f"{flow.checkpoint}~{number}"  # no topic has this in its name
    return replace(flow, checkpoint=checkpoint, sink={**flow.sink, "checkpointLocation": checkpoint})


def _can_go_on(
    checkpoint: str,
    storage: Mapping[str, str],
    store_of: Callable[[str], OffsetStore | None],
    begun_later: Callable[[SourceOffset], Collection[TopicPartition]] | None,
) -> bool:
    """Whether a query can go on with a checkpoint, whose last batch it may have to repeat: as `_Repeat` says of tables.

    Nor is a table of many to get its part of that batch if it has nothing of what is before the checkpoint, as if all
    began there: such a table was dropped.
    """
    opened = Checkpoint.open(checkpoint, storage)
    done = {end.source: end.positions for end in committed(checkpoint, storage)}
    for end in _last_in(checkpoint, storage, "offsets"):
        by_topic: dict[str, list[TopicPartition]] = {}
        for tp in end.positions:
            by_topic.setdefault(tp.topic, []).append(tp)
        lacking: list[TopicPartition] = []
        for topic, own in by_topic.items():
            before = done.get(end.source, {})
            reached = {tp: before[tp].next if tp in before else end.positions[tp].origin for tp in own}
            table = _Repeat(reached, {tp: end.positions[tp].next for tp in own})
            store = store_of(topic)
            try:
                stored = {} if store is None else store.read(end.source, own)
                last = store.snapshot().last_batch(opened.query_id()) if store is not None and stored else None
            except OffsetStoreError:
                continue
            if table.was_written_by_another(stored, last, opened.latest_batch_id()):
                return False
            lacking += [tp for tp in own if table.moved and tp not in stored and reached[tp]]
        if begun_later is not None and lacking and not {*lacking}.isdisjoint(begun_later(end)):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A table's part of the last planned batch, which its query repeats if it is not committed."""

    reached: Mapping[TopicPartition, int]
    """Where it begins."""
    ends: Mapping[TopicPartition, int]

    @property
    def moved(self) -> list[TopicPartition]:
        """The partitions of which it has records."""
        return [tp for tp, end in self.ends.items() if end > self.reached[tp]]

    def was_written_by_another(self, stored: Mapping[TopicPartition, int], last: int | None, batch_id: int) -> bool:
        """Whether another query has written records of it, or past it; ``last`` is this query's last batch there."""
        if any(at > self.reached[tp] and at != self.ends[tp] for tp, at in stored.items()):
            return True
        there = {stored.get(tp) == self.ends[tp] for tp in self.moved}
        # A query writes all of its part at once. The first of a query may be there by another: then it is skipped.
        return len(there) > 1 or (there == {True} and last is not None and last < batch_id)


def was_shared(checkpoints: str, storage: Mapping[str, str], prefix: str) -> bool:
    """Whether any shared query has had a checkpoint in this folder. Raises CheckpointError if it cannot be read."""
    return any(info.base_name.startswith(prefix) for info in Checkpoint.open(checkpoints, storage).entries("."))


def _last_in(checkpoint: str, storage: Mapping[str, str], folder: str) -> list[SourceOffset]:
    opened = Checkpoint.open(checkpoint, storage)
    numbers = [int(info.base_name) for info in opened.entries(folder) if info.base_name.isdecimal()]
    lines = opened.logged(max(numbers)).lines.values() if numbers else ()
    return [SourceOffset.from_json(line) for line in lines if is_ours(line)]
