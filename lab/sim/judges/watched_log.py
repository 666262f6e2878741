"""A replica's log that reports what happens to it.

Beside the bytes it keeps a list of the batches that they hold, so that invariants can be checked after each change
without reading the log again. The list is read from the bytes when the log is opened; that both agree is checked
when a run ends.
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
    """What is called after each change; these do nothing."""

    def appended(self, log: WatchedLog) -> None:
        """Take the last of the log's batches."""

    def was_cut(self, log: WatchedLog) -> None:
        """Take a log that has lost its end."""

    def was_torn(self) -> None:
        """Take a log whose damaged end was cut off as it was opened."""

    def high_watermark_moved(self, log: WatchedLog) -> None:
        """Take a log whose high watermark has risen."""


class WatchedLog(PartitionLog):
    """A `PartitionLog` with a list of its batches."""

    def __init__(
        self, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes | None = None
    ) -> None:
        """Not to be called: see `open`."""
        super().__init__(storage, directory, config, now_ms, metadata)
        self.batches: list[Batch] = []
        self.watcher = LogWatcher()

    def watch(self, watcher: LogWatcher) -> None:
        """Begin to tell `watcher`; call it once, after the log was opened."""
        self.batches = self.batches_on_disk()
        self.watcher = watcher

    def batches_on_disk(self) -> list[Batch]:
        """Return the batches as the files have them."""
        found: list[Batch] = []
        for segment in self.segments:
            for _, header in segment.batches(0):
                found.append(chained(found, header, header.base_offset, header.partition_leader_epoch))
        return found

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
        finally:  # a full disk may have kept a part of it from happening
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
