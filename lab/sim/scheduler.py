"""One clock, one queue and named random streams for everything that is simulated.

Events of the same millisecond run in the order in which they were scheduled, so a run depends only on its seed.
A random stream depends on a seed and a name: not on the process, nor on other streams.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Scheduler:
    """The queue of events; `now_ms` only moves when an event is taken."""

    __slots__ = ("_count", "_queue", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Run `action` in `delay_ms` milliseconds."""
        self._count += 1
        heappush(self._queue, (self.now_ms + delay_ms, self._count, action, arguments))

    def step(self, until_ms: int) -> bool:
        """Run the next event, unless it is later than `until_ms`; return whether one was run."""
        queue = self._queue
        if not queue or queue[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms, _, action, arguments = heappop(queue)
        action(*arguments)
        return True


def stream(name: str, *numbers: int) -> random.Random:
    """Return the random stream for this name and these numbers, the seed first."""
    return random.Random("/".join((name, *map(str, numbers))))  # noqa: S311 - a choice that can be repeated, no secret
