"""Which crashes can occur, and what each must show.

Theory of operation. A batch is a sequence of steps: points that a pipeline passes, and between them the two durable
writes, offsets and rows. `_STEPS` has that sequence for each guarantee and each kind of result; everything else
follows from it. What is durable when a point is reached is what stands before it. If the run ends there, the batch is
done again from the stored offsets:

- offsets are there and rows are not: the rows are lost;
- rows are there and offsets are not: they come again;
- both or neither: nothing is to be seen.

If whoever was hurt can carry on (a client asks a restarted broker again; after a lost answer the log is read again),
the run goes on to its end, and nothing is to be seen either. The sequences are written down here once more, and not
taken from `exactly_once`, because that is what is under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import product

from exactly_once.crash_points import CrashPoint
from exactly_once.guarantee import Guarantee
from jobs.verify.cells import Cell, Kind, Result, Shows

P = CrashPoint


class Write(Enum):
    """A durable write of a batch."""

    OFFSETS = "offsets"
    ROWS = "rows"
    BOTH = "both at once"
    """In one commit; or, for a merge, by the number in the commit of the rows, which settles what becomes of the intent
    that was recorded."""


Step = CrashPoint | Write

_PRODUCED: tuple[Step, ...] = (P.BROKER_APPENDING, P.BROKER_APPENDED)
_PLANNED: tuple[Step, ...] = (P.SOURCE_FINISHED, P.BROKER_OFFSETS, P.SOURCE_PLANNED, P.SOURCE_SPLIT, P.SINK_BEGUN)
_READ: tuple[Step, ...] = (P.BROKER_FETCHED, P.SOURCE_READING, P.SOURCE_READ)
_FILES: tuple[Step, ...] = (P.SINK_WRITING, P.SINK_FILE_WRITTEN, P.SINK_BEFORE_COMMIT)

_STEPS: dict[tuple[Guarantee, Result], tuple[Step, ...]] = {
    (Guarantee.EXACTLY_ONCE, Result.APPEND): (
        *_PRODUCED, *_PLANNED, *_READ, *_FILES,
        Write.BOTH, P.SINK_ROWS_LANDED, P.SINK_AFTER_COMMIT,
    ),
    (Guarantee.AT_MOST_ONCE, Result.APPEND): (
        *_PRODUCED, *_PLANNED,
        Write.OFFSETS, P.SINK_OFFSETS_LANDED, P.SINK_BETWEEN_WRITES, *_READ, *_FILES,
        Write.ROWS, P.SINK_ROWS_LANDED, P.SINK_AFTER_COMMIT,
    ),
    (Guarantee.AT_LEAST_ONCE, Result.APPEND): (
        *_PRODUCED, *_PLANNED, *_READ, *_FILES,
        Write.ROWS, P.SINK_ROWS_LANDED, P.SINK_BETWEEN_WRITES,
        Write.OFFSETS, P.SINK_OFFSETS_LANDED, P.SINK_AFTER_COMMIT,
    ),
    (Guarantee.EXACTLY_ONCE, Result.MERGE): (
        *_PRODUCED, *_PLANNED, P.SINK_BEFORE_COMMIT, P.MERGE_RECORDED, *_READ,
        Write.BOTH, P.MERGE_UNCONFIRMED, P.SINK_ROWS_LANDED, P.SINK_AFTER_COMMIT,
    ),
    (Guarantee.AT_MOST_ONCE, Result.MERGE): (
        *_PRODUCED, *_PLANNED,
        Write.OFFSETS, P.SINK_OFFSETS_LANDED, P.SINK_BETWEEN_WRITES, P.SINK_BEFORE_COMMIT, *_READ,
        Write.ROWS, P.SINK_ROWS_LANDED, P.SINK_AFTER_COMMIT,
    ),
    (Guarantee.AT_LEAST_ONCE, Result.MERGE): (
        *_PRODUCED, *_PLANNED, P.SINK_BEFORE_COMMIT, *_READ,
        Write.ROWS, P.SINK_ROWS_LANDED, P.SINK_BETWEEN_WRITES,
        Write.OFFSETS, P.SINK_OFFSETS_LANDED, P.SINK_AFTER_COMMIT,
    ),
}  # fmt: skip

LANDED = frozenset({P.SINK_OFFSETS_LANDED, P.SINK_ROWS_LANDED, P.MERGE_UNCONFIRMED})
"""Points between a commit and its answer: after an error there, the log is read again."""
BROKER_POINTS = frozenset({P.BROKER_APPENDING, P.BROKER_APPENDED, P.BROKER_OFFSETS, P.BROKER_FETCHED})
PRODUCING = frozenset({P.BROKER_APPENDING, P.BROKER_APPENDED})
"""Points that a producer takes the broker to: no pipeline runs."""
BEFORE_A_WRITE = frozenset(
    {
        P.BROKER_APPENDING,
        P.SINK_WRITING,
        P.SINK_BEFORE_COMMIT,
        P.SINK_BETWEEN_WRITES,
        P.MERGE_RECORDED,
        P.MERGE_UNCONFIRMED,
    }
)
"""Points after which the process that reached them writes to a disk."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """A group of combinations that cannot occur."""

    why: str
    holds: Callable[[Cell], bool]


IMPOSSIBLE = (
    Impossible(
        "the pipeline never comes there: exactly-once has one write and so nothing between two, and records an intent "
        "only for a merge; a merge's files are written by Delta",
        lambda cell: cell.point not in steps(cell.guarantee, cell.result),
    ),
    Impossible(
        "the step has landed, so an error there is a lost acknowledgement, and is tried as one",
        lambda cell: cell.kind is Kind.EXCEPTION and cell.point in LANDED | BROKER_POINTS - {P.BROKER_APPENDING},
    ),
    Impossible(
        "there is no acknowledgement to lose: no step has landed that somebody waits to hear of",
        lambda cell: (
            cell.kind is Kind.LOST_ACKNOWLEDGEMENT and cell.point not in LANDED | BROKER_POINTS - {P.BROKER_APPENDING}
        ),
    ),
    Impossible(
        "nothing is written next, so a full disk is not noticed",
        lambda cell: cell.kind is Kind.DISK_FULL and cell.point not in BEFORE_A_WRITE,
    ),
    Impossible(
        "the process that reaches the point is the broker: see broker killed",
        lambda cell: cell.kind is Kind.WORKER_KILLED and cell.point in BROKER_POINTS,
    ),
    Impossible(
        "a merge is done by the driver's own Python process: see driver killed",
        lambda cell: cell.kind is Kind.WORKER_KILLED and in_the_driver(cell),
    ),
    Impossible(
        "a producer brought the broker there: no pipeline runs that could be killed",
        lambda cell: cell.kind is Kind.DRIVER_KILLED and cell.point in PRODUCING,
    ),
)


def steps(guarantee: Guarantee, result: Result) -> tuple[Step, ...]:
    """Give what a pipeline does in a batch, in order."""
    return _STEPS.get((guarantee, result), ())


def why_impossible(cell: Cell) -> str | None:
    """Give why a cell cannot occur, or None if it can."""
    return next((rule.why for rule in IMPOSSIBLE if rule.holds(cell)), None)


def in_the_driver(cell: Cell) -> bool:
    """Whether the driver's own Python process reaches the cell's point: it runs the functions of ``foreachBatch``."""
    return cell.result is Result.MERGE and cell.point.value.partition(".")[0] in ("sink", "merge")


def durable_at(cell: Cell) -> tuple[bool, bool]:
    """Whether offsets and rows of the batch are durable when the cell's point is reached."""
    sequence = steps(cell.guarantee, cell.result)
    before = sequence[: sequence.index(cell.point)]
    both = Write.BOTH in before
    return both or Write.OFFSETS in before, both or Write.ROWS in before


def ends_the_run(cell: Cell) -> bool:
    """Whether the pipeline ends at the point, and has to be started again; otherwise it carries on by itself."""
    if cell.kind in (Kind.DRIVER_KILLED, Kind.WORKER_KILLED):
        return True
    if cell.kind is Kind.BROKER_KILLED or cell.point in BROKER_POINTS:
        return False  # producers and consumers ask again
    return cell.point not in LANDED


def must_show(cell: Cell) -> Shows:
    """Work out what must be seen in the table after the crash."""
    offsets, rows = durable_at(cell)
    if not ends_the_run(cell) or offsets == rows:
        return Shows.NEITHER
    return Shows.LOSS if offsets else Shows.DUPLICATES


@cache
def full() -> tuple[Cell, ...]:
    """Give every cell that can occur, in one fixed order."""
    return tuple(cell for cell in combinations() if why_impossible(cell) is None)


def combinations() -> Iterator[Cell]:
    """Give every combination, whether it can occur or not."""
    for guarantee, result, point, kind, delete in product(Guarantee, Result, CrashPoint, Kind, (False, True)):
        yield Cell(point, kind, guarantee, result, delete)
