"""A sign of life of a controller whose event loop is busy.

A controller that has to make a thousand logs, or waits for a slow disk, does not hang: replacing it would only move the
work. So while its event loop is busy, a thread touches its claim, but no longer than a loop may well be busy. In a
broker that is not the controller the thread sleeps.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Pulse:
    """A thread that beats until `stop`, where it is needed and as long as `loop_is_seen` is called now and then."""

    def __init__(
        self, beat: Callable[[], None], monotonic_ms: Callable[[], int], interval_ms: int, patience_ms: int
    ) -> None:
        """Begin.

        Args:
            beat: what shows that the process is alive; called in the thread.
            monotonic_ms: a clock that never goes back.
            interval_ms: how often to beat.
            patience_ms: after so long without a sign of the event loop there is no beat any more.
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
        """Note that the event loop goes on, and whether anybody has to see a sign of life."""
        self._seen_ms = self._monotonic_ms()
        if not needed:
            self._needed.clear()
        elif not self._needed.is_set():
            self._needed.set()

    def stop(self) -> None:
        """Beat no more; when this returns the thread has ended."""
        self._stopping.set()
        self._needed.set()
        self._thread.join()

    def _run(self) -> None:
        while self._needed.wait() and not self._stopping.wait(self._interval_s):
            if self._monotonic_ms() - self._seen_ms < self._patience_ms:
                with contextlib.suppress(OSError):  # the disk's; the next beat may succeed
                    self._beat()
