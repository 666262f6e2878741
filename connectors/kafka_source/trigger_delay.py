"""When a small backlog may wait: options ``minOffsetsPerTrigger`` and ``maxTriggerDelay``. No I/O, no clock of its own.

A batch is held back while fewer records than wanted are there, until so much time has passed since the last one. The
first batch of a run never waits. (KafkaMicroBatchStream.delayBatch.) PySpark has no way to hand a source both limits of
a query or the delay, so the source keeps count itself.
"""

from __future__ import annotations


class TriggerDelay:
    """Decides for one query; the caller passes the time, in monotonic milliseconds."""

    def __init__(self, min_records: int, max_delay_ms: int) -> None:
        self._min_records = min_records
        self._max_delay_ms = max_delay_ms
        self._last_trigger_ms: float | None = None

    def holds_back(self, available: int, now_ms: float) -> bool:
        """Whether to wait for more than the ``available`` records; if not, this counts as a trigger."""
        last = self._last_trigger_ms
        if last is not None and now_ms - last < self._max_delay_ms and available < self._min_records:
            return True
        self._last_trigger_ms = now_ms
        return False
