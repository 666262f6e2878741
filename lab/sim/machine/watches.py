"""Changes of the shared disk, as a machine reports them to the brokers on it (`Host.watch`).

Theory of operation: as inotify(7) promises, every change is reported to the watchers, some time after it. A report
that is not read yet covers all later changes, and an overflow of the queue is reported, too: so reports come late
and merged, and none is lost. A paused process reads them when it resumes. If a broker's reads of decisions are delayed
(`Machine.deaf_until_ms`), so are its reports, or it would look too early and not again for a while.

The end of a process closes its locked files; that is reported a moment before their locks are released. Changes
of a file's time and reads are not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from lab.sim.disk import SharedDisk
from lab.sim.scheduler import Scheduler

LATE_MS: Final = (0, 0, 1, 4, 15, 60)
"""The maximal delay of a report, while there are faults."""
_DEAF_STEP_MS: Final = 5


class Reader(NamedTuple):
    """The reader of a watch's reports: a broker's process."""

    late_ms: Callable[[], int]
    """Draws the delay of the next report."""
    deaf_until_ms: Callable[[], int]
    call_soon: Callable[[Callable[[], None]], object]
    """Schedules a callback on its event loop."""


class SimulatedWatch:
    """One broker's watch on the shared disk."""

    def __init__(self, shared: SharedDisk, scheduler: Scheduler, reader: Reader, then: Callable[[], None]) -> None:
        self._shared = shared
        self._scheduler = scheduler
        self._reader = reader
        self._then = then
        self._is_booked = False
        shared.watches[self.changed] = None

    def close(self) -> None:
        """See `Watch`."""
        self._shared.watches.pop(self.changed, None)

    def changed(self) -> None:
        """Note a change, which is happening."""
        if not self._is_booked:
            self._is_booked = True
            self._scheduler.after(self._reader.late_ms(), self._deliver)

    def _deliver(self) -> None:
        if self._scheduler.now_ms < self._reader.deaf_until_ms():
            self._scheduler.after(_DEAF_STEP_MS, self._deliver)
        else:
            self._reader.call_soon(self._read)

    def _read(self) -> None:
        self._is_booked = False
        if self.changed in self._shared.watches:
            self._then()
