"""Limits a broker's log lines, however often an event occurs.

Theory of operation: the kind of a line is its source and its text before numbers and names are filled in. Of each kind
a limited number passes in a minute; the first line after that minute reports how many were dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparkonce.broker_lite.server.limits import MAX_LOG_LINES_PER_MINUTE

_MINUTE_S = 60.0


class LogRate(logging.Filter):
    """A filter for a log handler; `now_s` returns monotonic seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self._since_s = now_s()
        self._counts: dict[tuple[str, str], int] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line passes."""
        now_s = self._now_s()
        if now_s - self._since_s >= _MINUTE_S:
            self._since_s = now_s
            self._left_out = {
                kind: count - MAX_LOG_LINES_PER_MINUTE
                for kind, count in self._counts.items()
                if count > MAX_LOG_LINES_PER_MINUTE
            }
            self._counts.clear()
        kind = (record.name, str(record.msg))
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > MAX_LOG_LINES_PER_MINUTE:
            return False
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} lines like this were left out)", ()
        return True
