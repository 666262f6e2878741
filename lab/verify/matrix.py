"""Which crashes can occur, and what each must show.

Theory of operation. A batch is a sequence of steps: points that a pipeline passes, and between them the two durable
writes, offsets and rows. `_STEPS` has that sequence for each guarantee and each kind of result; everything else
follows from it. Durable at a point are the writes before it. If the run ends there, the batch is
repeated from the stored offsets:

- offsets without rows: the rows are lost;
- rows without offsets: they are duplicated;
- both or neither: no effect.

Where a query writes several tables, each step is one of all of them: all are begun, then tasks write, then one after
the other is finished. So the tables before the one that is hit are past the steps of the same part of the batch, and
those after it are not yet there.

If the victim can continue (a client retries with a restarted broker; after a lost response the log is read again),
the run continues to its end, without an effect. A task that Spark retries is like a repeated
batch: at-most-once writes nothing then, and at-least-once writes the rows again. The sequences are repeated
here, and not taken from `exactly_once`, because that is what is under test.

``python -m lab.verify.matrix`` prints the matrix as Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import chain, product

from lab.crash_plans import POINTS
from lab.verify.cells import BY_DELTA_SPARK, Cell, Fate, Features, Kind, RecordPath, Result, Shared, Shows
from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.connectors.delta_spark.crash_points import IntentPoint
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee


class Write(Enum):
    """A durable write in a batch."""

    OFFSETS = "offsets"
    ROWS = "rows"
    BOTH = "both at once"
    """In one commit; with delta-spark, by the number in the commit of the rows, which decides the
    recorded intent; in Kafka, by the decision, which decides the tasks' transactions."""
    DEAD_OFFSETS = "offsets of the dead letters"
    DEAD_ROWS = "dead letters"
    DEAD_BOTH = "dead letters and their offsets at once"


_CHAINS = ((Write.OFFSETS, Write.ROWS, Write.BOTH), (Write.DEAD_OFFSETS, Write.DEAD_ROWS, Write.DEAD_BOTH))
"""The writes of each target: a table or topic, and its dead letters, have separate chains of offsets."""

Step = CrashPoint | Write

_PRODUCED: tuple[Step, ...] = (BrokerPoint.APPENDING, BrokerPoint.APPENDED)
_PLANNED: tuple[Step, ...] = (
    SourcePoint.FINISHED, BrokerPoint.OFFSETS, SourcePoint.PLANNED, SourcePoint.SPLIT, SinkPoint.BEGUN,
)  # fmt: skip
_READ: tuple[Step, ...] = (BrokerPoint.FETCHED, SourcePoint.READING, SourcePoint.READ)
_FILES: tuple[Step, ...] = (SinkPoint.WRITING, SinkPoint.FILE_WRITTEN, SinkPoint.BEFORE_COMMIT)
_SENT: tuple[Step, ...] = (SinkPoint.WRITING, BrokerPoint.APPENDING)
_ACKNOWLEDGED: tuple[Step, ...] = (BrokerPoint.APPENDED, SinkPoint.FILE_WRITTEN, SinkPoint.BEFORE_COMMIT)
_IN_TRANSACTIONS: tuple[Step, ...] = (TransactionPoint.BEGUN, *_SENT, *_ACKNOWLEDGED, TransactionPoint.DECIDING)
_ENDED: tuple[Step, ...] = (
    SinkPoint.ROWS_LANDED,
    TransactionPoint.DECIDED, TransactionPoint.ENDING, TransactionPoint.ENDED,
    SinkPoint.AFTER_COMMIT,
)  # fmt: skip

