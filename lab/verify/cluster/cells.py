"""A cell on a cluster: a fault of the cluster, a point at which it happens, a guarantee and a result.

Theory of operation. For a pipeline a cluster fault is one of three cases, which the crash matrix already has:

- the run ends, and is restarted (`Kind.DRIVER_KILLED`, `Kind.EXCEPTION`);
- Spark retries a task within the run (`Kind.TASK_RETRIED`): a lost executor is that, however it was lost;
- the run continues, without any effect.

So a cell must show what `matrix` computes for its `twin`. One more case exists on a cluster: an attempt that Spark has
given up as lost may still run, and its task may finish beside the new attempt. Under exactly-once that must have no
effect. A table is safe from it under every guarantee, since the driver commits the new attempt's result. But a topic
keeps what is sent: at-least-once may then show duplicates, and at-most-once no loss. The old attempt's progress before
Spark ends it is random, so such a cell lists what is possible.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import combinations, product

from lab.verify import matrix
from lab.verify.cells import BY_DELTA_SPARK, Cell, Kind, RecordPath, Result, Shows, path_words
from lab.verify.pairwise import Pair, choose
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee


class Fault(Enum):
    """The fault of the cluster while the pipeline waits at the cell's point."""

    EXECUTOR_KILLED = "executor-killed"
    """SIGKILL of the executor whose task waits there."""
    WORKER_KILLED = "worker-killed"
    """SIGKILL of that executor's Worker; executors end when they notice."""
    MACHINE_KILLED = "machine-killed"
    """SIGKILL of the Worker, its executors and all their Python workers at once."""
    WORKER_STOPPED = "worker-stopped"
    """SIGSTOP of all of them until the Master has given them up (`spark.worker.timeout`) and the run has ended; then
    SIGCONT."""
    MASTER_RESTARTED = "master-restarted"
    """SIGKILL of the Master, which is restarted and recovers its state from files."""
    DRIVER_MOVED = "driver-moved"
    """SIGKILL of the driver, whose executors must notice; it is restarted in another directory, by another
    user, with another home and another path of Python."""
    SPECULATION = "speculation"
    """The task waits; Spark starts another attempt on the other Worker, which ends the batch."""
    TASK_FAILED = "task-failed-too-often"
    """The task raises until `spark.task.maxFailures` is reached."""
    EXECUTORS_GIVEN_BACK = "executors-given-back"
    """Dynamic allocation: idle executors are released, even the last one, and new ones are requested."""
    NETWORK_STALLED = "network-stalled"
    """The connections between executors and driver stall until the driver has given the executors up
    (`spark.network.timeout`); then they are closed."""
    NETWORK_CUT = "network-cut"
    """The connections between executors and driver are closed, and new ones refused, until the executors have ended."""


_KINDS = {
    Fault.EXECUTOR_KILLED: Kind.TASK_RETRIED,
    Fault.WORKER_KILLED: Kind.TASK_RETRIED,
    Fault.MACHINE_KILLED: Kind.TASK_RETRIED,
    Fault.WORKER_STOPPED: Kind.TASK_RETRIED,
    Fault.SPECULATION: Kind.TASK_RETRIED,
    Fault.NETWORK_STALLED: Kind.TASK_RETRIED,
    Fault.NETWORK_CUT: Kind.TASK_RETRIED,
    Fault.DRIVER_MOVED: Kind.DRIVER_KILLED,
    Fault.TASK_FAILED: Kind.EXCEPTION,
}
"""The equivalent of a fault in the crash matrix; the others have none: the run continues."""
_LIVES_ON = frozenset({Fault.WORKER_STOPPED, Fault.SPECULATION, Fault.NETWORK_STALLED, Fault.NETWORK_CUT})
"""Faults after which the lost attempt may finish."""
_OF_ANY_POINT = frozenset(
    {
        Fault.MASTER_RESTARTED, Fault.DRIVER_MOVED, Fault.EXECUTORS_GIVEN_BACK, Fault.NETWORK_STALLED,
        Fault.NETWORK_CUT,
    }
)  # fmt: skip
"""Faults that do not need a task at the point: the driver may wait there."""
_POINTS: tuple[CrashPoint, ...] = (
    TransactionPoint.BEGUN, SourcePoint.READING, SinkPoint.WRITING, SinkPoint.FILE_WRITTEN,
    SinkPoint.BEFORE_COMMIT, SinkPoint.BETWEEN_WRITES, SinkPoint.ROWS_LANDED,
)  # fmt: skip
"""Points of tasks, and those of the driver after at most one write."""


