"""A replica's log that reports its changes.

Beside the bytes it keeps a list of the batches in them, so that invariants can be checked after each change
without reading the log again. The list is read from the bytes when the log is opened; at the end of a run both are
compared.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.invariants import Batch, chained

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.config import LogConfig
    from sparkonce.broker_lite.log.segment import Segment
    from sparkonce.broker_lite.log.storage import Storage
    from sparkonce.kafka.protocol.primitives import Buffer
    from sparkonce.kafka.protocol.records import BatchHeader

_LEADER_EPOCH = Struct(">12xi")


class LogWatcher:
    """Callbacks after each change; these do nothing."""

    def appended(self, log: WatchedLog) -> None:
        """Note that a batch was appended."""

    def was_cut(self, log: WatchedLog) -> None:
        """Note that the log was truncated."""

    def was_torn(self) -> None:
        """Note that the log was opened and its damaged end was truncated."""

    def high_watermark_moved(self, log: WatchedLog) -> None:
        """Note that the high watermark has risen."""


class WatchedLog(PartitionLog):
    """A `PartitionLog` with a list of its batches."""

    def __init__(
        self, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes | None = None
    ) -> None:
        """Private: use `open`."""
        super().__init__(storage, directory, config, now_ms, metadata)
        self.batches: list[Batch] = []
        self.is_forgotten = False
        """Whether its broker has deleted it, as the partition was deleted or moved away."""
        self.watcher = LogWatcher()

    def watch(self, watcher: LogWatcher) -> None:
        """Start to report to `watcher`; called once, after the log was opened."""
        self.batches = self.batches_on_disk()
        self.watcher = watcher

    def batches_on_disk(self) -> list[Batch]:
        """Return the batches in the files."""
        found: list[Batch] = []
        for segment in self.segments:
            for _, header in segment.batches(0):
                found.append(chained(found, header, header.base_offset, header.partition_leader_epoch))
        return found

    def forget(self) -> None:
        """See `LocalLog`."""
        self.is_forgotten = True
        super().forget()

    def advance_high_watermark(self, offset: int) -> bool:
        """See `PartitionLog`."""
        moved = super().advance_high_watermark(offset)
        if moved:
            self.watcher.high_watermark_moved(self)
        return moved

    def truncate_to(self, offset: int) -> None:
        """See `PartitionLog`."""
        before = self.log_end_offset
        try:
            super().truncate_to(offset)
        finally:  # a full disk may have prevented a part of it
            if self.log_end_offset < before:
                self._cut_batches()

    def begin_at(self, offset: int) -> None:
        """See `PartitionLog`."""
        super().begin_at(offset)
        self.batches.clear()
        self.watcher.was_cut(self)

    def _cut_batches(self) -> None:
        batches = self.batches
        while batches and batches[-1].last_offset >= self.log_end_offset:
            batches.pop()
        self.watcher.was_cut(self)

    def _put(self, batch: Buffer, header: BatchHeader, last_offset: int, now_ms: int) -> Segment:
        segment = super()._put(batch, header, last_offset, now_ms)
        (epoch,) = _LEADER_EPOCH.unpack_from(batch)
        self.batches.append(chained(self.batches, header, last_offset - header.last_offset_delta, epoch))
        self.watcher.appended(self)
        return segment
