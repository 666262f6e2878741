"""Signs of life of a controller whose event loop is busy.

A controller that creates a thousand logs, or waits for a slow disk, is not stuck: replacing it would only move the
work. So while its event loop is busy, a thread touches its claim, for at most `patience_ms`. In a
broker that is not the controller the thread sleeps.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Pulse:
    """A thread that beats until `stop`, while it is needed and `loop_is_seen` is called often enough."""

    def __init__(
        self, beat: Callable[[], None], monotonic_ms: Callable[[], int], interval_ms: int, patience_ms: int
    ) -> None:
        """Begin.

        Args:
            beat: shows that the process is alive; called in the thread.
            monotonic_ms: a monotonic clock.
            interval_ms: the interval between beats.
            patience_ms: without a sign of the event loop for so long, beats stop.
        """
        self._beat = beat
        self._monotonic_ms = monotonic_ms
        self._interval_s = interval_ms / 1000
        self._patience_ms = patience_ms
        self._seen_ms = monotonic_ms()
        self._needed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller-pulse", daemon=True)
        self._thread.start()

    def loop_is_seen(self, *, needed: bool) -> None:
        """Note that the event loop is running, and whether signs of life are needed."""
        self._seen_ms = self._monotonic_ms()
        if not needed:
            self._needed.clear()
        elif not self._needed.is_set():
            self._needed.set()

    def stop(self) -> None:
        """Stop; when this returns the thread has ended."""
        self._stopping.set()
        self._needed.set()
        self._thread.join()

    def _run(self) -> None:
        while self._needed.wait() and not self._stopping.wait(self._interval_s):
            if self._monotonic_ms() - self._seen_ms < self._patience_ms:
                with contextlib.suppress(OSError):  # a disk error; the next beat may succeed
                    self._beat()
