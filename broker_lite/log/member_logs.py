"""The log directory of a cluster's member: the controller decides which topics there are, and others have replicas.

Theory of operation: the cluster image decides, and `take` makes this directory follow it; `topics.json` only lists
what is here, and as of which offset of the controller's log, for the next start. A member opens all logs found here,
whether or not they are still assigned to it. High watermarks are the last ones that the partition's leader has sent,
and are checkpointed periodically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.topics_file import MetadataPosition


class MemberLogs(LogManager):
    """See `LogManager`."""

    _are_strays_kept = True
    _next_high_watermarks_ms = 0
    _written_position: MetadataPosition | None = None

    def flush_due(self, now_ms: int) -> None:
        """See `LogManager`; high watermarks are written every `high_watermark_interval_ms`, too."""
        super().flush_due(now_ms)
        if now_ms >= self._next_high_watermarks_ms:
            self._next_high_watermarks_ms = now_ms + self.high_watermark_interval_ms
            self._offsets.write_high_watermarks()

    def checkpoint(self) -> None:
        """See `LogManager`; also writes how far the controller's log was read."""
        super().checkpoint()
        if self.metadata_position != self._written_position:
            self._write_down()

    def _write_topics(self) -> None:
        super()._write_topics()
        self._written_position = self.metadata_position

    def _taken(self) -> None:
        self._kept = self._entries()
        self._write_down()

    def _begun(self, log: PartitionLog) -> None:
        log.be_one_of_several(0)  # until its role is known

    def _indexes_here(self, name: str, count: int, here: Collection[str]) -> Iterable[int]:
        return [index for index in range(count) if f"{name}-{index}" in here]

    def _loaded(self, *, is_known: bool) -> None:
        self._offsets.take_high_watermarks()
        if not is_known:
            self._write_topics()
