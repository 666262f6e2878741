"""Which checkpoint a query begins with, since tables, and not checkpoints, hold how far they are.

A checkpoint is left for a new one, in a folder with the next number, once its query could not go on with it: a table
was written by another query of the ingestion since, or is no longer there. The new one begins where the tables end. Old
ones are never used again, and never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

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
    """Whether a query can go on with a checkpoint: no other query has written what it has planned, or anything past it.

    Nor is a table of many to get its part of the last batch if it has nothing of what is before the checkpoint, as if
    all began there: such a table was dropped.
    """
    opened = Checkpoint.open(checkpoint, storage)
    done = {end.source: end.positions for end in committed(checkpoint, storage)}
    for end in _last_in(checkpoint, storage, "offsets"):
        planned = opened.query_id(), opened.latest_batch_id()
        before = done.get(end.source, {})
        by_topic: dict[str, list[TopicPartition]] = {}
        for tp in end.positions:
            by_topic.setdefault(tp.topic, []).append(tp)
        lacking: list[TopicPartition] = []
        for topic, own in by_topic.items():
            reached = {tp: before[tp].next if tp in before else end.positions[tp].origin for tp in own}
            ends = {tp: end.positions[tp].next for tp in own}
            has_moved = any(ends[tp] > reached[tp] for tp in own)
            store = store_of(topic)
            try:
                stored = {} if store is None else store.read(end.source, own)
                if store is not None and _is_anothers(store, stored, reached, ends, *planned):
                    return False
            except OffsetStoreError:
                continue
            lacking += [tp for tp in own if has_moved and tp not in stored and reached[tp]]
        if begun_later is not None and lacking and not {*lacking}.isdisjoint(begun_later(end)):
            return False
    return True


def _is_anothers(
    store: OffsetStore,
    stored: Mapping[TopicPartition, int],
    reached: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    query_id: str,
    batch_id: int,
) -> bool:
    """Whether another query has written records of a table's part of a planned batch, or past it.

    The part is from ``reached`` to ``ends``.
    """
    if any(at > reached[tp] and at != ends[tp] for tp, at in stored.items()):
        return True
    there = {stored.get(tp) == end for tp, end in ends.items() if end > reached[tp]}
    if there != {True}:
        return len(there) > 1  # a query writes all of its part at once
    last = store.snapshot().last_batch(query_id)
    return last is not None and last < batch_id  # None: its first batch there, which it then skips


def was_shared(checkpoints: str, storage: Mapping[str, str], prefix: str) -> bool:
    """Whether any shared query has had a checkpoint in this folder. Raises CheckpointError if it cannot be read."""
    return any(info.base_name.startswith(prefix) for info in Checkpoint.open(checkpoints, storage).entries("."))


def _last_in(checkpoint: str, storage: Mapping[str, str], folder: str) -> list[SourceOffset]:
    opened = Checkpoint.open(checkpoint, storage)
    numbers = [int(info.base_name) for info in opened.entries(folder) if info.base_name.isdecimal()]
    lines = opened.logged(max(numbers)).lines.values() if numbers else ()
    return [SourceOffset.from_json(line) for line in lines if is_ours(line)]
