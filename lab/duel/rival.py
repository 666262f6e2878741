"""Controls one driver: read its output, arm its crash points, pause and resume all its processes.

A driver is several processes: Python, the JVM, Spark's daemons and their workers, some in separate process groups.
All are in the driver's process session, so that is what is stopped (SIGSTOP) and continued (SIGCONT).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from lab.child_process import ChildEndedError, ChildProcess, session_members
from lab.crash_plans import arm
from lab.duel.driver import Settings
from sparkonce.crash_points import FOLDER_VARIABLE, CrashPlan

LIMIT_S = 240.0
"""The timeout of any wait: Spark's start is the longest."""
POLL_S = 0.02


class DuelError(RuntimeError):
    """The duel could not be run: a driver died, or nothing happened for too long."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a query, and the line of its error with the reason."""

    query_id: str
    error: str

    @property
    def is_fenced(self) -> bool:
        """Whether the sink found at its commit that another driver had written the batch."""
        return "FencedError" in self.error

    @property
    def is_refused(self) -> bool:
        """Whether the sink found before the tasks ran that the table had moved on."""
        return "OffsetMismatchError" in self.error


class Rival(ChildProcess):
    """One driver; it ends only when it is killed."""

    def __init__(self, name: str, settings: Settings, folder: Path) -> None:
        self.name = name
        self._queries: list[str] = []
        self._stops: list[Stop] = []
        self._plans = folder / f"{name}.plans"
        self._plans.mkdir(parents=True)
        environment = {**os.environ, FOLDER_VARIABLE: str(self._plans)}
        super().__init__("lab.duel.driver", asdict(settings), folder / f"{name}.log", environment)

    @property
    def queries(self) -> list[str]:
        """Ids of the queries that it has started."""
        self._look()
        return self._queries

    @property
    def stops(self) -> list[Stop]:
        """How its queries have ended."""
        self._look()
        return self._stops

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for a condition.

        Raises:
            DuelError: if it takes too long, or the driver dies.
        """
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            if not self.is_alive:
                raise DuelError(f"driver {self.name} died; its log ends with:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise DuelError(
                    f"{what} did not happen within {LIMIT_S:g} s; {self.name}'s log ends:\n{self.log_tail()}"
                )
            time.sleep(POLL_S)

    def happens(self, happened: Callable[[], bool], within_s: float) -> bool:
        """Whether a condition becomes true soon."""
        deadline = time.monotonic() + within_s
        while not happened() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return happened()

    def arm(self, name: str, plan: str) -> CrashPlan:
        """Arm a point of this driver alone."""
        return arm(self._plans, name, plan)

    def pause(self) -> None:
        """Stop every process; returns when all are stopped."""
        while running := [each for each in session_members(self.pid) if _is_going(each)]:
            for process in running:  # again for processes forked meanwhile
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGSTOP)
            time.sleep(POLL_S)

    def resume(self) -> None:
        """Continue every process."""
        for process in session_members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def _look(self) -> None:
        """Read new events."""
        with contextlib.suppress(ChildEndedError):
            while event := self.receive(0):
                if "started" in event:
                    self._queries.append(event["started"])
                else:
                    self._stops.append(Stop(event["ended"], event["error"]))


def _is_going(process: psutil.Process) -> bool:
    try:
        return bool(process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return False
