"""The interface of offset stores: return a consistent snapshot, and commit against that same snapshot.

A `Snapshot` is the store at one version. A decision made from a snapshot must be committed through the same snapshot:
the commit is rejected if anything that it would move has been moved since. This is the entire concurrency control:
reading from one snapshot and committing through another would lose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import BatchRecord, CommittedBatch, PartitionKey, Writes

FileT = TypeVar("FileT")


@dataclass(frozen=True, slots=True)
class Commit(Generic[FileT]):
    """One atomic write: its batch, its kind, and the files of its rows."""

    record: BatchRecord
    writes: Writes
    files: Sequence[FileT] = ()
    is_second: bool = False
    """Whether the other half of the batch is already committed: it must not have been reverted by a manual change."""
    in_sequence: bool = False
    """Whether the number of the next batch is stored too, since a restore removed batches of the query."""
    is_first: bool = False
    """Whether the application writes a partition for the first time into this table of rows: it must conflict with
    such a commit of another."""


class Snapshot(Protocol):
    """The store at one version."""

    @property
    def version(self) -> int:
        """The version of all results here."""

    def last_batch(self, query_id: str) -> int | None:
        """Return the last batch id written by a query, or None if it never wrote."""

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """Return the fingerprint that a query stored for a batch; None if none is kept.

        Only for batch ids up to the last one, and less than `RING` below it: older ones are overwritten.
        """

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Return the stored next offset of each partition that has one."""

    def commit(self, commit: Commit[FileT]) -> None:
        """Write all of ``commit`` or nothing.

        Raises:
            CommitConflictError: if anything that it moves was moved after this snapshot.
        """

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """Return the records of the newest ``limit`` commits that are still kept, newest first."""


class OffsetStore(Protocol):
    """A place that stores offsets, as one application (``appId``) sees it."""

    def read(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset to read next for each of ``partitions`` that has one stored; {} if the store is empty.

        Raises:
            OffsetStoreError: if the store cannot be read.
        """

    def epochs(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leader epoch of the record before each stored offset, where it is known.

        Call it after `read`: an epoch that is newer than its offset is an upper bound, which hides no record.

        Raises:
            OffsetStoreError: if the store cannot be read.
        """

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the store as it is now.

        Raises:
            StoreMissingError: if there is no store yet.
            OffsetStoreError: if it cannot be read.
        """

    def __str__(self) -> str:
        """Name the store as the option ``offsetStore`` does, for messages."""


def read_offsets(snapshot: Snapshot, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the stored next offsets of one source's partitions."""
    stored = snapshot.next_offsets((source, tp) for tp in partitions)
    return {tp: offset for (_, tp), offset in stored.items()}
