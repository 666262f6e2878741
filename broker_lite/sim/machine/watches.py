"""Changes of the shared disk, as a machine reports them to the brokers on it (`Host.watch`).

Theory of operation: as inotify(7) promises, whoever watches is told of every change, some time after it. What comes
while a report waits to be read is told by that one, and a queue that overflows tells so, which is a report, too: so
reports come late and merged, and none is lost. A process that is held up reads them when it goes on. What a broker is
made to learn late (`Machine.deaf_until_ms`) is reported late, or it would look too early and not again for a while.

The end of a process closes the files that it has locked; that is told a moment before their locks are free. A time that
is set is not told, nor that a file is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.machine.machine import Process

_LATE_MS: Final = (0, 0, 1, 4, 15, 60)
"""How late a report may come, while there are faults."""
_DEAF_STEP_MS: Final = 5


class SimulatedWatch:
    """One broker's watch on the shared disk."""

    def __init__(self, process: Process, then: Callable[[], None]) -> None:
        self._process = process
        self._machine = process.machine
        self._then = then
        self._is_booked = False
        self._machine.run.shared.watches[self.changed] = None

    def close(self) -> None:
        """See `Watch`."""
        self._machine.run.shared.watches.pop(self.changed, None)

    def changed(self) -> None:
        """Take a change, which is happening."""
        if not self._is_booked:
            self._is_booked = True
            run, chance = self._machine.run, self._machine.reporting
            run.scheduler.after(0 if run.is_healed else chance.choice(_LATE_MS), self._deliver)

    def _deliver(self) -> None:
        scheduler = self._machine.run.scheduler
        if scheduler.now_ms < self._machine.deaf_until_ms:
            scheduler.after(_DEAF_STEP_MS, self._deliver)
        else:
            self._process.loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_booked = False
        if self.changed in self._machine.run.shared.watches:
            self._then()
