"""Runs cells, and says what came of each.

Cells are dealt into waves (`waves`); between waves the session lives on, unless the wave killed it. A cell that met an
error of Spark's own start-up says nothing about the pipeline, nor does one whose transactions timed out on a busy
machine before they were to; it is run again, alone.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from lab import class_archive
from lab.spark_process import Login, SessionError, SparkProcess
from lab.store.stores import LOCAL, Store
from lab.verify.brokers import Kafka
from lab.verify.cells import Cell, Kind, Outcome, RecordPath, Result
from lab.verify.evidence import broken_chain
from lab.verify.evolving import Registry
from lab.verify.matrix import BROKER_POINTS, ends_the_run, must_say, must_show
from lab.verify.outcomes import SecondOpinion, outcome, trouble_of_a_busy_machine
from lab.verify.wave import AT_ONCE, RECORDS_PER_BATCH, Running, Wave
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.runtime import worker_daemon
from sparkonce.jobs.shared.crash_plans import disarm
from sparkonce.jobs.shared.jars import delta_jars

WAVE = 10
"""Cells of one wave."""
WAVE_OF_DRIVERS, WAVE_OF_DRIVERS_ON_A_CLUSTER = 26, 13
"""Cells of one wave of those that share one kill of the driver, and what starting Spark again costs: fewer than its
session has slots for tasks."""
WAVE_OF_LONERS = 30
"""Cells of one wave of those that share no victim: the fewer waves, the less often a core idles while the last run. A
cell's own broker runs from the beginning of its wave."""
MOST_TRIES = 4
SESSION = {
    "spark.master": "local[32]",  # tasks that hold keep a slot each; none is tried a second time
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}
RETRYING = {"spark.master": "local[32,2]"}
"""What of `SESSION` is different where Spark is to run a task again."""
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
"""What is different where tasks run on a cluster: two executors on each of two workers, with a core for each task that
holds. The cluster's processes are on this machine, where the crash plans are."""
RETRYING_ON_A_CLUSTER = {"spark.task.maxFailures": "2"}


