"""What every place where offsets live must do: show one consistent picture, and commit against that very picture.

A `Snapshot` is a picture of the store at one moment. Whoever decides from a snapshot commits through the same
snapshot: a commit is refused if anything that it would move has been moved since. That is the whole of the
concurrency control, so comparing with one picture and committing through another would lose it.
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
    """One atomic write: the batch it belongs to, what it holds, and the files of its rows."""

    record: BatchRecord
    writes: Writes
    files: Sequence[FileT] = ()
    is_second: bool = False
    """Whether the other half of the batch stands in a commit of its own already: a hand must not have undone it."""
    in_sequence: bool = False
    """Whether the batch that has to come next is stored too, since a restore took batches of the query out once."""


class Snapshot(Protocol):
    """The store at one version."""

    @property
    def version(self) -> int:
        """The version that everything here is read from."""

    def last_batch(self, query_id: str) -> int | None:
        """Return the last batch id written by a query, or None if it never wrote."""

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """Return what a query wrote under a number, as far as it is kept; None if nothing is kept for the number.

        Only for numbers up to the last batch, and less than `RING` below it: the place of an older one is another's.
        """

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Return the stored next offset of each partition that has one."""

    def commit(self, commit: Commit[FileT]) -> None:
        """Write all of ``commit`` or nothing.

        Raises:
            CommitConflictError: if something that it moves was moved after this snapshot.
        """

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """Return the records of the newest ``limit`` commits that are still kept, newest first."""


class OffsetStore(Protocol):
    """A place where offsets live, seen by one application (``appId``)."""

    def read(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset to read next for each of ``partitions`` that has one stored; {} if the store is empty.

        Raises:
            OffsetStoreError: if the store cannot be read.
        """

    def epochs(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leader epoch of the record before each stored offset, where it is known.

        Ask for it after `read`: an epoch that is newer than its offset is an upper bound, which hides no record.

        Raises:
            OffsetStoreError: if the store cannot be read.
        """

    def snapshot(self) -> Snapshot:
        """Take a picture of the store as it is now.

        Raises:
            StoreMissingError: if there is nothing there yet.
            OffsetStoreError: if it cannot be read.
        """

    def __str__(self) -> str:
        """Name the store as the option ``offsetStore`` does, for messages."""


def read_offsets(snapshot: Snapshot, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the stored next offsets of one source's partitions."""
    stored = snapshot.next_offsets((source, tp) for tp in partitions)
    return {tp: offset for (_, tp), offset in stored.items()}
