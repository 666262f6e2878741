"""An event loop by hand: time passes when a test says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tests.unit.cluster.shared import SharedClock


class Booked:
    """A call that is to come."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class HandLoop:
    """Calls back in order of time; `clock` is what it moves."""

    def __init__(self, clock: SharedClock) -> None:
        self.clock = clock
        self._booked: list[tuple[float, int, Booked]] = []
        self._number = 0

    def call_soon(self, callback: Callable[[], object]) -> Booked:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Booked:
        self._number += 1
        booked = Booked(callback)
        heapq.heappush(self._booked, (self.clock.ms + delay * 1000, self._number, booked))
        return booked

    def run(self, duration_ms: int = 0) -> None:
        """Let time pass, and what is booked until then happen."""
        end = self.clock.ms + duration_ms
        while self._booked and self._booked[0][0] <= end:
            at, _, booked = heapq.heappop(self._booked)
            self.clock.ms = max(self.clock.ms, int(at))
            if booked.call is not None:
                booked.call()
        self.clock.ms = end
