"""What a sink delivers a micro-batch to: a table or topics, each with a chain of offsets of its own.

`connectors.sinks.stream_sink` is the shell that Spark calls and knows the steps of a batch; a `Target` knows one
destination. A target is pickled and sent to the tasks, so it holds options and no connections. The result of `begin`
on the driver is sent as its plan; a task's result is sent as its part, in the task's message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.decision import Stored
from sparkonce.offset_store.record import BatchCounts, BatchRecord

Routing = Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]
"""Returns the rows of each target, or of each route of one, in their order. Sent to the tasks."""


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
        """The attempt of the batch."""

    @property
    def batch_id(self) -> int:
        """The batch's number."""

    @property
    def writes_rows(self) -> bool:
        """Whether tasks have anything to write there."""

    @property
    def written_by(self) -> Set[str]:
        """The rules of the batch's records already written, as far as they are known."""


class WrappedPlan:
    """Implements `TargetPlan` with the plan that it wraps."""

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

    @property
    def written_by(self) -> Set[str]:
        """See `TargetPlan`."""
        return self.plan.written_by


class TaskWriter(Protocol):
    """Writes the rows of one task."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows."""

    def close(self) -> object | None:
        """Make the rows durable, and return what the driver needs to make them visible; None if there were no rows."""

    def discard(self) -> None:
        """Drop the rows, after a failure; never raises."""

    @property
    def written(self) -> BatchCounts:
        """The amounts written; known when it is closed."""


class Target(Protocol):
    """One destination of rows."""

    def __str__(self) -> str:
        """Return the name of the place and of its offsets' store, for messages."""

    @property
    def offsets_first(self) -> bool:
        """Whether offsets are stored before the rows (at-most-once): a stored batch may have no rows then."""

    def stored(self, batch: Batch) -> Stored:
        """Return what the target has stored of the partitions of a batch, on the driver, before `begin`.

        `begin` may finish or undo what a crash left incomplete, so a caller that relies on the result must call this
        again after it.

        Raises:
            DeliveryError, OffsetStoreError: if it cannot be determined.
        """

    def records(self, app_id: str) -> Iterable[BatchRecord]:
        """Return the records of an application's batches that are kept, newest first, on the driver.

        Raises:
            DeliveryError, OffsetStoreError: if they cannot be determined.
        """

    def begin(self, batch: Batch) -> TargetPlan:
        """Decide about a batch, on the driver, before its tasks.

        Raises:
            DeliveryError, OffsetStoreError: if it must not be written.
        """

    def open(self, plan: TargetPlan, task: Task) -> TaskWriter | None:
        """Return the writer of a task; None if there is nothing to write."""

    def finish(self, batch: Batch, plan: TargetPlan, parts: Sequence[object]) -> None:
        """Make a batch visible, on the driver, if it is not. Raises DeliveryError or OffsetStoreError to refuse it."""

    def abort(self, batch: Batch, plan: TargetPlan, parts: Sequence[object], *, every_task_answered: bool) -> None:
        """Clean up after a failed batch, if the log shows that it did not land; never raises expected errors."""
