"""What one cell of the matrix is, and what came of it: the words that matrix, engine, judge and report share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.guarantee import Guarantee


class Kind(Enum):
    """How a cell is made to fail."""

    EXCEPTION = "exception"
    """The code that reached the point raises."""
    DRIVER_KILLED = "driver killed"
    """SIGKILL of the driver, its JVM and all Python workers."""
    WORKER_KILLED = "worker killed"
    """SIGKILL of the Python process that reached the point, and of nothing else."""
    BROKER_KILLED = "broker killed"
    """SIGKILL of the broker while the pipeline stands at the point; then it is started again."""
    LOST_ACKNOWLEDGEMENT = "lost acknowledgement"
    """A step has landed, and its caller gets an error."""
    DISK_FULL = "disk full"
    """Writing fails with ENOSPC."""
    TASK_RETRIED = "task retried"
    """SIGKILL of the Python process of a task, which Spark then runs again within the same query."""
    TRANSACTION_TIMED_OUT = "transaction timed out"
    """The pipeline stands at the point until Kafka has aborted its transactions, as `transaction.timeout.ms` says."""


class Result(Enum):
    """What the pipeline does with its rows."""

    APPEND = "append"
    """`delta_once` appends them."""
    MERGE = "merge"
    """`foreachBatch` merges them by key, and counts how often each key came."""
    APPEND_WRITER = "append-writer"
    """`AppendWriter` has delta-spark append them to a table that `delta_once` rejects."""
    FOREACH_BATCH = "foreach-batch"
    """`ForeachBatch` inserts them into a database (SQLite)."""
    TOPIC = "topic"
    """`kafka_once` sends them to a topic."""
    DEAD_LETTERS = "dead-letters"
    """`delta_once` appends them, but for those that a rule rejects: these go to a topic of dead letters."""


BY_DELTA_SPARK = frozenset({Result.MERGE, Result.APPEND_WRITER})
"""Results that delta-spark writes; their offsets are in a table of their own."""


class RecordPath(Enum):
    """Which way records take from the topic to the sink."""

    SPARK = "spark"
    """The source reads them, and Spark passes them on as rows."""
    DIRECT = "direct"
    """Spark passes ranges of offsets on (``handOver=ranges``), and the tasks of the sink read the records."""


class Shows(Enum):
    """What a cell must show after its crash."""

    NEITHER = "neither"
    LOSS = "loss"
    DUPLICATES = "duplicates"
    MAYBE_LOSS = "loss or neither"
    """Where an attempt that Spark has given up may go on for a while: how far it comes is chance."""
    MAYBE_DUPLICATES = "duplicates or neither"


def path_words(path: RecordPath) -> list[str]:
    """Return what the name of a cell says of its path: nothing of the one through Spark."""
    return [] if path is RecordPath.SPARK else [path.value]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One crash of one pipeline."""

    point: CrashPoint
    kind: Kind
    guarantee: Guarantee
    result: Result
    delete_checkpoint: bool
    """Whether Spark's checkpoint is deleted before the pipeline is started again."""
    path: RecordPath = RecordPath.SPARK

    @property
    def name(self) -> str:
        """Return a name that is a file name too, and is the same in every run."""
        parts = [self.guarantee.value, self.result.value, self.point.value, self.kind.value.replace(" ", "-")]
        parts += ["no-checkpoint"] if self.delete_checkpoint else []
        return "_".join([*parts, *path_words(self.path)])


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened in a cell, for its timeline."""

    at_s: float
    """Seconds since the cell began."""
    lane: str
    """``pipeline`` (a start, an end), ``commit`` (rows, offsets or both), ``fault``, ``broker`` or ``checkpoint``."""
    what: str


class AnyCell(Protocol):
    """What cells of all dimensions have."""

    @property
    def name(self) -> str:
        """A name that is a file name too, and is the same in every run."""

    @property
    def guarantee(self) -> Guarantee:
        """What its pipeline promises."""


CellT_co = TypeVar("CellT_co", bound=AnyCell, covariant=True)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[CellT_co]):
    """What the judge found in the result of one cell."""

    cell: CellT_co
    must_show: Shows
    records: int
    """How many records the topic has."""
    lost: int
    duplicated: int
    """Rows, or counts, beyond the first of each record."""
    fired: bool
    """Whether the crash point fired: a cell whose fault did not happen proves nothing."""
    wrong: str | None
    """Why the cell did not show what it must; None if it did."""
    moments: tuple[Moment, ...]
    errors: tuple[str, ...]
    """First lines of the errors with which runs of the pipeline ended."""
    seconds: float
    remark: str | None = None
    """The outcome in words, where the numbers are not enough."""
    to_compare: bool = False
    """Whether the sink is not ours: what it did is shown, and is neither right nor wrong."""

    @property
    def has_wrong_rows(self) -> bool:
        """Whether its rows are wrong, whatever befell the machine, so that running it again would hide that.

        Then a record came twice, or is missing although the last run came to its end, where no failure may cause that.
        """
        steps = [moment.what for moment in self.moments if moment.lane == "pipeline"]
        twice = self.duplicated > 0 and self.cell.guarantee is not Guarantee.AT_LEAST_ONCE
        missing = self.lost > 0 and self.cell.guarantee is not Guarantee.AT_MOST_ONCE
        return twice or (missing and steps[-1:] == ["ends"])
