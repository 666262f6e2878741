"""The true state of a simulated cluster.

Theory of operation: `Truth` reads the controller's log as a broker does, after every event that has written to the
shared disk; so it knows of every decision as soon as it counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lab.sim.faults.strangers import is_noted
from lab.sim.machine.machine import METADATA
from sparkonce.broker_lite.assertions import BrokenInvariantError
from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.replication.invariants import Batch, PartitionHistory

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sim.disk import SharedDisk
    from lab.sim.machine.machine import Machine
    from lab.sim.run import Run
    from sparkonce.broker_lite.cluster.coordination import Step

_NOBODY = -1


class Truth:
    """The cluster by its log."""

    def __init__(self, disk: SharedDisk) -> None:
        self.on_step: list[Callable[[Step], None]] = []
        """Called with each record of the log."""
        self._disk = disk
        self._coordination = FileCoordination(disk, METADATA, _NOBODY, 1, 0)
        self.image = ClusterImage()

    def look(self) -> None:
        """Read new records."""
        if self._disk.changed:
            self._disk.changed = False
            for step in self._coordination.poll():
                for take in self.on_step:
                    take(step)

    def joined(self, machine: Machine) -> None:
        """Note a broker that joins: a lock on the shared disk needs no check."""

    def look_at_the_end(self, _versions: object) -> None:
        """Check the stored state, once the cluster has recovered: all of it has been read."""

    @property
    def holder(self) -> int:
        """The broker that has claimed the latest controller epoch."""
        return self._coordination.locks.leader()


class Mistakes(logging.Handler):
    """Reports bugs of the brokers' own: what they log with a traceback, and assertions that do not hold."""

    def __init__(self, run: Run) -> None:
        super().__init__(logging.ERROR)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging`."""
        error: BaseException | None = record.exc_info[1] if record.exc_info else None
        if isinstance(record.args, tuple):
            error = next((each for each in record.args if isinstance(each, BrokenInvariantError)), error)
        if error is not None and not isinstance(error, OSError) and not is_noted(record, error):
            self._run.mistake(f"{record.getMessage()}: {error!r}", error)


class Unjudged(PartitionHistory):
    """The history of a partition whose records may be deleted or lost: only its leaders are judged."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lossy, self.promises = True, False

    def _place(self, broker_id: int, batch: Batch) -> None:
        """See `PartitionHistory`."""
