"""Spans of tasks: the batch of a task, and the duration of reading and writing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Protocol, TypeVar

from pyspark import TaskContext

from sparkonce.connectors.telemetry.export import export
from sparkonce.connectors.telemetry.spans import Attributes, BatchTrace, Interval, new_span_id
from sparkonce.connectors.telemetry.switches import traces_are_on

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_JOB_GROUP = "spark.jobGroup.id"
"""Spark runs the jobs of a query in a group named after the run's id."""

Row = TypeVar("Row")


def trace_of_task() -> BatchTrace | None:
    """Return the trace of the batch of this task; None if batches are not traced, or this is no task of a stream."""
    context = TaskContext.get() if traces_are_on() else None
    if context is None:
        return None
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if not query_id or not batch_id:
        return None
    return BatchTrace(query_id, context.getLocalProperty(_JOB_GROUP) or "", int(batch_id))


class TaskSpan:
    """A span of a step of this task, from when it is created to `end`."""

    def __init__(self, trace: BatchTrace, name: str, parent: TaskSpan | None = None) -> None:
        self.trace = trace
        self.span_id = new_span_id()
        self._name = name
        self._parent_id = None if parent is None else parent.span_id
        self._start_ns = time.time_ns()

    def end(self, attributes: Attributes, error: BaseException | None = None) -> None:
        """Send it."""
        context = TaskContext.get()
        of_task = (
            {}
            if context is None
            else {
                "spark.stage.id": context.stageId(),
                "spark.task.partition": context.partitionId(),
                "spark.task.attempt": context.attemptNumber(),
            }
        )
        failed = None if error is None or isinstance(error, GeneratorExit) else type(error).__name__
        export(
            self.trace.child(
                self._name,
                Interval.since(self._start_ns),
                {**of_task, **attributes},
                failed,
                parent_id=self._parent_id,
                span_id=self.span_id,
            )
        )


class Counted(Protocol):
    """What was read."""

    @property
    def records(self) -> int:
        """Records."""

    @property
    def bytes(self) -> int:
        """Bytes of record batches."""


def of_records(topics: Set[str], count: Counted) -> Attributes:
    """Return the attributes of a span that reads."""
    (only,) = topics if len(topics) == 1 else ("",)
    destination = {"messaging.destination.name": only} if only else {}
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "receive",
        **destination,
        "sparkonce.records": count.records,
        "sparkonce.read_bytes": count.bytes,
    }


def traced_rows(
    rows: Iterable[Row], trace: BatchTrace, attributes: Callable[[], Attributes], parent: TaskSpan | None = None
) -> Iterator[Row]:
    """Yield ``rows``, in a span ``read`` from the first to the last one; ``attributes`` are computed at its end."""
    span = TaskSpan(trace, "read", parent)
    try:
        yield from rows
    except BaseException as error:
        span.end(attributes(), error)
        raise
    span.end(attributes())
