"""Background work of the log: retention, compaction, removal of deleted files, expiry of idle producers.

`Housekeeping` is driven from outside: each call of `step` does a small piece of work, if any is due, so that a server
with one thread can serve clients between two pieces. Retention checks all partitions every
`log.retention.check.interval.ms`. Every `log.cleaner.backoff.ms` the dirtiest of the logs with `cleanup.policy=compact`
is compacted if it is due; while there is one, the next follows without a pause. If no topic is compacted, none of that
runs. Only one log is worked on at a time, so retention and compaction of one log never overlap. A log whose files
cannot be read or renamed does not block the others; it is reported once, and again if it fails after a success.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from sparkonce.broker_lite.log.batch_filter import OffsetMap
from sparkonce.broker_lite.log.cleaner import DirtyLog, OffsetMapFullError, Steps, assess, clean
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.segment import Segment
from sparkonce.broker_lite.log.storage import Flush
from sparkonce.kafka.protocol.errors import CorruptBatchError, KafkaError

FILE_REMOVAL_INTERVAL_MS = 1_000
RETRY_INTERVAL_MS = 1_000
"""The minimum time before a compaction that failed on the disk is retried."""

_Deletable = Callable[[Segment, int | None], bool]
"""Called with a segment and the base offset of the next one, if there is one."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HousekeepingSettings:
    """The broker settings for housekeeping; the defaults are Kafka's."""

    retention_check_interval_ms: int = 300_000
    cleaner_enable: bool = True
    cleaner_backoff_ms: int = 15_000
    cleaner_dedupe_buffer_bytes: int = 128 << 20
    cleaner_load_factor: float = 0.9
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000


