"""One run: flights are published for some minutes, and every few seconds a process is killed.

Theory of operation: a publisher sends the flights at an even pace. The job reads them, continuously, on a cluster; a
supervisor restarts it whenever it ends, and the cluster's workers, too. Every `Course.every_s` seconds a process
is killed by SIGKILL, in turn: an executor, a worker with its executors, the driver with its JVM and workers. A turn
waits for its victim: a kill that hits nothing proves nothing. The driver is killed only after it has committed since
its start: on a busy machine it would otherwise never reach its first batch. When the last flight is published,
the kills end, and the run continues until the table has a row for each flight. Then the job runs once more, to
detect rows that a start after the last kill writes again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import cycle

import psutil
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lab.child_process import kill_processes, session_members
from lab.endurance.publisher import POLL_S, Publisher
from lab.endurance.supervised_job import SupervisedJob
from lab.job_process import JobFailedError
from lab.standalone import Daemon, StandaloneCluster
from sparkonce.jobs.etl import dataset

DRAIN_LIMIT_S = 900.0
"""How long the job may take for the rest after the last kill."""
MOST_FAILURES = 20
"""How often the job may fail: it may if it loses all its executors at once."""

EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Victim(Enum):
    """The process to kill."""

    EXECUTOR = "executor"
    WORKER = "worker"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Table:
    """Where the rows go."""

    uri: str
    storage_options: dict[str, str]

    def rows(self) -> int:
        """Return its number of rows, by its log; 0 if it does not exist yet."""
        try:
            table = DeltaTable(self.uri, storage_options=self.storage_options)
        except TableNotFoundError:
            return 0
        return sum(table.get_add_actions().column("num_records").to_pylist())


@dataclass(slots=True)
class Course:
    """The parts of one run.

    Args:
        cluster: that the job runs on.
        job: the job.
        table: that it fills.
        minutes: how long the flights are published.
        every_s: seconds between two kills.
        tell: receives a line for each event.
    """

    cluster: StandaloneCluster
    job: SupervisedJob
    table: Table
    minutes: float
    every_s: float
    tell: Callable[[str], None]
    kills: Counter[Victim] = field(default_factory=Counter)
    _rows_at_start: int = 0
    """The table's number of rows when the current run of the job began."""
    _began_s: float = field(default_factory=time.monotonic)

    def run(self, bootstrap_servers: str, topic: str) -> None:
        """Publish, kill, and wait until the table has all rows.

        Raises:
            JobFailedError: if the job fails too often, or does not come to its end.
            PublishError: if flights were not acknowledged.
        """
        flights = dataset.flights()
        publisher = Publisher(bootstrap_servers, topic, dataset.messages(flights), flights.num_rows, self.minutes)
        publisher.start()
        turns, due_s = cycle(Victim), self._began_s + self.every_s
        victim = next(turns)
        while publisher.is_alive():
            self._keep_up()
            if time.monotonic() >= due_s and self._kill(victim):
                due_s, victim = time.monotonic() + self.every_s, next(turns)
            time.sleep(POLL_S)
        publisher.check()
        self.tell(f"all {flights.num_rows} flights are published; nothing more is killed")
        self._drain(flights.num_rows)

    def _drain(self, rows: int) -> None:
        until_s = time.monotonic() + DRAIN_LIMIT_S
        while (found := self.table.rows()) < rows:
            self._keep_up()
            if time.monotonic() > until_s:
                raise JobFailedError(f"the table has {found} of {rows} rows; {self.job.log_tail()}")
            time.sleep(POLL_S)

    def _keep_up(self) -> None:
        for worker in self.cluster.workers:
            if not worker.is_alive:
                worker.start()
                self.tell(f"{self._now()} {worker.name} is started again")
        if self.job.keep_up():
            self._rows_at_start = self.table.rows()
            self.tell(f"{self._now()} the job is started again; the table has {self._rows_at_start} rows")
            if self.job.failures > MOST_FAILURES:
                raise JobFailedError(f"the job failed more than {MOST_FAILURES} times; {self.job.log_tail()}")

    def _kill(self, victim: Victim) -> bool:
        """Kill the next one of a kind; return whether there was one."""
        working = [(worker, executors) for worker in self.cluster.workers if (executors := _executors(worker))]
        if not working:
            return False  # the job has only just started: a kill would hit nothing
        if victim is Victim.DRIVER and self.table.rows() == self._rows_at_start:
            return False
        worker, executors = working[self.kills[victim] % len(working)]
        match victim:
            case Victim.EXECUTOR:
                killed, what = kill_processes(executors[:1]), f"an executor of {worker.name}"
            case Victim.WORKER:
                killed, what = worker.kill_all(), f"{worker.name} and its {len(executors)} executors"
            case Victim.DRIVER:
                killed, what = self.job.kill(), "the driver, its JVM and its Python workers"
        if not killed:
            return False  # it has just ended
        self.kills[victim] += 1
        self.tell(f"{self._now()} killed: {what}; the table has {self.table.rows()} rows")
        return True

    def _now(self) -> str:
        return f"{time.monotonic() - self._began_s:6.1f} s"


def _executors(worker: Daemon) -> list[psutil.Process]:
    return [process for process in session_members(worker.pid) if _is_executor(process)]


def _is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return EXECUTOR_CLASS in process.cmdline()
    return False
