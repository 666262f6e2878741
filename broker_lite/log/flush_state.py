"""How far one partition's log is flushed, and the flushes under way.

The recovery point follows the flushes in their order. A failed one is never skipped: the kernel reports pages that it
could not write only once, and a later fsync of the same file succeeds without them. So after a failed flush the log
accepts no more records until the broker is restarted and has recovered it from the recovery point (Kafka then takes
the whole log directory offline, LogDirFailureChannel).
"""

from __future__ import annotations

import errno
import logging
from collections import deque

from sparkonce.broker_lite.log.storage import File, Flush

_NAMES = (
    *("EBADMSG", "EIO", "ENODEV", "ENOENT", "ENOTDIR", "ENXIO", "EREMOTEIO", "EROFS", "ESTALE", "EUCLEAN"),
    *("EACCES", "EFBIG", "EPERM"),
)
FAILED = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))  # not every system has them all
"""Errors of a disk, file system or directory that is gone, or read-only, for good.

All others may be temporary: a full disk, no free descriptors or memory, an interrupted call.
"""

logger = logging.getLogger(__name__)


class FlushState:
    """The flushes of one log."""

    __slots__ = (
        "_directory",
        "_last_flush_ms",
        "_pending",
        "_recovery_point",
        "_unflushed_messages",
        "access_failure",
        "failure",
    )

    def __init__(self, directory: str, now_ms: int) -> None:
        self._directory = directory
        self._recovery_point = 0
        self._pending: deque[tuple[int, Flush]] = deque()
        self._unflushed_messages = 0
        self._last_flush_ms = now_ms
        self.failure: OSError | None = None
        """The error of a failed flush."""
        self.access_failure: OSError | None = None
        """The permanent error of a read or a write; later ones are tried all the same."""

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is flushed."""
        self._take_ended()
        return self._recovery_point

    def _take_ended(self) -> None:
        while self._pending and self._pending[0][1].done():
            offset, flush = self._pending.popleft()
            try:
                self.wait(flush)
            except OSError:
                break  # it has been logged, and appends raise it
            self._recovery_point = max(self._recovery_point, offset)

    def start_at(self, offset: int) -> None:
        """Count everything before `offset` as flushed."""
        self._recovery_point = offset

    def cut(self, offset: int) -> None:
        """Note that the log was truncated to `offset`, after all flushes under way. Raises OSError if one fails."""
        while self._pending:
            before, flush = self._pending.popleft()
            self.wait(flush)
            self._recovery_point = max(self._recovery_point, before)
        self._recovery_point = min(self._recovery_point, offset)

    def count(self, messages: int) -> int:
        """Note that messages were written; returns how many are unflushed."""
        self._unflushed_messages += messages
        return self._unflushed_messages

    def due(self, now_ms: int, interval_ms: int) -> bool:
        """Whether something was written, the last flush is `interval_ms` ago, and none has failed."""
        self._take_ended()
        if self.failure is not None or not self._unflushed_messages:
            return False
        return now_ms - self._last_flush_ms >= interval_ms

    def access_failed(self, error: OSError) -> None:
        """Record the error of a read or a write, if it is permanent."""
        if error.errno in FAILED:
            self.access_failure = self.access_failure or error

    def begun(self, offset: int, flush: Flush) -> None:
        """Note that a flush of everything below `offset` is under way."""
        if self.failure is None:
            self._pending.append((offset, flush))

    def wait(self, flush: Flush) -> None:
        """Wait for a flush that the recovery point must not skip. Raises OSError if it failed."""
        try:
            flush.result()
        except OSError as error:
            self._fail(error)
            raise

    def flush(self, active: File | None, end_offset: int, now_ms: int) -> None:
        """Flush all segments up to `end_offset`, the active one's end; `active` is None if that one is flushed.

        Raises:
            OSError: if that fails or has failed.
        """
        if self.failure is not None:
            raise OSError(self.failure.errno, f"an earlier flush has failed: {self.failure}")
        while self._pending:
            self.wait(self._pending.popleft()[1])
        try:
            if active is not None:
                active.flush()
        except OSError as error:
            self._fail(error)
            raise
        self._recovery_point = end_offset
        self._unflushed_messages = 0
        self._last_flush_ms = now_ms

    def _fail(self, error: OSError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._pending.clear()
        logger.error(
            "%s: a flush has failed: %s; nothing is appended any more, and what is behind offset %d may be lost: "
            "see to the disk, then start the broker again",
            self._directory,
            error,
            self._recovery_point,
        )
