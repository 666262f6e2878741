"""Which checkpoint a query begins with, since tables, and not checkpoints, hold how far they are.

A checkpoint is left for a new one, in a folder with the next number, once its query could not go on with it: a topic
that it has read is gone, or its table was written by another query of the ingestion since. The new one begins where the
tables end. Old ones are never used again, and never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from sparkonce.connectors.ingest.routing import Flow
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.offset_store import open_store
from sparkonce.offset_store.offsets import SourceOffset, is_ours


def committed(checkpoint: str, storage: Mapping[str, str]) -> list[SourceOffset]:
    """Return where our sources stand after the last batch that Spark has committed; none before the first.

    Raises:
        CheckpointError: if it cannot be read.
    """
    return _last_in(checkpoint, storage, "commits")


def planned(checkpoint: str, storage: Mapping[str, str]) -> list[SourceOffset]:
    """Return where our sources stand after the last batch that was planned. Raises CheckpointError as `committed`."""
    return _last_in(checkpoint, storage, "offsets")


def usable(flow: Flow, storage: Mapping[str, str], existing: Collection[str]) -> Flow:
    """Return a flow with the checkpoint that its query can begin with. Raises CheckpointError if one is unreadable."""
    topics = set(existing)
    if not flow.is_shared or "subscribePattern" not in flow.source:
        return flow
    return _first(flow, storage, lambda ends: all(tp.topic in topics for end in ends for tp in end.positions))


def usable_again(flow: Flow, storage: Mapping[str, str]) -> Flow:
    """Return a flow of one table, which a shared query may have written, with a checkpoint that is not behind it.

    Raises:
        CheckpointError, OffsetStoreError: if a checkpoint, or the table, cannot be read.
    """
    if flow.path is None or Checkpoint.open(flow.checkpoint, storage).is_stateful():
        return flow
    store = open_store(f"delta:{flow.path}", flow.app_id, storage or None)

    def is_not_behind(ends: list[SourceOffset]) -> bool:
        return not any(
            at > end.positions[tp].next for end in ends for tp, at in store.read(end.source, end.positions).items()
        )

    return _first(flow, storage, is_not_behind)


def was_shared(checkpoints: str, storage: Mapping[str, str], prefix: str) -> bool:
    """Whether any shared query has had a checkpoint in this folder. Raises CheckpointError if it cannot be read."""
    return any(info.base_name.startswith(prefix) for info in Checkpoint.open(checkpoints, storage).entries("."))


def _first(flow: Flow, storage: Mapping[str, str], is_usable: Callable[[list[SourceOffset]], bool]) -> Flow:
    number, checkpoint = 1, flow.checkpoint
    while not is_usable(planned(checkpoint, storage)):
        number += 1
        checkpoint = f"{flow.checkpoint}-{number}"
    return replace(flow, checkpoint=checkpoint, sink={**flow.sink, "checkpointLocation": checkpoint})


def _last_in(checkpoint: str, storage: Mapping[str, str], folder: str) -> list[SourceOffset]:
    opened = Checkpoint.open(checkpoint, storage)
    numbers = [int(info.base_name) for info in opened.entries(folder) if info.base_name.isdecimal()]
    lines = opened.logged(max(numbers)).lines.values() if numbers else ()
    return [SourceOffset.from_json(line) for line in lines if is_ours(line)]
