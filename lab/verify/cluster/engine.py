"""Runs cells on a cluster, one after the other (a fault affects everything that runs), and returns their outcomes.

The sessions are those of an `Engine`, with four executors of one core, two on each Worker, and with short timeouts.
Executors reach the driver through a proxy. The cluster is repaired after each cell.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import class_archive
from lab.crash_plans import arm, disarm, fired, release
from lab.network import Proxy
from lab.spark_process import SessionError
from lab.standalone import (
    DRIVER_ADDRESS,
    DRIVER_HOST,
    PROXY_ADDRESS,
    StandaloneCluster,
    hosts_file,
)
from lab.verify.cells import Moment, Outcome
from lab.verify.cluster.cells import ClusterCell, Fault, ends_the_run, must_show
from lab.verify.cluster.faults import FAULTS, FaultError, Scene, elsewhere
from lab.verify.engine import MOST_TRIES, Engine
from lab.verify.evidence import gather
from lab.verify.outcomes import outcome, trouble_of_a_busy_machine
from lab.verify.pipelines import Pipeline
from lab.verify.records import Sending, create_topic
from lab.verify.wave import (
    AFTER_THE_CRASH,
    BEFORE_THE_CRASH,
    CRASHED_BATCH,
    POLL_S,
    RECORDS_PER_BATCH,
    RUN_LIMIT_S,
)
from sparkonce.crash_points import CrashAction, CrashPlan

TASK_FAILURES = 3
"""`spark.task.maxFailures`."""
_SESSION = {
    "spark.executor.cores": "1",
    "spark.cores.max": "4",
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
    "spark.rpc.askTimeout": "60s",  # for operations that are slow on a busy machine; the default is the timeout above
}
_SPECIAL = {
    Fault.SPECULATION: {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        # Also for the tasks of a stage with only one.
        "spark.speculation.task.duration.threshold": "3s",
    },
    Fault.EXECUTORS_GIVEN_BACK: {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "3s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.dynamicAllocation.maxExecutors": "4",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    },
}
"""Additional session settings for some faults."""


class CellError(RuntimeError):
    """The cell did not run as it must; the message says why."""


@dataclass(slots=True)
class Running:
    """A cell that is running."""

    cell: ClusterCell
    folder: Path
    topic: str
    bootstrap_servers: str
    stored_in: str = ""
    """See `Locations`."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    began_wall_s: float = field(default_factory=time.time)
    runs: int = 0
    run_began_s: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    acknowledged: list[tuple[bytes, bytes]] = field(default_factory=list)
    plans: list[CrashPlan] = field(default_factory=list)
    struck: bool = False
    """Whether the fault is known to have happened."""

    @property
    def failures(self) -> int:
        """How often a task must fail at the point."""
        return TASK_FAILURES if self.cell.fault is Fault.TASK_FAILED else 1

    @property
    def query(self) -> str:
        """The name of its current run."""
        return f"{self.folder.name}#{self.runs}"

    def note(self, lane: str, what: str) -> None:
        """Add an event to the timeline."""
        self.moments.append(Moment(time.monotonic() - self.began_s, lane, what))

    def pipeline(self) -> Pipeline:
        """Return its query."""
        cell = self.cell
        return Pipeline(
            f"{cell.name}_{self.topic}", self.bootstrap_servers, self.topic, str(self.folder),
            cell.guarantee.value, cell.result.value, RECORDS_PER_BATCH,
            stored_in=self.stored_in, storage_options=self.storage_options, path=cell.path.value,
        )  # fmt: skip

    def feed(self, numbers: range) -> None:
        """Produce records."""
        self.acknowledged += Sending.begin(
            self.bootstrap_servers, self.topic, self.pipeline().records(numbers)
        ).finish()

    def release(self) -> None:
        """Release what waits at the point; a second call does nothing."""
        for plan in self.plans:
            release(plan)


