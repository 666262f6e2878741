"""Logs errors of clients, and failed operations, up to a rate, as clients determine how many there are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

MAX_REFUSALS_LOGGED_PER_MINUTE = 60
_MINUTE_MS = 60_000

logger = logging.getLogger(__name__)


class NoteRefusal(Protocol):
    """What `RefusalLog.note` does."""

    def __call__(self, text: str, subject: str | None = None) -> bool:
        """Log a line, up to a rate; returns whether it was logged."""


class RefusalLog:
    """Counts the lines of the current minute, and those that it leaves out."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._logged = self._left_out = 0
        self._subjects: set[str] = set()
        self._since_ms = monotonic_ms()

    def note(self, text: str, subject: str | None = None) -> bool:
        """Log a line, up to a rate; returns whether it was logged.

        Args:
            text: the line.
            subject: of lines with the same subject only the first of a minute is logged.
        """
        now_ms = self._monotonic_ms()
        if now_ms - self._since_ms >= _MINUTE_MS:
            if self._left_out:
                logger.warning("%d more lines like these", self._left_out)
            self._since_ms, self._logged, self._left_out = now_ms, 0, 0
            self._subjects.clear()
        if self._logged >= MAX_REFUSALS_LOGGED_PER_MINUTE or subject in self._subjects:
            self._left_out += 1
            return False
        self._logged += 1
        if subject is not None:
            self._subjects.add(subject)
        logger.warning("%s", text)
        return True