class Housekeeping:
    """The housekeeping of one log directory. Not thread-safe."""

    def __init__(self, logs: LogManager, settings: HousekeepingSettings, monotonic_ms: int) -> None:
        self._logs = logs
        self.settings = settings
        """May be replaced at any time."""
        self._running: Generator[Flush | None, None, object] | None = None
        self._waiting: Flush | None = None
        self._log: PartitionLog | None = None
        self._uncleanable: set[str] = set()
        """Directories of logs whose compaction failed: they are skipped until the broker is restarted."""
        self._failing: set[str] = set()
        """Directories of logs with a failure that has been logged."""
        self._next_retention_ms = monotonic_ms + settings.retention_check_interval_ms
        self._next_cleaning_ms = monotonic_ms + settings.cleaner_backoff_ms
        self._next_expiration_ms = monotonic_ms  # at once, since a snapshot may hold old producers
        self._next_removal_ms = monotonic_ms + FILE_REMOVAL_INTERVAL_MS

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._running is not None

    @property
    def cleaning(self) -> PartitionLog | None:
        """The log that is being compacted."""
        return self._log

    def step(self, now_ms: int, monotonic_ms: int) -> bool:
        """Do a piece of the work that is due; False if there is none, or it waits for the disk."""
        if self._running is None:
            self._running = self._begin(now_ms, monotonic_ms)
            if self._running is None:
                return False
        if self._waiting is not None:
            if not self._waiting.done():
                return False
            self._waiting = None
        if self._log is not None and self._log.closed:
            self._stop()
            return True
        try:
            self._waiting = next(self._running)  # raises the error of the flush that it has waited for
        except StopIteration:
            self._running = self._log = None
        except OSError as error:  # such as a full disk, which may be temporary
            logger.error("%s: %s; it is tried again", self._log.directory if self._log else "housekeeping", error)
            self._next_cleaning_ms = monotonic_ms + max(self.settings.cleaner_backoff_ms, RETRY_INTERVAL_MS)
            self._running = self._log = None
        except (CorruptBatchError, OffsetMapFullError, KafkaError) as error:
            assert self._log is not None, "retention catches its own"
            self._leave_alone(self._log, error)
            self._running = self._log = None
        return True

    def close(self) -> None:
        """Cancel the work under way; the logs are consistent."""
        self._stop()

    def _stop(self) -> None:
        if self._running is not None:
            self._running.close()
        self._running = self._waiting = self._log = None

    def _leave_alone(self, log: PartitionLog, error: Exception) -> None:
        self._uncleanable.add(log.directory)
        logger.error("%s: not compacted any more: %s", log.directory, error)

    def _note(self, log: PartitionLog, error: Exception) -> None:
        if log.directory not in self._failing:
            self._failing.add(log.directory)
            logger.error("%s: %s; retention or compaction cannot go on there, and is tried again", log.directory, error)

    def _begin(self, now_ms: int, monotonic_ms: int) -> Generator[Flush | None, None, object] | None:
        settings = self.settings
        if monotonic_ms >= self._next_removal_ms:
            self._next_removal_ms = monotonic_ms + FILE_REMOVAL_INTERVAL_MS
            for log in self._partitions():
                try:
                    if log.deleted:
                        log.deleted.remove_due(now_ms)
                except OSError as error:  # the file is removed at the next start
                    self._note(log, error)
        if self._logs.remove_deleted():
            return self._remove()
        if monotonic_ms >= self._next_retention_ms:
            self._next_retention_ms = monotonic_ms + settings.retention_check_interval_ms
            return self._retain(now_ms)
        if monotonic_ms >= self._next_expiration_ms:
            self._next_expiration_ms = monotonic_ms + settings.producer_id_expiration_check_interval_ms
            return self._expire(now_ms)
        if settings.cleaner_enable and monotonic_ms >= self._next_cleaning_ms:
            dirtiest = self._dirtiest(now_ms)
            if dirtiest is not None:
                self._log = dirtiest.log
                return self._clean(dirtiest, now_ms)
            self._next_cleaning_ms = monotonic_ms + settings.cleaner_backoff_ms
        return None

    def _partitions(self) -> Iterator[PartitionLog]:
        for topic in list(self._logs.topics.values()):
            yield from topic.logs.values()

    def _remove(self) -> Steps:
        while self._logs.remove_deleted():
            yield None

    def _retain(self, now_ms: int) -> Steps:
        for log in self._partitions():
            if log.closed:
                continue
            try:
                delete_old_segments(log, now_ms)
                self._failing.discard(log.directory)
            except (OSError, CorruptBatchError) as error:
                self._note(log, error)
            yield None

    def _expire(self, now_ms: int) -> Steps:
        for log in self._partitions():
            log.producers.expire(now_ms, self.settings.producer_id_expiration_ms)
            yield None

    def _dirtiest(self, now_ms: int) -> DirtyLog | None:
        dirtiest: DirtyLog | None = None
        for log in self._partitions():
            compacted = "compact" in log.config.cleanup_policy and len(log.segments) > 1
            if not compacted or log.directory in self._uncleanable:
                continue
            try:
                dirty = assess(log, now_ms)
            except CorruptBatchError as error:
                self._leave_alone(log, error)
            except OSError as error:
                self._note(log, error)
            else:
                if dirty.due and (dirtiest is None or dirty.ratio > dirtiest.ratio):
                    dirtiest = dirty
        return dirtiest

    def _clean(self, dirty: DirtyLog, now_ms: int) -> Steps:
        # After a crash, recovery must not take a compacted segment's holes for the end of the log: compacted segments
        # lie below the recovery point, in its file too.
        self._logs.checkpoint()
        settings = self.settings
        yield from clean(dirty, OffsetMap(settings.cleaner_dedupe_buffer_bytes, settings.cleaner_load_factor), now_ms)
        delete_old_segments(dirty.log, now_ms)
        self._logs.checkpoint_cleaner()


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Delete segments before the log start offset, past retention.ms, or beyond retention.bytes; return how many.

    Whole segments are deleted from the oldest on, up to the first that must be kept; the log then starts there. If
    all are deleted, a new empty one is created first. The rules are those of Kafka's UnifiedLog.deleteOldSegments.

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
