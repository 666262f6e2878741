"""What a sink delivers a micro-batch to: a table or topics, each with a chain of offsets of its own.

`connectors.sinks.stream_sink` is the shell that Spark calls; it knows the steps of a batch, a `Target` knows a place. A
target is pickled and travels to the tasks, so it holds options and no connections. What `begin` finds out on the
driver travels as its plan; what a task has written travels as its part, in the task's message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.decision import Stored

Routing = Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]
"""Gives the rows of each target, or of each route of one, in their order. Travels to the tasks."""


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of one task of Spark's."""

    batch_id: int
    partition_id: int
    attempt_number: int
    task_attempt_id: int


class TargetPlan(Protocol):
    """What was decided about a batch for one target, before its tasks ran."""

    @property
    def attempt_id(self) -> str:
        """The attempt that it was decided for."""

    @property
    def batch_id(self) -> int:
        """The batch's number."""

    @property
    def writes_rows(self) -> bool:
        """Whether tasks have anything to write there."""


class AroundPlan:
    """Answers what a `TargetPlan` is asked from the plan within."""

    __slots__ = ()
    plan: TargetPlan

    @property
    def attempt_id(self) -> str:
        """See `TargetPlan`."""
        return self.plan.attempt_id

    @property
    def batch_id(self) -> int:
        """See `TargetPlan`."""
        return self.plan.batch_id

    @property
    def writes_rows(self) -> bool:
        """See `TargetPlan`."""
        return self.plan.writes_rows


class TaskWriter(Protocol):
    """Writes the rows of one task."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def close(self) -> object | None:
        """Make the rows durable, and give what the driver needs to make them visible; None if there were no rows."""

    def discard(self) -> None:
        """Drop the rows, after a failure; never raises."""


class Target(Protocol):
    """One place that rows go to."""

    def __str__(self) -> str:
        """Name the place, and where its offsets are, for messages."""

    def stored(self, batch: Batch) -> Stored:
        """See how far the place has come with the partitions of a batch, on the driver, before `begin`.

        `begin` may finish or undo what a crash has left half done, so whoever counts on the answer looks again then.

        Raises:
            DeliveryError, OffsetStoreError: if it cannot be told.
        """

    def begin(self, batch: Batch) -> TargetPlan:
        """Decide about a batch, on the driver, before its tasks.

        Raises:
            DeliveryError, OffsetStoreError: if it must not be written.
        """

    def open(self, plan: TargetPlan, task: Task) -> TaskWriter | None:
        """Return the writer of a task; None if there is nothing to write."""

    def finish(self, batch: Batch, plan: TargetPlan, parts: Sequence[object]) -> None:
        """Make a batch visible, on the driver, after its tasks, unless it is there already.

        Raises:
            DeliveryError, OffsetStoreError: if it must not be written.
        """

    def abort(self, batch: Batch, plan: TargetPlan, parts: Sequence[object], *, every_task_answered: bool) -> None:
        """Undo what a failed batch has left, if the log shows that it did not land; raises nothing that is expected."""
