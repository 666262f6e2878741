"""The log's interface for replication, implemented by `broker_lite.log.partition_log.PartitionLog`."""

from __future__ import annotations

from typing import Protocol

from sparkonce.broker_lite.log.leader_epochs import EpochEnd

__all__ = ["EpochEnd", "ReplicaLog"]


class ReplicaLog(Protocol):
    """One replica's log."""

    @property
    def log_start_offset(self) -> int:
        """The first offset."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have the records."""

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most to the log end offset; return whether it moved."""

    def be_sole_replica(self) -> None:
        """Count everything in the log, now and later, as committed: there is no other replica."""

    def be_one_of_several(self) -> None:
        """Leave the high watermark where it is, until it is raised."""

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last record, or one that has begun after it; -1 if there is none."""

    def epoch_end(self, epoch: int) -> EpochEnd | None:
        """Return the largest epoch not beyond `epoch` that the log has, and where it ends (KIP-101, KIP-279)."""

    def begin_epoch(self, epoch: int, *, with_first_record: bool = False) -> None:
        """Note that `epoch` begins at the log end offset, now or with its first record."""

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on; lower the high watermark if needed."""

    def begin_at(self, offset: int) -> None:
        """Drop everything and begin, empty, at `offset`."""
