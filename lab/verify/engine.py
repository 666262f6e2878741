"""Runs cells, and returns their outcomes.

Cells are run in waves (`waves`); between waves the session is kept, unless the wave killed it. A cell with an
error of Spark's own start-up says nothing about the pipeline, nor does one whose transactions timed out too early on
a busy machine; it is run again, alone.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from lab import class_archive
from lab.crash_plans import disarm
from lab.spark_process import Login, SessionError, SparkProcess
from lab.store.stores import LOCAL, Store
from lab.verify.brokers import Kafka
from lab.verify.cells import Cell, Features, Kind, Outcome, RecordPath, Result
from lab.verify.evidence import broken_chain
from lab.verify.evolving import Registry
from lab.verify.features import make
from lab.verify.matrix import BROKER_POINTS, ends_the_run, must_say, must_show
from lab.verify.outcomes import SecondOpinion, outcome, trouble_of_a_busy_machine
from lab.verify.wave import AT_ONCE, RECORDS_PER_BATCH, Running, Wave
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.runtime import worker_daemon
from sparkonce.jobs.shared.jars import delta_jars

WAVE = 10
"""Cells per wave."""
WAVE_OF_DRIVERS, WAVE_OF_DRIVERS_ON_A_CLUSTER = 26, 13
"""Cells per wave that share one kill of the driver, and so one restart of Spark: fewer than the
session's task slots."""
WAVE_OF_LONERS = 30
"""Cells per wave that share no victim: the fewer waves, the less often a core idles during the last run. A
cell's own broker runs from the beginning of its wave."""
MOST_TRIES = 4
SESSION = {
    "spark.master": "local[32]",  # each waiting task keeps a slot; no task is retried
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}
RETRYING = {"spark.master": "local[32,2]"}
"""Settings that differ from `SESSION` where Spark must retry a task."""
ON_A_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "768m",
    "spark.executor.cores": "4",
    "spark.cores.max": "16",
    "spark.task.maxFailures": "1",
    "spark.executor.extraJavaOptions": class_archive.options(),
    "spark.python.daemon.module": worker_daemon.MODULE,
}
"""Settings that differ where tasks run on a cluster: two executors on each of two workers, with a core for each waiting
task. The cluster's processes are on this machine, where the crash plans are."""
RETRYING_ON_A_CLUSTER = {"spark.task.maxFailures": "2"}