_STEPS: dict[tuple[Guarantee, Result], tuple[Step, ...]] = {
    (Guarantee.EXACTLY_ONCE, Result.APPEND): (
        *_PRODUCED, *_PLANNED, *_READ, *_FILES,
        Write.BOTH, SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.AT_MOST_ONCE, Result.APPEND): (
        *_PRODUCED, *_PLANNED,
        Write.OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.BETWEEN_WRITES, *_READ, *_FILES,
        Write.ROWS, SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.AT_LEAST_ONCE, Result.APPEND): (
        *_PRODUCED, *_PLANNED, *_READ, *_FILES,
        Write.ROWS, SinkPoint.ROWS_LANDED, SinkPoint.BETWEEN_WRITES,
        Write.OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.EXACTLY_ONCE, Result.MERGE): (
        *_PRODUCED, *_PLANNED, SinkPoint.BEFORE_COMMIT, IntentPoint.RECORDED, *_READ,
        Write.BOTH, IntentPoint.UNCONFIRMED, SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.AT_MOST_ONCE, Result.MERGE): (
        *_PRODUCED, *_PLANNED,
        Write.OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.BETWEEN_WRITES, SinkPoint.BEFORE_COMMIT, *_READ,
        Write.ROWS, SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.AT_LEAST_ONCE, Result.MERGE): (
        *_PRODUCED, *_PLANNED, SinkPoint.BEFORE_COMMIT, *_READ,
        Write.ROWS, SinkPoint.ROWS_LANDED, SinkPoint.BETWEEN_WRITES,
        Write.OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.EXACTLY_ONCE, Result.FOREACH_BATCH): (
        *_PRODUCED, *_PLANNED, SinkPoint.BEFORE_COMMIT, *_READ,
        Write.BOTH, SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.EXACTLY_ONCE, Result.TOPIC): (
        *_PLANNED, *_READ, *_IN_TRANSACTIONS,
        Write.BOTH, *_ENDED,
    ),
    (Guarantee.AT_MOST_ONCE, Result.TOPIC): (
        *_PLANNED,
        Write.OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.BETWEEN_WRITES, *_READ, *_SENT,
        Write.ROWS, *_ACKNOWLEDGED, SinkPoint.AFTER_COMMIT,
    ),
    (Guarantee.AT_LEAST_ONCE, Result.TOPIC): (
        *_PLANNED, *_READ, *_SENT,
        Write.ROWS, *_ACKNOWLEDGED, SinkPoint.BETWEEN_WRITES,
        Write.OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.AFTER_COMMIT,
    ),
    # With dead letters, a point counts where it is first reached: by the dead letters' target, if that reaches it.
    (Guarantee.EXACTLY_ONCE, Result.DEAD_LETTERS): (
        *_PLANNED, *_READ, *_IN_TRANSACTIONS,
        Write.DEAD_BOTH, *_ENDED, SinkPoint.BETWEEN_TARGETS,
        Write.BOTH,
    ),
    (Guarantee.AT_MOST_ONCE, Result.DEAD_LETTERS): (
        *_PLANNED,
        Write.DEAD_OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.BETWEEN_WRITES,
        Write.OFFSETS, *_READ, *_SENT,
        Write.DEAD_ROWS, *_ACKNOWLEDGED, SinkPoint.AFTER_COMMIT, SinkPoint.BETWEEN_TARGETS,
        Write.ROWS, SinkPoint.ROWS_LANDED,
    ),
    (Guarantee.AT_LEAST_ONCE, Result.DEAD_LETTERS): (
        *_PLANNED, *_READ, *_SENT,
        Write.DEAD_ROWS, *_ACKNOWLEDGED, SinkPoint.BETWEEN_WRITES,
        Write.DEAD_OFFSETS, SinkPoint.OFFSETS_LANDED, SinkPoint.AFTER_COMMIT, SinkPoint.BETWEEN_TARGETS,
        Write.ROWS, SinkPoint.ROWS_LANDED,
        Write.OFFSETS,
    ),
}  # fmt: skip
_STEPS |= {(guarantee, Result.APPEND_WRITER): _STEPS[guarantee, Result.MERGE] for guarantee in Guarantee}
_STEPS |= {
    (guarantee, Result.FOREACH_BATCH): _STEPS[guarantee, Result.MERGE]
    for guarantee in (Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
}

LANDED = frozenset({SinkPoint.OFFSETS_LANDED, SinkPoint.ROWS_LANDED, IntentPoint.UNCONFIRMED})
"""Points between a commit and its response: after an error there, the log is read again."""
BROKER_POINTS = frozenset(BrokerPoint)
APPENDS = frozenset({BrokerPoint.APPENDING, BrokerPoint.APPENDED})
"""Broker points that a producer triggers: the sink, if it sends to a topic, otherwise a program."""
SOURCE_POINTS = frozenset({*SourcePoint, BrokerPoint.OFFSETS, BrokerPoint.FETCHED})
"""Points that the source reaches, or triggers in the broker."""
SENDING = frozenset({Result.TOPIC, Result.DEAD_LETTERS})
"""Results with all or some rows in a topic."""
BY_FUNCTION = BY_DELTA_SPARK | {Result.FOREACH_BATCH}
"""Results written by a function of ``foreachBatch``, in the driver's Python process."""
TASK_POINTS = frozenset(
    {SourcePoint.READING, SourcePoint.READ, TransactionPoint.BEGUN, SinkPoint.WRITING, SinkPoint.FILE_WRITTEN}
)  # fmt: skip
"""Points that a Spark task passes."""
IN_A_TRANSACTION = frozenset({SinkPoint.BEFORE_COMMIT, TransactionPoint.DECIDING, TransactionPoint.DECIDED})
"""Points of the driver at which all tasks' transactions are open, and may time out."""
_TO_A_TABLE = frozenset({BrokerPoint.APPENDING, SinkPoint.WRITING, SinkPoint.BEFORE_COMMIT, SinkPoint.BETWEEN_WRITES})
BEFORE_A_WRITE = {
    Result.APPEND: _TO_A_TABLE,
    **dict.fromkeys(BY_DELTA_SPARK, _TO_A_TABLE | {IntentPoint.RECORDED, IntentPoint.UNCONFIRMED}),
    Result.FOREACH_BATCH: _TO_A_TABLE,
    Result.TOPIC: frozenset({BrokerPoint.APPENDING}),
    Result.DEAD_LETTERS: frozenset({BrokerPoint.APPENDING, SinkPoint.BETWEEN_TARGETS}),
}
"""Points after which the process that reached them writes to a disk."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """Combinations that cannot occur, with the reason."""

    why: str
    holds: Callable[[Cell], bool]


IMPOSSIBLE = (
    Impossible(
        "the pipeline never comes there: exactly-once has one write and so nothing between two, and records an intent "
        "only for what delta-spark writes, as it does its files; transactions are those of exactly-once into a topic",
        lambda cell: cell.point not in steps(cell),
    ),
    Impossible(
        "the step has landed, so an error there is a lost acknowledgement, and is tried as one",
        lambda cell: cell.kind is Kind.EXCEPTION and cell.point in LANDED | BROKER_POINTS - {BrokerPoint.APPENDING},
    ),
    Impossible(
        "there is no acknowledgement to lose: no step has landed that somebody waits to hear of",
        lambda cell: (
            cell.kind is Kind.LOST_ACKNOWLEDGEMENT
            and cell.point not in LANDED | BROKER_POINTS - {BrokerPoint.APPENDING}
        ),
    ),
    Impossible(
        "nothing is written to a disk next, so a full one is not noticed",
        lambda cell: cell.kind is Kind.DISK_FULL and cell.point not in BEFORE_A_WRITE[cell.result],
    ),
    Impossible(
        "the process that reaches the point is the broker: see broker killed",
        lambda cell: cell.kind is Kind.WORKER_KILLED and cell.point in BROKER_POINTS,
    ),
    Impossible(
        "the functions of foreachBatch run in the driver's own Python process: see driver killed",
        lambda cell: cell.kind is Kind.WORKER_KILLED and in_the_driver(cell),
    ),
    Impossible(
        "a producer brought the broker there: no pipeline runs that could be killed",
        lambda cell: cell.kind is Kind.DRIVER_KILLED and crashes_while_producing(cell),
    ),
    Impossible(
        "what remains is chance: a broker that holds goes on with one of the batches that it was sent, and without "
        "transactions all count",
        lambda cell: (
            cell.kind is Kind.DRIVER_KILLED and cell.point in APPENDS and cell.guarantee is not Guarantee.EXACTLY_ONCE
        ),
    ),
    Impossible(
        "Spark runs tasks again, and nothing else; those of foreachBatch only read, and write nothing",
        lambda cell: cell.kind is Kind.TASK_RETRIED and (cell.point not in TASK_POINTS or cell.result in BY_FUNCTION),
    ),
    Impossible(
        "no transactions of the pipeline are open there that somebody waits for",
        lambda cell: (
            cell.kind is Kind.TRANSACTION_TIMED_OUT
            and (cell.point not in IN_A_TRANSACTION or not uses_transactions(cell))
        ),
    ),
    Impossible(
        "the functions of foreachBatch need records, and on the direct path Spark has ranges only",
        lambda cell: cell.path is RecordPath.DIRECT and cell.result in BY_FUNCTION,
    ),
    Impossible(
        "no pipeline runs yet, so it takes no path",
        lambda cell: cell.path is RecordPath.DIRECT and crashes_while_producing(cell),
    ),
)


def steps_of_one(guarantee: Guarantee, result: Result) -> tuple[Step, ...]:
    """Return the steps of a pipeline with one table or topic in a batch, in order."""
    return _STEPS.get((guarantee, result), ())


def steps(cell: Cell) -> tuple[Step, ...]:
    """Return the steps in a batch of the table that is hit, in order; those of the only one, if there is one."""
    own = steps_of_one(cell.guarantee, cell.result)
    is_first = cell.shared is None or cell.shared.hit == 0 or (cell.fate is not None and cell.fate.is_apart)
    is_only_one = cell.fate is Fate.BESIDE_AWAY and cell.shared is not None and cell.shared.tables == 2
    if is_first or is_only_one or SinkPoint.BETWEEN_TARGETS in own:
        return own
    return tuple(chain.from_iterable(_parts(own, SinkPoint.BETWEEN_TARGETS)))


def _parts(steps: Sequence[Step], *between: Step) -> tuple[Sequence[Step], ...]:
    """Return what comes before tasks, in tasks, and after them; with steps ``between`` tasks and what comes after."""
    tasks, after = steps.index(_READ[0]), steps.index(SinkPoint.BEFORE_COMMIT)
    return steps[:tasks], steps[tasks:after], (*between, *steps[after:])


def why_impossible(cell: Cell) -> str | None:
    """Return why a cell cannot occur, or None if it can."""
    return next((rule.why for rule in IMPOSSIBLE if rule.holds(cell)), None)


def in_the_driver(cell: Cell) -> bool:
    """Whether the driver's own Python process reaches the cell's point: it runs the functions of ``foreachBatch``."""
    return cell.result in BY_FUNCTION and isinstance(cell.point, SinkPoint | IntentPoint)


def crashes_while_producing(cell: Cell) -> bool:
    """Whether the fault hits the program that fills the topic, before a pipeline starts."""
    return cell.point in APPENDS and cell.result not in SENDING


def uses_transactions(cell: Cell) -> bool:
    """Whether the pipeline writes in Kafka transactions."""
    return cell.result in SENDING and cell.guarantee is Guarantee.EXACTLY_ONCE


def durable_at(cell: Cell) -> list[tuple[bool, bool]]:
    """Whether the batch's offsets and rows are durable when the cell's point is reached, for each target."""
    sequence = steps(cell)
    passed = [sequence[: sequence.index(cell.point)], *_passed_beside(cell)]
    return [
        (both in before or offsets in before, both in before or rows in before)
        for before in passed
        for offsets, rows, both in _CHAINS
    ]


def _passed_beside(cell: Cell) -> list[Sequence[Step]]:
    """Return the steps that tables before the one that is hit are past, and those after it, if there are such."""
    if cell.shared is None:
        return []
    parts = _parts(steps(cell))
    part = next(number for number, steps in enumerate(parts) if cell.point in steps)
    past: list[Sequence[Step]] = [tuple(chain.from_iterable(parts[: part + 1]))] if cell.shared.hit > 0 else []
    return [*past, tuple(chain.from_iterable(parts[:part]))] if cell.shared.hit < cell.shared.tables - 1 else past


def ends_the_run(cell: Cell) -> bool:
    """Whether the pipeline ends at the point, and must be restarted; otherwise it continues."""
    if cell.kind in (Kind.DRIVER_KILLED, Kind.WORKER_KILLED, Kind.TRANSACTION_TIMED_OUT):
        return True
    if cell.kind in (Kind.BROKER_KILLED, Kind.TASK_RETRIED) or cell.point in BROKER_POINTS:
        return False  # producers and consumers retry; Spark retries the task
    return cell.point not in LANDED


def must_say(cell: Cell) -> str | None:
    """Return text that the run's error must contain, if any."""
    return "transaction.timeout.ms" if cell.kind is Kind.TRANSACTION_TIMED_OUT else None


def must_show(cell: Cell) -> Shows:
    """Return what the result after the crash must show."""
    if not ends_the_run(cell) and cell.kind is not Kind.TASK_RETRIED:
        return Shows.NEITHER
    targets = durable_at(cell)
    if any(offsets and not rows for offsets, rows in targets):
        return Shows.LOSS
    return Shows.DUPLICATES if any(rows and not offsets for offsets, rows in targets) else Shows.NEITHER


@cache
def full() -> tuple[Cell, ...]:
    """Return every cell that can occur, in one fixed order; those with something beside a plain table come last."""
    plain = [cell for cell in combinations() if why_impossible(cell) is None]
    at_the_table = [cell for cell in plain if cell.result is Result.APPEND and isinstance(cell.point, SinkPoint)]
    featured = [replace(cell, features=each) for each in Features for cell in at_the_table]
    shared = [*_shared()]
    ingested = [replace(cell, fate=each) for each in Fate for cell in shared if _may_meet_a_fate(cell)]
    return (*plain, *featured, *shared, *filter(_meets_its_fate, ingested))


def _shared() -> Iterator[Cell]:
    """Yield the cells of queries with several tables, which direct queries have.

    Those with dead letters are exactly-once: else it is chance which tables' letters the tasks have sent.
    """
    for cell in combinations():
        has_letters = cell.result is Result.DEAD_LETTERS and cell.guarantee is Guarantee.EXACTLY_ONCE
        if cell.path is RecordPath.DIRECT and (cell.result is Result.APPEND or has_letters):
            for each in Shared:
                shared = replace(cell, shared=each)
                if isinstance(cell.point, SinkPoint) and why_impossible(shared) is None:
                    yield shared


def _may_meet_a_fate(cell: Cell) -> bool:
    """Whether an ingestion is tried so: exactly-once, with its driver killed. It goes on after most other faults."""
    is_exact = cell.guarantee is Guarantee.EXACTLY_ONCE
    return is_exact and cell.kind is Kind.DRIVER_KILLED and cell.result is Result.APPEND


def _meets_its_fate(cell: Cell) -> bool:
    """Whether the table comes to the point, and another driver is noticed there: not once all tables are written."""
    if cell.point not in steps(cell):
        return False
    is_last = cell.shared is not None and cell.shared.hit == cell.shared.tables - 1
    return not (cell.fate is Fate.FENCED and is_last and durable_at(cell)[0] == (True, True))


def combinations() -> Iterator[Cell]:
    """Yield every combination, possible or not, with tables that have no features."""
    everything = product(Guarantee, Result, POINTS, Kind, (False, True), RecordPath)
    for guarantee, result, point, kind, delete, path in everything:
        yield Cell(point, kind, guarantee, result, delete, path)


_GUARANTEES = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
_SIGNS = {Shows.NEITHER: "=", Shows.LOSS: "−", Shows.DUPLICATES: "+"}  # noqa: RUF001
_NEVER = "·"


def markdown() -> str:
    """Return the tables of docs/internals/crash_points.md: a test compares the page with this."""
    parts = [_table(result) for result in Result]
    return "\n\n".join([*parts, _reasons()])


def _table(result: Result) -> str:
    kinds = [kind.value for kind in Kind]
    lines = [f"| {result.value} | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for point in POINTS:
        signs = [_signs(point, kind, result) for kind in Kind]
        if any(each.strip(f"{_NEVER} ") for each in signs):
            lines.append(f"| `{point.value}` | {' | '.join(signs)} |")
    return "\n".join(lines)


def _signs(point: CrashPoint, kind: Kind, result: Result) -> str:
    cells = [Cell(point, kind, guarantee, result, delete_checkpoint=False) for guarantee in _GUARANTEES]
    return " ".join(_NEVER if why_impossible(cell) else _SIGNS[must_show(cell)] for cell in cells)


def _reasons() -> str:
    """Return how many of all combinations cannot occur, and why."""
    every = list(combinations())
    reasons = [why_impossible(cell) for cell in every]
    lines = [f"Of {len(every)} combinations {reasons.count(None)} can occur. The others cannot:", ""]
    lines += [f"- {reasons.count(rule.why)}: {rule.why}." for rule in IMPOSSIBLE]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