def merge_session(scheme: str = "") -> dict[str, str]:
    """Return the settings of a session that merges too; jars with the scheme ``local:`` are not copied to executors.

    Raises:
        PeerMissingError: if delta-spark's jars are not to be had.
    """
    return {
        "spark.jars": ",".join(f"{scheme}{jar}" for jar in delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


@dataclass(slots=True)
class Spent:
    """What cells of one kind took."""

    starts: int = 0
    """How often Spark was started for them."""
    cpu_s: float = 0.0
    """CPU seconds of Spark and its Python processes."""


@dataclass(slots=True)
class Engine:
    """Runs cells on one Kafka, in Spark sessions that it starts as it needs them."""

    kafka: Kafka
    folder: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    retrying: Mapping[str, str] = field(default_factory=lambda: RETRYING)
    """What is different in a session in which Spark runs tasks again."""
    store: Store = LOCAL
    """Where tables and checkpoints are."""
    keep: bool = False
    """Whether the tables and checkpoints of cells stay when they have been judged."""
    second_opinion: SecondOpinion = broken_chain
    tell: Callable[[str], None] = print
    """Takes lines that are not outcomes."""
    progress: Callable[[str], None] = lambda _line: None
    """Receives progress lines for the user; results are not among them."""
    login: Login | None = None
    """Who starts the next session, and where; by default as this process, in `folder`."""
    spent: dict[str, Spent] = field(default_factory=dict)
    _session: SparkProcess | None = None
    _spent: Spent = field(default_factory=Spent)
    """Where the session's CPU time belongs at present."""
    _charged_s: float = 0.0
    """How much of the session's CPU time is in `spent`."""
    _registry: Registry | None = None
    _special: Mapping[str, str] = field(default_factory=dict)
    """What is different in the session that runs, or the next one."""
    _numbers: Iterator[int] = field(default_factory=count)
    _run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def crash_folder(self) -> Path:
        """Where plans for the sessions' processes lie."""
        return self.folder / "plans"

    def session(self) -> SparkProcess:
        """Return the running session; starts one if there is none."""
        if self._session is None or not self._session.is_alive:
            self._end_session()
            self.crash_folder.mkdir(parents=True, exist_ok=True)
            self.progress("starting Spark, which takes some seconds")
            settings = {**SESSION, **self.conf, **self._special}
            self._spent.starts += 1
            self._session = SparkProcess(settings, self.crash_folder, self.login or Login(self.folder))
        return self._session

    def session_or_none(self) -> SparkProcess | None:
        """Return the session that runs, if one does."""
        return self._session

    def kill_session(self) -> None:
        """SIGKILL the session; the next one is started when it is needed."""
        if self._session is not None:
            self._session.kill()

    def charge(self, kind: str) -> None:
        """Have what the session takes from now on belong to cells of this kind."""
        self._count_cpu()
        self._spent = self.spent.setdefault(kind, Spent())

    def _count_cpu(self) -> None:
        if self._session is not None:
            cpu_s = self._session.cpu_s
            self._spent.cpu_s += cpu_s - self._charged_s
            self._charged_s = cpu_s

    def use(self, special: Mapping[str, str]) -> None:
        """Have the next cells run in a session with these settings, beside those of all sessions."""
        if special != self._special:
            self._end_session()
            self._special = special

    def place(self, name: str) -> tuple[Path, str]:
        """Return a new folder and the name of a new topic for the cell of that name."""
        number = next(self._numbers)
        folder = self.folder / f"{number:04d}_{name}"
        folder.mkdir(parents=True)
        self.crash_folder.mkdir(exist_ok=True)
        return folder, f"verify-{self._run_id}-{number:04d}"

    def close(self) -> None:
        """End the session, and what else was started."""
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
        """Run cells and yield their outcomes, wave by wave, each as soon as it is judged."""
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
            raise  # nothing can be run at all
        except Exception as error:
            self._end_session()  # what the cells have left running there would be in the way
            for one in left.values():
                one.trouble.append(f"{type(error).__name__}: {error}")
        for one in left.values():
            yield self._judged(one)

    def _judged(self, one: Running) -> Outcome[Cell]:
        found = outcome(
            one, must_show(one.cell), (RECORDS_PER_BATCH, 2), lambda: one.evidence, self.second_opinion,
            fired=one.seen_firing, trouble=one.trouble[0] if one.trouble else _why_wrong(one),
        )  # fmt: skip
        # What is run again has the same appId: what is still armed for the first try would hit the second.
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
        if cell.path is RecordPath.DIRECT and cell.result is Result.DEAD_LETTERS:
            self._registry = self._registry or Registry()
            running.registry = self._registry
        running.stored_in, running.storage_options = self.store.location(folder), self.store.storage_options
        return running


def waves(cells: Sequence[Cell], drivers: int = WAVE_OF_DRIVERS) -> list[tuple[Cell, ...]]:
    """Deal cells into waves: those that share a kill or settings together; what needs no kill comes first.

    ``drivers`` is how many cells may share a kill of the driver.
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
    dealt[:0] = impatient  # a driver's own transaction lasts for seconds: it cannot wait until all others hold
    # A broker that holds does not respond, and clients time out after a while: such cells come last in their wave.
    return [tuple(sorted(wave, key=lambda cell: cell.point in BROKER_POINTS)) for wave in dealt]


def _timed_out_early(cells: Sequence[Cell]) -> list[Cell]:
    """Let others run while transactions time out, but a few before: the first batches of a session take long."""
    patient = [cell for cell in cells if cell.kind is Kind.TRANSACTION_TIMED_OUT]
    others = [cell for cell in cells if cell.kind is not Kind.TRANSACTION_TIMED_OUT]
    return [*others[:AT_ONCE], *patient, *others[AT_ONCE:]]


def _batched(cells: Sequence[Cell], size: int) -> Iterator[tuple[Cell, ...]]:
    return (tuple(cells[begin : begin + size]) for begin in range(0, len(cells), size))


def _why_wrong(one: Running) -> str | None:
    """Say what is wrong with how the cell went, whatever is in its table."""
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
    """Return what the error says of a cell whose transactions timed out before they were to."""
    words = must_say(found.cell)
    return [] if found.fired or words is None else [words]
