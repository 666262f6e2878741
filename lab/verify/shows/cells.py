"""A cell of ``--show``: a fault, and whose source and sink it strikes: ours, or Spark's own beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lab.verify.cells import Result, Shows
from sparkonce.exactly_once.guarantee import Guarantee


class Show(Enum):
    """What is shown."""

    TWO_DRIVERS = "two-drivers"
    DOUBLED_ROWS = "doubled-rows"
    LOST_CHECKPOINT = "lost-checkpoint"


class Fault(Enum):
    """What happens to a query or its driver."""

    PAUSED_IN_TURN = "paused-in-turn"
    """Each of two drivers is paused in turn, at crash points and at moments drawn from a seed."""
    PRESUMED_DEAD = "presumed-dead"
    """A driver is paused after rows were sent; another one takes over its checkpoint; then the first resumes."""
    TASK_RAISES = "task-raises"
    TASK_DIES = "task-dies"
    """SIGKILL of the Python process of a task."""
    DRIVER = "driver-killed"
    CHECKPOINT = "no-checkpoint"
    """The checkpoint is deleted after the query has ended."""
    CHECKPOINT_AND_STORE = "no-checkpoint-no-store"
    """The same without ``offsetStore``: the source begins at ``startingOffsets``."""


@dataclass(frozen=True, slots=True)
class ShowCell:
    """One fault of one pipeline."""

    show: Show
    fault: Fault
    result: Result
    by_spark: bool = False
    """Whether source and sink are Spark's own."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of its sink."""
        return Guarantee.AT_LEAST_ONCE if self.by_spark else Guarantee.EXACTLY_ONCE

    @property
    def must_show(self) -> Shows:
        """What its result must show: a comparison proves nothing if Spark's own sink is right, too."""
        return Shows.DUPLICATES if self.by_spark else Shows.NEITHER

    @property
    def name(self) -> str:
        """A name that is a valid file name, and the same in every run."""
        parts = [self.show.value, self.result.value, self.fault.value]
        return "_".join([*parts, *(["sparks-own"] if self.by_spark else [])])


def cells_of(show: Show) -> tuple[ShowCell, ...]:
    """Return the cells of a show, in one fixed order."""
    result, beside, alone = _FAULTS[show]
    both = (ShowCell(show, fault, result, by_spark) for fault in beside for by_spark in (True, False))
    return (*both, *(ShowCell(show, *each) for each in alone))


_FAULTS = {
    Show.TWO_DRIVERS: (
        Result.TOPIC,
        (Fault.PRESUMED_DEAD,),
        ((Fault.PAUSED_IN_TURN, Result.APPEND), (Fault.PAUSED_IN_TURN, Result.TOPIC)),
    ),
    Show.DOUBLED_ROWS: (Result.TOPIC, (Fault.TASK_RAISES, Fault.TASK_DIES, Fault.DRIVER, Fault.CHECKPOINT), ()),
    Show.LOST_CHECKPOINT: (Result.APPEND, (Fault.CHECKPOINT,), ((Fault.CHECKPOINT_AND_STORE, Result.APPEND),)),
}
"""The result and faults of cells beside Spark's own, and what is shown of ours alone."""
