"""The interface of offset stores: return a consistent snapshot, and commit against that same snapshot.

A `Snapshot` is the store at one version. A decision made from a snapshot must be committed through the same snapshot:
the commit is rejected if anything that it would move has been moved since. This is the entire concurrency control:
reading from one snapshot and committing through another would lose it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, CommittedBatch, FileT, PartitionKey

if TYPE_CHECKING:  # they load the log of a table, which a consumer group does not need
    from sparkonce.offset_store.administration import CommitEntry
    from sparkonce.offset_store.other_apps import OtherApps


class Snapshot(ABC):
    """The store at one version.

    The methods that are not abstract have the answers of a store that holds nothing but offsets, and in which nobody
    else changes anything.
    """

    __slots__ = ()

    keeps_every_batch = False
    """Whether the store has every batch of a query, also those without rows and offsets."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of all results here.

        A dataclass with this field writes ``= field()``: else it takes this property for the field's default.
        """

    @property
    def store_id(self) -> str:
        """What is another one if the store is deleted and made again in its place; "" if that cannot be seen."""
        return ""

    @abstractmethod
    def last_batch(self, query_id: str) -> int | None:
        """Return the last batch id written by a query, or None if it never wrote."""

    @abstractmethod
    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """Return the fingerprint that a query stored for a batch; None if none is kept.

        Only for batch ids up to the last one, and less than `RING` below it: older ones are overwritten.
        """

    @abstractmethod
    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Return the stored next offset of each partition that has one."""

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:  # noqa: ARG002
        """Return the leader epoch of the record before each stored offset, where it is known."""
        return {}

    @abstractmethod
    def commit(self, commit: Commit[FileT]) -> None:
        """Write all of ``commit`` or nothing.

        Raises:
            CommitConflictError: if anything that it moves was moved after this snapshot.
        """

    @abstractmethod
    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """Return the records of the newest ``limit`` commits that are still kept, newest first."""

    def entries_since(self, version: int) -> Iterator[CommitEntry]:  # noqa: ARG002
        """Return the commits after a version, newest first, if the log also has manual changes and other writers'."""
        return iter(())

    def check_rows_have_offsets(self) -> None:
        """Check where the rows come from, if no offsets are stored.

        Raises:
            RowsWithoutOffsetsError: if they are ours, and their offsets are elsewhere.
        """
        return

    def due(self, query_id: str) -> int | None:  # noqa: ARG002
        """Return the batch of a query that must come next, if a restore ever removed batches of it."""
        return None

    def others(self, batch: BatchRecord, new: Collection[PartitionKey], *, keeps_offsets: bool) -> OtherApps | None:  # noqa: ARG002
        """Return what others have stored for ``new`` partitions of a batch; None if that does not matter.

        ``keeps_offsets``: whether the application's offsets are stored in it.
        """
        return None

    def written_by_delta(self, record: BatchRecord) -> int | None:  # noqa: ARG002
        """Return the last batch of the query that Delta's own sink has appended, if that is this one, or past it."""
        return None

    def can_record(self, record: BatchRecord) -> bool:  # noqa: ARG002
        """Whether it can record this batch, so that a replay of it is recognized."""
        return True


class SnapshotWithoutOffsets(Snapshot):
    """A result that holds rows only: their offsets are in another store."""

    __slots__ = ()

    def last_batch(self, query_id: str) -> int | None:  # noqa: ARG002
        """See `Snapshot.last_batch`."""
        return None

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:  # noqa: ARG002
        """See `Snapshot.fingerprint`."""
        return None

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:  # noqa: ARG002
        """See `Snapshot.next_offsets`."""
        return {}

    def history(self, limit: int | None = None) -> list[CommittedBatch]:  # noqa: ARG002
        """See `Snapshot.history`."""
        return []


class SnapshotSource(ABC):
    """Returns snapshots: an offset store, or a table that checks itself first."""

    __slots__ = ()

    replaces: bool = False
    """Whether each batch replaces all rows: then a batch without rows must be written, too."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a snapshot of the store as it is now.

        Raises:
            StoreMissingError: if there is no store yet.
            OffsetStoreError: if it cannot be read.
        """

    def snapshot_unchecked(self) -> Snapshot:
        """Return a snapshot without checking the store, for reads only."""
        return self.snapshot()

    def complete(self) -> None:
        """Carry out the last commit, where that is a decision which is carried out afterwards.

        Raises:
            DeliveryError: if that is no longer possible.
        """
        return

    def __str__(self) -> str:
        """Name it as the option ``offsetStore`` would, for messages."""
        return type(self).__name__


class OffsetStore(SnapshotSource):
    """A place that stores offsets, as one application (``appId``) sees it."""

    __slots__ = ()

    @abstractmethod
    def read(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset to read next for each of ``partitions`` that has one stored; {} if the store is empty.

        Raises:
            OffsetStoreError: if the store cannot be read.
        """

    @abstractmethod
    def epochs(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leader epoch of the record before each stored offset, where it is known.

        Call it after `read`: an epoch that is newer than its offset is an upper bound, which hides no record.

        Raises:
            OffsetStoreError: if the store cannot be read.
        """


def read_offsets(snapshot: Snapshot, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the stored next offsets of one source's partitions."""
    stored = snapshot.next_offsets((source, tp) for tp in partitions)
    return {tp: offset for (_, tp), offset in stored.items()}
