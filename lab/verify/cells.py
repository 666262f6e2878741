"""A cell of the matrix and its outcome: the terms shared by matrix, engine, judge and report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.guarantee import Guarantee


class Kind(Enum):
    """The fault of a cell."""

    EXCEPTION = "exception"
    """The code that reached the point raises."""
    DRIVER_KILLED = "driver killed"
    """SIGKILL of the driver, its JVM and all Python workers."""
    WORKER_KILLED = "worker killed"
    """SIGKILL of the Python process that reached the point, and of no other."""
    BROKER_KILLED = "broker killed"
    """SIGKILL of the broker while the pipeline waits at the point; then it is restarted."""
    LOST_ACKNOWLEDGEMENT = "lost acknowledgement"
    """A step has succeeded, and its caller gets an error."""
    DISK_FULL = "disk full"
    """Writing fails with ENOSPC."""
    TASK_RETRIED = "task retried"
    """SIGKILL of a task's Python process; Spark retries the task within the same query."""
    TRANSACTION_TIMED_OUT = "transaction timed out"
    """The pipeline waits at the point until Kafka has aborted its transactions after `transaction.timeout.ms`."""


class Result(Enum):
    """The sink of a pipeline's rows."""

    APPEND = "append"
    """`delta_once` appends them."""
    MERGE = "merge"
    """`foreachBatch` merges them by key, and counts the merges of each key."""
    APPEND_WRITER = "append-writer"
    """`AppendWriter` has delta-spark append them to a table that `delta_once` rejects."""
    FOREACH_BATCH = "foreach-batch"
    """`ForeachBatch` inserts them into a database (SQLite)."""
    TOPIC = "topic"
    """`kafka_once` sends them to a topic."""
    DEAD_LETTERS = "dead-letters"
    """`delta_once` appends them, except those that a rule rejects: these are sent to a dead-letter topic."""


BY_DELTA_SPARK = frozenset({Result.MERGE, Result.APPEND_WRITER})
"""Results written by delta-spark; their offsets are in a separate table."""


class RecordPath(Enum):
    """How records get from the topic to the sink."""

    SPARK = "spark"
    """The source reads them, and Spark passes rows."""
    DIRECT = "direct"
    """Spark passes offset ranges (``handOver=ranges``), and the sink's tasks read the records."""


class Features(Enum):
    """What a table asks of its writers, in sets that may stand together."""

    RULES = "rules"
    """A CHECK constraint, NOT NULL, a generated column, a default, VARCHAR."""
    TRACKED = "tracked"
    """Row tracking, clustering, in-commit timestamps."""
    MAPPED = "mapped"
    """Column mapping, deletion vectors, a change data feed."""
    WIDENED = "widened"
    """Type widening, V2 checkpoints, no rows removed (``appendOnly``)."""


class Shared(Enum):
    """Which table is hit where one query writes a table for each of its topics."""

    FIRST_OF_2 = "first-of-2"
    LAST_OF_2 = "last-of-2"
    THIRD_OF_5 = "third-of-5"

    @property
    def tables(self) -> int:
        """The number of the query's topics and tables."""
        return 5 if self is Shared.THIRD_OF_5 else 2

    @property
    def hit(self) -> int:
        """The index of the table that reaches the point; the query writes tables in the order of their names."""
        return {Shared.FIRST_OF_2: 0, Shared.LAST_OF_2: 1, Shared.THIRD_OF_5: 2}[self]


class Fate(Enum):
    """What has befallen one of the tables of an ingestion before the crash; the others go on."""

    CATCHING_UP = "catching-up"
    """It has refused rows and takes them now: a query of its own reads them."""
    RESTORED = "restored"
    """It was restored to the version before its newest: a query of its own reads what is missing."""
    DROPPED = "dropped"
    """It is gone: a query of its own reads everything."""
    EMPTIED = "emptied"
    """Its rows were deleted, and must not come back."""
    BESIDE_AWAY = "beside-away"
    """The table after it refuses rows until after the crash."""
    FENCED = "fenced"
    """The driver is not killed: while it waits at the point, another one writes everything, and it must stop."""

    @property
    def is_apart(self) -> bool:
        """Whether a query of its own writes the table."""
        return self in (Fate.CATCHING_UP, Fate.RESTORED, Fate.DROPPED)


