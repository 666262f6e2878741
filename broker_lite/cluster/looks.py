"""When a member checks its cluster: many times a second, or rarely if changes are reported to it.

Theory of operation: a check takes about a hundred microseconds, so that 50 of them a second would be most of the
work of an idle broker. If the machine reports changes of the files that brokers share (`Coordination.may_rest`), a
member checks after each report, often for a while after that, and else only rarely, in case a report was lost.
A report may come before its change is visible, such as the end of a lock: therefore the while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparkonce.broker_lite.scheduling import Scheduler, Timer

LOOK_MS: Final = 20
"""The interval of checks while waiting for something, or if changes are not reported."""
REST_MS: Final = 200
"""The interval at rest; no longer than a candidate counts as a controller's silence (`MAX_STEP_MS`)."""
LIVELY_MS: Final = 100
"""How long a member checks often after a change."""


class Looks:
    """The checks of one member."""

    def __init__(
        self,
        look: Callable[[], None],
        may_rest: Callable[[], bool],
        scheduler: Scheduler,
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Call `look` from `begin` on; `may_rest`: whether everything waited for would be reported."""
        self._look = look
        self._may_rest = may_rest
        self._scheduler = scheduler
        self._monotonic_ms = monotonic_ms
        self._timer: Timer | None = None
        self._looked_ms = 0
        self._lively_until_ms = 0
        self.rests = False
        """Whether the next check comes after `REST_MS`."""

    def begin(self) -> None:
        """Check now, and continue."""
        now_ms = self._monotonic_ms()
        self._looked_ms = now_ms
        self.rests = now_ms >= self._lively_until_ms and self._may_rest()
        self._timer = self._scheduler.call_later((REST_MS if self.rests else LOOK_MS) / 1000, self.begin)
        self._look()

    def soon(self) -> None:
        """Check as soon as the last check is LOOK_MS ago, and often for a while."""
        now_ms = self._monotonic_ms()
        self._lively_until_ms = now_ms + LIVELY_MS
        if self.rests and self._timer is not None:
            self.rests = False
            self._timer.cancel()
            delay_ms = max(self._looked_ms + LOOK_MS - now_ms, 0)
            self._timer = self._scheduler.call_later(delay_ms / 1000, self.begin)

    def end(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