@dataclass(frozen=True, slots=True, order=True)
class ClusterCell:
    """One fault of the cluster under one pipeline."""

    fault: Fault
    point: CrashPoint
    guarantee: Guarantee
    result: Result
    path: RecordPath = RecordPath.SPARK

    @property
    def name(self) -> str:
        """A name that is a valid file name, and the same in every run."""
        parts = ["cluster", self.fault.value, self.point.value, self.guarantee.value, self.result.value]
        return "_".join([*parts, *path_words(self.path)])

    @property
    def in_a_task(self) -> bool:
        """Whether a task waits at the point; otherwise the driver does."""
        return self.point in matrix.TASK_POINTS

    @property
    def only_reads(self) -> bool:
        """Whether the pipeline's tasks only read: a function in the driver writes."""
        return self.result in matrix.BY_FUNCTION


def twin(cell: ClusterCell) -> Cell | None:
    """Return the equivalent cell of the crash matrix; None if the run continues without any effect."""
    kind = _KINDS.get(cell.fault)
    if kind is Kind.TASK_RETRIED and (cell.only_reads or not cell.in_a_task):
        return None
    return None if kind is None else Cell(cell.point, kind, cell.guarantee, cell.result, False, cell.path)


def ends_the_run(cell: ClusterCell) -> bool:
    """Whether the pipeline ends at the fault, and must be restarted; otherwise it continues."""
    return cell.fault in (Fault.DRIVER_MOVED, Fault.TASK_FAILED)


def must_show(cell: ClusterCell) -> Shows:
    """Return what the result after the fault must, or may, show."""
    same = twin(cell)
    if same is None:
        return Shows.NEITHER
    shows = matrix.must_show(same)
    if cell.fault not in _LIVES_ON:
        return shows
    if cell.guarantee is Guarantee.AT_LEAST_ONCE and shows is Shows.NEITHER and cell.result in matrix.SENDING:
        return Shows.MAYBE_DUPLICATES
    if cell.guarantee is Guarantee.AT_MOST_ONCE and _loses_by_chance(cell, shows):
        return Shows.MAYBE_LOSS
    return shows


def _loses_by_chance(cell: ClusterCell, shows: Shows) -> bool:
    """Whether an old attempt may send records that are otherwise lost, or speculation may affect other tasks too."""
    return cell.result is Result.TOPIC if shows is Shows.LOSS else cell.fault is Fault.SPECULATION


def can_occur(cell: ClusterCell) -> bool:
    """Whether the pipeline reaches the point, and the fault has an effect there."""
    if cell.point not in matrix.steps_of_one(cell.guarantee, cell.result):
        return False
    if not cell.in_a_task and cell.fault not in _OF_ANY_POINT:
        return False
    if cell.path is RecordPath.DIRECT and cell.only_reads:
        return False
    same = twin(cell)
    return same is None or matrix.why_impossible(same) is None


@cache
def all_faults() -> tuple[ClusterCell, ...]:
    """Return every cell that can occur, in one fixed order."""
    return tuple(_possible())


def _possible() -> Iterator[ClusterCell]:
    cells = (ClusterCell(*values) for values in product(Fault, _POINTS, Guarantee, Result, RecordPath))
    return (cell for cell in cells if can_occur(cell))


_FAMILIES = {
    Result.APPEND: "a table",
    Result.MERGE: "a function", Result.APPEND_WRITER: "a function", Result.FOREACH_BATCH: "a function",
    Result.TOPIC: "a topic", Result.DEAD_LETTERS: "a topic",
}  # fmt: skip


def quick_faults(cells: Sequence[ClusterCell], seed: int = 0) -> tuple[ClusterCell, ...]:
    """Return a pairwise choice, the same for the same seed.

    Every possible pair is covered of: fault, family of the result, guarantee, what it shows, whether a task or
    the driver waits at the point, and the path of the records; and every point with every result.
    """
    return choose(cells, _pairs, lambda cell: cell.result in BY_DELTA_SPARK, seed)


def _pairs(cell: ClusterCell) -> set[Pair]:
    main: tuple[Hashable, ...] = (
        cell.fault, _FAMILIES[cell.result], cell.guarantee, must_show(cell), cell.in_a_task, cell.path
    )  # fmt: skip
    found = {frozenset(pair) for pair in combinations(enumerate(main), 2)}
    return found | {frozenset({(len(main), cell.point), (len(main) + 1, cell.result)})}
