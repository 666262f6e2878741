"""Which segments a log no longer needs: those before its start, too old, or beyond its size.

Segments go from the oldest on, whole, and up to the first that has to stay; the log then starts at the next one. If all
of them go, a new empty one is begun first. The rules are those of Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.segment import Segment

logger = logging.getLogger(__name__)

_Deletable = Callable[[Segment, int | None], bool]
"""Called with a segment and the base offset of the next one, if there is one."""


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Delete what the log's settings allow; returns the number of segments.

    Raises:
        OSError: if a file cannot be renamed.
    """
    count = _delete(log, now_ms, _before_start(log), "they lie before the log's start")
    if "delete" in log.config.cleanup_policy:
        count += _delete(log, now_ms, _beyond_size(log), f"retention.bytes={log.config.retention_bytes}")
        count += _delete(log, now_ms, _too_old(log, now_ms), f"retention.ms={log.config.retention_ms}")
    return count


def _before_start(log: PartitionLog) -> _Deletable:
    return lambda _, next_base: next_base is not None and next_base <= log.log_start_offset


def _beyond_size(log: PartitionLog) -> _Deletable:
    most = log.config.retention_bytes
    surplus = log.size - most

    def deletable(segment: Segment, _: int | None) -> bool:
        nonlocal surplus
        if most < 0 or surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return deletable


def _too_old(log: PartitionLog, now_ms: int) -> _Deletable:
    most = log.config.retention_ms
    return lambda segment, _: most >= 0 and now_ms - segment.largest_timestamp_ms > most


def _delete(log: PartitionLog, now_ms: int, deletable: _Deletable, why: str) -> int:
    segments = log.segments
    count = 0
    for segment in segments:
        last = count + 1 == len(segments)
        next_base = None if last else segments[count + 1].base_offset
        end = log.log_end_offset if next_base is None else next_base
        if (last and not segment.size) or log.high_watermark < end or not deletable(segment, next_base):
            break
        count += 1
    if count:
        logger.info("%s: deleting %d segments: %s", log.directory, count, why)
        if count == len(segments):
            log.roll(now_ms)
        log.drop_segments(count, now_ms)
    return count
