"""What one cell on a cluster is: a fault of the cluster, a point at which it happens, a guarantee and a result.

Theory of operation. To a pipeline a fault of the cluster is one of three things, which the crash matrix has already:

- the run ends, and is started again (`Kind.DRIVER_KILLED`, `Kind.EXCEPTION`);
- Spark runs a task again within the run (`Kind.TASK_RETRIED`): a lost executor is that, whatever became of it;
- the run goes on, and nothing is to be seen.

So what a cell must show is what `matrix` works out for its `twin`. There is one more thing on a cluster: what Spark has
given up as lost may live, and its task may come to its end beside the new attempt. Under exactly-once that must not be
seen. A table is safe from it under every guarantee, since the driver commits what the new attempt has said. But a topic
has what is sent: at-least-once may then show duplicates, and at-most-once no loss. How far the old attempt comes before
Spark ends it is chance, so such a cell says what may be seen.
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
    """What happens to the cluster while the pipeline stands at the cell's point."""

    EXECUTOR_KILLED = "executor-killed"
    """SIGKILL of the executor whose task stands there."""
    WORKER_KILLED = "worker-killed"
    """SIGKILL of the Worker of that executor; executors end when they notice."""
    MACHINE_KILLED = "machine-killed"
    """SIGKILL of the Worker, its executors and all their Python workers at once."""
    WORKER_STOPPED = "worker-stopped"
    """SIGSTOP of all of them until the Master has given them up (`spark.worker.timeout`) and the run is over; then
    they go on."""
    MASTER_RESTARTED = "master-restarted"
    """SIGKILL of the Master, which is started again and recovers its state from files."""
    DRIVER_MOVED = "driver-moved"
    """SIGKILL of the driver, whose executors are left to notice; it is started again in another directory, by another
    user, with another home and another path of Python."""
    SPECULATION = "speculation"
    """The task stands still; Spark starts another attempt of it on the other Worker, which ends the batch."""
    TASK_FAILED = "task-failed-too-often"
    """The task raises as often as `spark.task.maxFailures` says."""
    EXECUTORS_GIVEN_BACK = "executors-given-back"
    """Dynamic allocation: idle executors are given back, the last one too, and new ones are asked for."""
    NETWORK_STALLED = "network-stalled"
    """Between executors and driver no byte comes through until the driver has given the executors up
    (`spark.network.timeout`); then the connections are closed."""
    NETWORK_CUT = "network-cut"
    """The connections between executors and driver are closed, and new ones until the executors have ended."""


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
"""What a fault is in the crash matrix; the others are none there: the run goes on."""
_LIVES_ON = frozenset({Fault.WORKER_STOPPED, Fault.SPECULATION, Fault.NETWORK_STALLED, Fault.NETWORK_CUT})
"""Faults after which the attempt that was given up may come to its end."""
_OF_ANY_POINT = frozenset(
    {
        Fault.MASTER_RESTARTED, Fault.DRIVER_MOVED, Fault.EXECUTORS_GIVEN_BACK, Fault.NETWORK_STALLED,
        Fault.NETWORK_CUT,
    }
)  # fmt: skip
"""Faults that need no task that stands at the point: the driver may stand there."""
_POINTS: tuple[CrashPoint, ...] = (
    TransactionPoint.BEGUN, SourcePoint.READING, SinkPoint.WRITING, SinkPoint.FILE_WRITTEN,
    SinkPoint.BEFORE_COMMIT, SinkPoint.BETWEEN_WRITES, SinkPoint.ROWS_LANDED,
)  # fmt: skip
"""The points of tasks, and those of the driver with one write before them or none."""


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
        """The name, which is a file name too, and is the same in every run."""
        parts = ["cluster", self.fault.value, self.point.value, self.guarantee.value, self.result.value]
        return "_".join([*parts, *path_words(self.path)])

    @property
    def in_a_task(self) -> bool:
        """Whether a task stands at the point; else the driver does."""
        return self.point in matrix.TASK_POINTS

    @property
    def only_reads(self) -> bool:
        """Whether the tasks of the pipeline only read: a function of the driver writes."""
        return self.result in matrix.BY_FUNCTION


def twin(cell: ClusterCell) -> Cell | None:
    """Return the cell of the crash matrix that shows the same; None if the run goes on and nothing is to be seen."""
    kind = _KINDS.get(cell.fault)
    if kind is Kind.TASK_RETRIED and (cell.only_reads or not cell.in_a_task):
        return None
    return None if kind is None else Cell(cell.point, kind, cell.guarantee, cell.result, False, cell.path)


def ends_the_run(cell: ClusterCell) -> bool:
    """Whether the pipeline ends at the fault, and has to be started again; otherwise it continues."""
    return cell.fault in (Fault.DRIVER_MOVED, Fault.TASK_FAILED)


def must_show(cell: ClusterCell) -> Shows:
    """Work out what must, or may, be seen in the result after the fault."""
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
    """Whether an old attempt may yet send what is otherwise lost, or Spark's idea of slow may hit other tasks too."""
    return cell.result is Result.TOPIC if shows is Shows.LOSS else cell.fault is Fault.SPECULATION


def can_occur(cell: ClusterCell) -> bool:
    """Whether the pipeline comes to the point, and the fault means something there."""
    if cell.point not in matrix.steps(cell.guarantee, cell.result):
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

    Every two that can be together are: fault, family of the result, guarantee, what is to be seen, whether a task or
    the driver stands at the point, and the path of the records; and every point with every result.
    """
    return choose(cells, _pairs, lambda cell: cell.result in BY_DELTA_SPARK, seed)


def _pairs(cell: ClusterCell) -> set[Pair]:
    main: tuple[Hashable, ...] = (
        cell.fault, _FAMILIES[cell.result], cell.guarantee, must_show(cell), cell.in_a_task, cell.path
    )  # fmt: skip
    found = {frozenset(pair) for pair in combinations(enumerate(main), 2)}
    return found | {frozenset({(len(main), cell.point), (len(main) + 1, cell.result)})}
