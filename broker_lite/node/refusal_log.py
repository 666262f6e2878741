"""Logs errors of clients, and failed operations, up to a rate, as clients determine how many there are."""

from __future__ import annotations

import logging
from collections.abc import Callable

MAX_REFUSALS_LOGGED_PER_MINUTE = 60
_MINUTE_MS = 60_000

logger = logging.getLogger(__name__)


class RefusalLog:
    """Counts the lines of the current minute."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._logged = 0
        self._since_ms = monotonic_ms()

    def note(self, text: str) -> bool:
        """Log a line, up to a rate; returns whether it was logged."""
        now_ms = self._monotonic_ms()
        if now_ms - self._since_ms >= _MINUTE_MS:
            if self._logged > MAX_REFUSALS_LOGGED_PER_MINUTE:
                logger.warning("%d more lines like these", self._logged - MAX_REFUSALS_LOGGED_PER_MINUTE)
            self._since_ms, self._logged = now_ms, 0
        self._logged += 1
        if self._logged > MAX_REFUSALS_LOGGED_PER_MINUTE:
            return False
        logger.warning("%s", text)
        return True
