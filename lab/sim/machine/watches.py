"""Changes of the shared disk, as a machine reports them to the brokers on it (`Host.watch`).

Theory of operation: as inotify(7) promises, every change is reported to those who watch, some time after it. A report
that waits to be read stands for all later changes, and an overflow of the queue is reported, too: so reports come late
and merged, and none is lost. A process that is paused reads them when it goes on. What a broker is made to learn late
(`Machine.deaf_until_ms`) is reported late, or it would look too early and not again for a while.

The end of a process closes the files that it has locked; that is reported a moment before their locks are free. Setting
a file's time is not reported, nor is reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from lab.sim.disk import SharedDisk
from lab.sim.scheduler import Scheduler

LATE_MS: Final = (0, 0, 1, 4, 15, 60)
"""How late a report may come, while there are faults."""
_DEAF_STEP_MS: Final = 5


class Reader(NamedTuple):
    """Who reads the reports of a watch: one broker's process."""

    late_ms: Callable[[], int]
    """Draws how late the next report comes."""
    deaf_until_ms: Callable[[], int]
    call_soon: Callable[[Callable[[], None]], object]
    """Has its event loop call something."""


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
        """Take a change, which is happening."""
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
