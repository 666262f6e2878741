"""When a member looks at its cluster: many times a second, or seldom where changes are reported to it.

Theory of operation: a look costs about a hundred microseconds, so that 50 of them a second would be most of what an
idle broker does. Where the machine reports changes of the files that brokers share (`Coordination.may_rest`), a member
looks as soon as it is told of one, often for a while after that, and else only now and then, in case a report was lost.
A report may come before what it is of can be seen, such as the end of a lock: therefore the while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparkonce.broker_lite.scheduling import Scheduler, Timer

LOOK_MS: Final = 20
"""How long after one look the next one comes, while there is something to wait for, or changes are not reported."""
REST_MS: Final = 200
"""And at rest; no longer than what a candidate counts as silence of a controller (`controller_locks.MAX_STEP_MS`)."""
LIVELY_MS: Final = 100
"""How long a member looks often after a change."""


class Looks:
    """The looks of one member."""

    def __init__(
        self,
        look: Callable[[], None],
        may_rest: Callable[[], bool],
        scheduler: Scheduler,
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Call `look` from `begin` on; `may_rest` says whether nothing is waited for that would not be reported."""
        self._look = look
        self._may_rest = may_rest
        self._scheduler = scheduler
        self._monotonic_ms = monotonic_ms
        self._timer: Timer | None = None
        self._looked_ms = 0
        self._lively_until_ms = 0
        self.rests = False
        """Whether the next look comes after `REST_MS`."""

    def begin(self) -> None:
        """Look now, and go on."""
        now_ms = self._monotonic_ms()
        self._looked_ms = now_ms
        self.rests = now_ms >= self._lively_until_ms and self._may_rest()
        self._timer = self._scheduler.call_later((REST_MS if self.rests else LOOK_MS) / 1000, self.begin)
        self._look()

    def soon(self) -> None:
        """Look as soon as the last look is LOOK_MS ago, and often for a while."""
        now_ms = self._monotonic_ms()
        self._lively_until_ms = now_ms + LIVELY_MS
        if self.rests and self._timer is not None:
            self.rests = False
            self._timer.cancel()
            delay_ms = max(self._looked_ms + LOOK_MS - now_ms, 0)
            self._timer = self._scheduler.call_later(delay_ms / 1000, self.begin)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