@dataclass(slots=True)
class ClusterEngine:
    """Runs cells on the Kafka and in the sessions of an `Engine`."""

    around: Engine
    cluster: StandaloneCluster | None
    """None if another process has started it: then faults of its processes are not injected."""
    _links: tuple[Proxy, ...] = ()

    def run(self, cells: Sequence[ClusterCell]) -> Iterator[Outcome[ClusterCell]]:
        """Run cells and yield each outcome as soon as it is known; cells of one session run together."""
        ordered = sorted(cells, key=lambda cell: cell.fault.value if cell.fault in _SPECIAL else "")
        if not ordered:
            return
        self.around.charge("cluster")
        with contextlib.ExitStack() as stack:
            linked = {} if self.cluster is None else self._open_links(self.cluster, stack)
            for cell in ordered:
                self.around.use({**linked, **_SESSION, **_SPECIAL.get(cell.fault, {})})
                yield self._outcome(cell)
            self.around.use({})

    def _open_links(self, cluster: StandaloneCluster, stack: contextlib.ExitStack) -> dict[str, str]:
        """Put proxies between drivers and their executors; return the session settings that use them."""
        self._links = tuple(stack.enter_context(Proxy(None, PROXY_ADDRESS, DRIVER_ADDRESS)) for _ in range(2))
        rpc, blocks = self._links
        far = hosts_file(self.around.folder / "executors.hosts", PROXY_ADDRESS)
        return {
            "spark.driver.host": DRIVER_HOST,
            "spark.driver.bindAddress": DRIVER_ADDRESS,
            "spark.driver.port": str(rpc.port),
            "spark.driver.blockManager.port": str(blocks.port),
            "spark.driver.extraJavaOptions": f"-Djdk.net.hosts.file={cluster.hosts}",
            "spark.executor.extraJavaOptions": f"{class_archive.options()} -Djdk.net.hosts.file={far}",
        }

    def _outcome(self, cell: ClusterCell) -> Outcome[ClusterCell]:
        for number in range(1, MOST_TRIES + 1):
            one = self._begin(cell)
            trouble = self._guarded(lambda: self._go_through(one))  # noqa: B023 - called at once
            found = self._judged(one, trouble)
            if found.wrong is not None:
                self.around.kill_session()  # its leftovers must not disturb the next cell
            again = trouble_of_a_busy_machine(found)
            if again is None or number == MOST_TRIES:
                break
            self.around.tell(f"{cell.name} is run again: {again}")
        return found

    def _begin(self, cell: ClusterCell) -> Running:
        folder, topic = self.around.place(cell.name)
        store = self.around.store
        servers = self.around.kafka.broker.bootstrap_servers
        return Running(cell, folder, topic, servers, store.location(folder), store.storage_options)

    def _guarded(self, step: Callable[[], None]) -> str | None:
        try:
            step()
        except SessionError:
            raise  # no cell can run
        except Exception as error:  # an error of one cell does not affect the others
            return str(error) if isinstance(error, CellError | FaultError) else f"{type(error).__name__}: {error}"
        return None

    def _go_through(self, one: Running) -> None:
        """Run the pipeline into the fault and past it, and once more."""
        pipeline = one.pipeline()
        for topic in filter(None, (one.topic, pipeline.output_topic)):
            create_topic(one.bootstrap_servers, topic)
        one.feed(range(BEFORE_THE_CRASH))
        self._arm(one)
        try:
            error = self._first_run(one)
        finally:
            for number in range(len(one.plans)):
                disarm(self.around.crash_folder, f"{one.folder.name}-{number}")
            one.release()
            self._mend()
        if ends_the_run(one.cell) and error is None:
            raise CellError("the pipeline should have ended at the fault, and went on")
        if not ends_the_run(one.cell) and error is not None:
            raise CellError(f"the pipeline should have carried on after the fault: {error}")
        one.feed(range(BEFORE_THE_CRASH, BEFORE_THE_CRASH + AFTER_THE_CRASH))
        self._start(one)
        if (error := self._wait(one)) is not None:
            raise CellError(f"the pipeline did not recover: {error}")

    def _arm(self, one: Running) -> None:
        cell = one.cell
        often = cell.fault is Fault.TASK_FAILED
        action = CrashAction.RAISE if often else CrashAction.HOLD
        for number in range(one.failures * (one.pipeline().tasks if often else 1)):  # firings may be of different tasks
            plan = f"{one.pipeline().app_id}:{cell.point.value}@{CRASHED_BATCH}={action.value}"
            one.plans.append(arm(self.around.crash_folder, f"{one.folder.name}-{number}", plan))

    def _first_run(self, one: Running) -> str | None:
        """Run into the fault; return the run's error."""
        self._start(one)
        marks = list[dict[str, object]]()
        while len(marks) < one.failures:
            over, error = self.around.session().ended(one.query)
            marks = [mark for mark in map(fired, one.plans) if mark is not None]
            if over and len(marks) < one.failures:
                raise CellError(f"the pipeline did not come to its point; the run ended with: {error}")
            self._look(one)
        pid = marks[-1]["pid"]
        assert isinstance(pid, int)
        where = "a task" if one.cell.in_a_task else "the driver"
        one.note("fault", f"{where} is at {one.cell.point.value}")
        steps = FAULTS[one.cell.fault](
            Scene(one.cell, self.cluster, self.around.session(), self._links, pid, one.release, one.note)
        )
        next(steps)
        if one.cell.fault is Fault.DRIVER_MOVED:
            one.note("pipeline", "is killed")
            self._move_driver()
            error = "the driver was killed"
        else:
            error = self._wait(one)
        with contextlib.suppress(StopIteration):
            next(steps)
        one.struck = True
        return error

    def _move_driver(self) -> None:
        """Start the next session elsewhere; the one after that here again."""
        here = self.around.login
        self.around.login = elsewhere(self.around.folder / "elsewhere") if here is None else None

    def _start(self, one: Running) -> None:
        one.runs += 1
        one.note("pipeline", "starts" if one.runs == 1 else "is started again")
        one.run_began_s = time.monotonic()
        self.around.session().start(one.query, one.pipeline())

    def _wait(self, one: Running) -> str | None:
        """Wait for the end of the run; return its error."""
        while True:
            over, error = self.around.session().ended(one.query)
            if over:
                one.note("pipeline", "ends" if error is None else "ends with an error")
                if error is not None:
                    one.errors.append(error)
                return error
            self._look(one)

    def _look(self, one: Running) -> None:
        if time.monotonic() - one.run_began_s > RUN_LIMIT_S:
            raise CellError(f"run {one.runs} did not end within {RUN_LIMIT_S:g} s")
        time.sleep(POLL_S)

    def _mend(self) -> None:
        for link in self._links:
            link.heal()
        if self.cluster is not None:
            self.cluster.restore()

    def _judged(self, one: Running, trouble: str | None) -> Outcome[ClusterCell]:
        found = outcome(
            one, must_show(one.cell), _most(one), lambda: gather(one.pipeline()), self.around.second_opinion,
            fired=one.struck, trouble=trouble,
        )  # fmt: skip
        if not self.around.keep:
            shutil.rmtree(one.folder, ignore_errors=True)
        return found


def _most(one: Running) -> tuple[int, int]:
    """Return how many records may be lost or duplicated, and how often one may occur.

    One batch meets the fault, and its records occur twice. But Spark may speculate on any batch, and a task that
    fails too often has sent its rows each time.
    """
    records = len(one.acknowledged) if one.cell.fault is Fault.SPECULATION else RECORDS_PER_BATCH
    return records, 2 if one.cell.fault is not Fault.TASK_FAILED else TASK_FAILURES + 1
