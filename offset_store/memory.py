"""A store in memory, with the same conflict rules as a Delta table: for tests and experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.notebook import store_table
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import Commit, CommittedBatch, FileT, PartitionKey
from sparkonce.offset_store.store import OffsetStore, Snapshot, read_offsets
from sparkonce.offset_store.txn_ids import (
    query_txn_id,
    stored_epochs,
    stored_fingerprint,
    stored_offset,
    transactions_onto,
)


@dataclass(slots=True)
class MemoryOffsetStore(OffsetStore):
    """Commits in a list; the version is the position in the list."""

    app_id: str
    now_ms: Callable[[], int] = now_ms
    commits: list[Commit[Any]] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def read(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.read`."""
        return read_offsets(self.snapshot(), source, partitions)

    def epochs(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.epochs`."""
        found = self.snapshot().epochs((source, tp) for tp in partitions)
        return {tp: epoch for (_, tp), epoch in found.items()}

    def snapshot(self) -> MemorySnapshot:
        """See `OffsetStore.snapshot`."""
        return MemorySnapshot(self, len(self.commits))

    def __str__(self) -> str:
        return "memory"

    def _repr_html_(self) -> str:
        return store_table(self)


@dataclass(frozen=True, slots=True)
class MemorySnapshot(Snapshot):
    """The first ``version`` commits of a `MemoryOffsetStore`."""

    store: MemoryOffsetStore
    version: int = field()

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`."""
        return self._txns().get(query_txn_id(self.store.app_id, query_id))

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`."""
        return stored_fingerprint(self._txns().get, self.store.app_id, query_id, batch_id)

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`."""
        txns = self._txns()
        looked_up = {key: stored_offset(txns.get, self.store.app_id, key) for key in keys}
        return {key: offset for key, offset in looked_up.items() if offset is not None}

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`."""
        return stored_epochs(self._txns().get, self.store.app_id, keys)

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`."""
        moved_since = {txn_id for later in _moves(self.store.commits)[self.version :] for txn_id in later}
        if moved_since & transactions_onto(self._txns().get, commit).keys():
            raise CommitConflictError("another writer moved the same offsets or wrote the same batch")
        self.store.commits.append(commit)
        self.store.times_ms.append(self.store.now_ms())

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`."""
        kept = list(zip(range(self.version), self.store.times_ms, self.store.commits, strict=False))
        newest_first = kept[::-1][:limit]
        return [CommittedBatch(version, at_ms, commit.writes, commit.record) for version, at_ms, commit in newest_first]

    def _txns(self) -> dict[str, int]:
        return {txn_id: at for moved in _moves(self.store.commits[: self.version]) for txn_id, at in moved.items()}


def _moves(commits: Iterable[Commit[Any]]) -> list[dict[str, int]]:
    """Return the transaction ids that each commit moved, oldest first."""
    txns: dict[str, int] = {}
    moves = []
    for commit in commits:
        moves.append(transactions_onto(txns.get, commit))
        txns.update(moves[-1])
    return moves