def merge_session(scheme: str = "") -> dict[str, str]:
    """Return the settings of a session with MERGE; jars with the scheme ``local:`` are not copied to executors.

    Raises:
        PeerMissingError: if delta-spark's jars are not available.
    """
    return {
        "spark.jars": ",".join(f"{scheme}{jar}" for jar in delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


@dataclass(slots=True)
class Spent:
    """The cost of cells of one kind."""

    starts: int = 0
    """The number of Spark's starts for them."""
    cpu_s: float = 0.0
    """CPU seconds of Spark and its Python processes."""


@dataclass(slots=True)
class Engine:
    """Runs cells on one Kafka, in Spark sessions started on demand."""

    kafka: Kafka
    folder: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    retrying: Mapping[str, str] = field(default_factory=lambda: RETRYING)
    """Settings that differ in a session that retries tasks."""
    store: Store = LOCAL
    """The storage of tables and checkpoints."""
    keep: bool = False
    """Whether the cells' tables and checkpoints are kept."""
    second_opinion: SecondOpinion = broken_chain
    tell: Callable[[str], None] = print
    """Receives lines that are not outcomes."""
    progress: Callable[[str], None] = lambda _line: None
    """Receives lines of progress; no results."""
    login: Login | None = None
    """The user and folder of the next session; by default this process's user, and `folder`."""
    spent: dict[str, Spent] = field(default_factory=dict)
    _session: SparkProcess | None = None
    _spent: Spent = field(default_factory=Spent)
    """The kind of cells that the session's CPU time is charged to."""
    _charged_s: float = 0.0
    """The session's CPU time already in `spent`."""
    _registry: Registry | None = None
    _templates: Path | None = None
    _special: Mapping[str, str] = field(default_factory=dict)
    """Settings that differ in the current or next session."""
    _numbers: Iterator[int] = field(default_factory=count)
    _run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def crash_folder(self) -> Path:
        """The folder of crash plans for the sessions' processes."""
        return self.folder / "plans"

    def session(self) -> SparkProcess:
        """Return the running session; start one if there is none."""
        if self._session is None or not self._session.is_alive:
            self._end_session()
            self.crash_folder.mkdir(parents=True, exist_ok=True)
            self.progress("starting Spark, which takes some seconds")
            settings = {**SESSION, **self.conf, **self._special}
            self._spent.starts += 1
            self._session = SparkProcess(settings, self.crash_folder, self.login or Login(self.folder))
        return self._session

    def session_or_none(self) -> SparkProcess | None:
        """Return the running session, or None."""
        return self._session

    def kill_session(self) -> None:
        """SIGKILL the session; the next one is started on demand."""
        if self._session is not None:
            self._session.kill()

    def charge(self, kind: str) -> None:
        """Charge the session's CPU time from now on to cells of this kind."""
        self._count_cpu()
        self._spent = self.spent.setdefault(kind, Spent())

    def _count_cpu(self) -> None:
        if self._session is not None:
            cpu_s = self._session.cpu_s
            self._spent.cpu_s += cpu_s - self._charged_s
            self._charged_s = cpu_s

    def use(self, special: Mapping[str, str]) -> None:
        """Run the next cells in a session with these settings, besides those of all sessions."""
        if special != self._special:
            self._end_session()
            self._special = special

    def place(self, name: str) -> tuple[Path, str]:
        """Return a new folder and the name of a new topic for a cell."""
        number = next(self._numbers)
        folder = self.folder / f"{number:04d}_{name}"
        folder.mkdir(parents=True)
        self.crash_folder.mkdir(exist_ok=True)
        return folder, f"verify-{self._run_id}-{number:04d}"

    def template(self, features: Features) -> Path:
        """Return a table with these features; delta-spark makes all on first use."""
        if self._templates is None:
            self.progress("making tables with features")
            self._templates = make(self.session(), self.folder / "templates")
        return self._templates / features.value

    def close(self) -> None:
        """End the session, and all else that was started."""
        self._end_session()
        if self._registry is not None:
            self._registry.close()
            self._registry = None

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._count_cpu()
            self._session, self._charged_s = None, 0.0

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome[Cell]]:
        """Run cells wave by wave, and yield each outcome as soon as it is known."""
        left, tries = list(cells), 0
        on_a_cluster = "spark.cores.max" in self.conf
        drivers = WAVE_OF_DRIVERS_ON_A_CLUSTER if on_a_cluster else WAVE_OF_DRIVERS
        while left:
            tries += 1
            again: list[Cell] = []
            for wave in [(cell,) for cell in left] if tries > 1 else waves(left, drivers=drivers):
                for found in self._wave(wave):
                    trouble = trouble_of_a_busy_machine(found, *_too_early(found)) if tries < MOST_TRIES else None
                    if trouble is not None:
                        self.tell(f"{found.cell.name} is run again: {trouble}")
                        again.append(found.cell)
                    else:
                        yield found
            left = again

    def _wave(self, cells: Sequence[Cell]) -> Iterator[Outcome[Cell]]:
        kinds = {cell.kind for cell in cells}
        self.charge(kinds.pop().value if len(kinds) == 1 else "several kinds")
        self.use(self.retrying if cells[0].kind is Kind.TASK_RETRIED else {})
        running = [self._begin(cell) for cell in cells]
        left = {one.folder: one for one in running}
        try:
            for one in Wave(running, self).run():
                found = self._judged(one)
                del left[one.folder]
                yield found
        except SessionError:
            raise  # no cell can run
        except Exception as error:
            self._end_session()  # queries that the cells have left running would interfere
            for one in left.values():
                one.trouble.append(f"{type(error).__name__}: {error}")
        for one in left.values():
            yield self._judged(one)

    def _judged(self, one: Running) -> Outcome[Cell]:
        found = outcome(
            one, must_show(one.cell), (RECORDS_PER_BATCH * one.pipeline().topics, 2), lambda: one.evidence,
            self.second_opinion,
            fired=one.seen_firing, trouble=one.trouble[0] if one.trouble else _why_wrong(one),
        )  # fmt: skip
        # A second run has the same appId: plans still armed for the first one would hit it.
        disarm(one.crash_folder, one.folder.name)
        disarm(self.crash_folder, one.anchor_name)
        if not self.keep:
            shutil.rmtree(one.folder, ignore_errors=True)
        return found

    def _begin(self, cell: Cell) -> Running:
        folder, topic = self.place(cell.name)
        if cell.point in BROKER_POINTS:
            assert self.kafka.own_broker is not None, "cells that cannot run here were left out"
            own = self.kafka.own_broker(folder)
            running = Running(cell, folder, topic, own, folder, own)
        else:
            running = Running(cell, folder, topic, self.kafka.broker, self.crash_folder)
        if cell.path is RecordPath.DIRECT and cell.result is Result.DEAD_LETTERS and cell.shared is None:
            self._registry = self._registry or Registry()
            running.registry = self._registry
        if cell.features is not None:
            running.template = self.template(cell.features)
        running.stored_in, running.storage_options = self.store.location(folder), self.store.storage_options
        return running


def waves(cells: Sequence[Cell], drivers: int = WAVE_OF_DRIVERS) -> list[tuple[Cell, ...]]:
    """Divide cells into waves: those that share a kill or settings together; cells without a kill come first.

    At most ``drivers`` cells share a kill of the driver.
    """
    groups: dict[str, list[Cell]] = {"alone": [], "broker": [], "driver": [], "retrying": []}
    impatient = []
    for cell in cells:
        if cell.kind is Kind.DRIVER_KILLED:
            groups["driver"].append(cell)
        elif cell.kind is Kind.BROKER_KILLED and cell.point is TransactionPoint.DECIDING:
            impatient.append((cell,))
        elif cell.kind is Kind.TASK_RETRIED:
            groups["retrying"].append(cell)
        elif cell.kind is Kind.BROKER_KILLED and cell.point not in BROKER_POINTS:
            groups["broker"].append(cell)
        else:
            groups["alone"].append(cell)
    groups["alone"] = _timed_out_early(groups["alone"])
    sizes = {"alone": WAVE_OF_LONERS, "driver": drivers}
    dealt = [wave for name, members in groups.items() for wave in _batched(members, sizes.get(name, WAVE))]
    dealt[:0] = impatient  # a driver's own transaction lasts for seconds: it cannot wait until all others have stopped
    # A stopped broker does not respond, and clients time out after a while: such cells come last in their wave.
    return [tuple(sorted(wave, key=lambda cell: cell.point in BROKER_POINTS)) for wave in dealt]


def _timed_out_early(cells: Sequence[Cell]) -> list[Cell]:
    """Overlap transaction timeouts with other cells, after a few others: a session's first batches are slow."""
    patient = [cell for cell in cells if cell.kind is Kind.TRANSACTION_TIMED_OUT]
    others = [cell for cell in cells if cell.kind is not Kind.TRANSACTION_TIMED_OUT]
    return [*others[:AT_ONCE], *patient, *others[AT_ONCE:]]


def _batched(cells: Sequence[Cell], size: int) -> Iterator[tuple[Cell, ...]]:
    return (tuple(cells[begin : begin + size]) for begin in range(0, len(cells), size))


def _why_wrong(one: Running) -> str | None:
    """Return what is wrong with how the cell ran, whatever is in its table."""
    if not one.seen_firing:
        return "the fault did not fire" + (f"; the run ended with: {one.errors[0]}" if one.errors else "")
    ends = [moment.what for moment in one.moments if moment.lane == "pipeline" and "start" not in moment.what]
    if len(ends) != 2:
        return f"expected two runs of the pipeline, found {len(ends)}"
    if ends[1] != "ends":
        return f"the pipeline did not recover: {one.errors[-1] if one.errors else ends[1]}"
    if ends_the_run(one.cell) and ends[0] == "ends":
        return "the pipeline should have ended at the fault, and went on"
    first = one.errors[0] if one.errors else ends[0]
    if (words := must_say(one.cell)) is not None and words not in first:
        return f"the pipeline ended, and its error does not say {words}: {first}"
    if not ends_the_run(one.cell) and ends[0] != "ends":
        return f"the pipeline should have carried on after the fault: {first}"
    return None


def _too_early(found: Outcome[Cell]) -> list[str]:
    """Return the error of a cell whose transactions timed out too early."""
    words = must_say(found.cell)
    return [] if found.fired or words is None else [words]