class Shows(Enum):
    """What a cell must show after its crash."""

    NEITHER = "neither"
    LOSS = "loss"
    DUPLICATES = "duplicates"
    MAYBE_LOSS = "loss or neither"
    """Possible where an attempt that Spark has given up may continue for a while: its progress is random."""
    MAYBE_DUPLICATES = "duplicates or neither"


def path_words(path: RecordPath) -> list[str]:
    """Return the part of a cell's name for its path: none for the path through Spark."""
    return [] if path is RecordPath.SPARK else [path.value]


def table_words(cell: Cell) -> list[str]:
    """Return the part of a cell's name for its table's features, the tables beside it, and its fate: none for none."""
    return [each.value for each in (cell.features, cell.shared, cell.fate) if each is not None]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One crash of one pipeline."""

    point: CrashPoint
    kind: Kind
    guarantee: Guarantee
    result: Result
    delete_checkpoint: bool
    """Whether Spark's checkpoint is deleted before the pipeline is restarted."""
    path: RecordPath = RecordPath.SPARK
    features: Features | None = None
    """Those of its table, which delta-spark has made; None if the sink makes the table."""
    shared: Shared | None = None
    """The table that is hit; None if the query has one table."""
    fate: Fate | None = None
    """What has befallen a table of an ingestion; None if the query is none of an ingestion."""

    @property
    def name(self) -> str:
        """Return a name that is a valid file name, and the same in every run."""
        parts = [self.guarantee.value, self.result.value, self.point.value, self.kind.value.replace(" ", "-")]
        parts += ["no-checkpoint"] if self.delete_checkpoint else []
        return "_".join([*parts, *path_words(self.path), *table_words(self)])


@dataclass(frozen=True, slots=True)
class Moment:
    """An event in a cell's timeline."""

    at_s: float
    """Seconds since the cell's start."""
    lane: str
    """``pipeline`` (start or end), ``commit`` (rows, offsets or both), ``fault``, ``broker`` or ``checkpoint``."""
    what: str


class AnyCell(Protocol):
    """The common properties of cells."""

    @property
    def name(self) -> str:
        """A name that is a valid file name, and the same in every run."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of its pipeline."""


CellT_co = TypeVar("CellT_co", bound=AnyCell, covariant=True)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[CellT_co]):
    """The judge's findings about one cell."""

    cell: CellT_co
    must_show: Shows
    records: int
    """The topic's number of records."""
    lost: int
    duplicated: int
    """Rows, or counts, beyond the first of each record."""
    fired: bool
    """Whether the crash point fired: a cell whose fault did not happen proves nothing."""
    wrong: str | None
    """Why the cell did not show what it must; None if it did."""
    moments: tuple[Moment, ...]
    errors: tuple[str, ...]
    """First lines of the errors of the pipeline's runs."""
    seconds: float
    remark: str | None = None
    """The outcome in words, where the numbers are not enough."""
    to_compare: bool = False
    """Whether the sink is not ours: its result is shown, but is neither right nor wrong."""

    @property
    def has_wrong_rows(self) -> bool:
        """Whether its rows are wrong, whatever happened on the machine, so that running it again would hide that.

        Then a record is duplicated, or missing although the last run succeeded, where no failure may cause that.
        """
        steps = [moment.what for moment in self.moments if moment.lane == "pipeline"]
        twice = self.duplicated > 0 and self.cell.guarantee is not Guarantee.AT_LEAST_ONCE
        missing = self.lost > 0 and self.cell.guarantee is not Guarantee.AT_MOST_ONCE
        return twice or (missing and steps[-1:] == ["ends"])
