"""The spans of a batch in the driver's processes: its plan, beginning, commit, and the whole batch.

The process that begins a batch does not see its end, and the one that commits it not its beginning; only tasks know
the run of the query. So the state at the beginning travels with the sink to the tasks, and with their
messages, to which they add the run, to the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.connectors.telemetry.export import export, flush
from sparkonce.connectors.telemetry.plans import PlanNotes
from sparkonce.connectors.telemetry.spans import Attributes, BatchTrace, Interval, Span
from sparkonce.connectors.telemetry.switches import traces_are_on
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.offset_store.record import BatchCounts

TASK_FAILED = "TaskFailed"
"""The error of a batch without a task's result; its span says more."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """When a batch was planned and begun."""

    begun: Interval
    planned: Sequence[Interval] = ()
    """One for each of the query's sources that are ours."""

    @property
    def start_ns(self) -> int:
        """When the first of it began."""
        return min(each.start_ns for each in (self.begun, *self.planned))


@dataclass(frozen=True, slots=True)
class TraceNote:
    """The part of a task's message for the trace of its batch."""

    trace: BatchTrace
    beginning: Beginning


def beginning(batch: Batch, checkpoint: Checkpoint, start_ns: int) -> Beginning | None:
    """Return the planning time of a batch, and its beginning from ``start_ns`` until now; None if traces are off."""
    if not traces_are_on():
        return None
    begun = Interval.since(start_ns)
    try:
        return Beginning(begun, PlanNotes().find(checkpoint.logged(batch.record.batch_id).lines.values()))
    except Exception:  # of the checkpoint's store; the batch has begun all the same
        return Beginning(begun)


def trace_refusal(batch: Batch, checkpoint: Checkpoint, start_ns: int, error: BaseException) -> None:
    """Trace a batch that ends at its beginning."""
    found = beginning(batch, checkpoint, start_ns)
    if found is None:
        return
    trace = BatchTrace(batch.record.query_id, batch.record.attempt_id, batch.record.batch_id)  # no task knows its run
    failed, of_app = type(error).__name__, _of_app(batch.record.app_id)
    steps = _beginning_spans(trace, found, of_app, failed)
    _send(trace, found, steps, of_app, failed)


def trace_commit(
    note: TraceNote, app_id: str, start_ns: int, counts: BatchCounts | None = None, error: BaseException | None = None
) -> None:
    """Trace a batch whose commit began at ``start_ns`` and ends now."""
    failed = None if error is None else type(error).__name__
    attributes = {**_of_app(app_id), **({} if counts is None else of_counts(counts))}
    commit = note.trace.child("commit", Interval.since(start_ns), attributes, failed)
    steps = [*_beginning_spans(note.trace, note.beginning, _of_app(app_id)), commit]
    _send(note.trace, note.beginning, steps, attributes, failed)


def trace_failed_tasks(note: TraceNote, app_id: str) -> None:
    """Trace a batch that failed in a task."""
    of_app = _of_app(app_id)
    steps = _beginning_spans(note.trace, note.beginning, of_app)
    _send(note.trace, note.beginning, steps, of_app, TASK_FAILED)


def of_counts(counts: BatchCounts) -> Attributes:
    """Return the attributes with the amounts read and written."""
    known = {
        "records": counts.records,
        "read_bytes": counts.read_bytes,
        "rows": counts.rows,
        "dead_letters": counts.dead_letters,
        "files": counts.files,
        "written_bytes": counts.written_bytes,
    }
    return {f"sparkonce.{name}": number for name, number in known.items() if number is not None}


def _of_app(app_id: str) -> Attributes:
    return {"sparkonce.app_id": app_id}


def _beginning_spans(
    trace: BatchTrace, found: Beginning, attributes: Attributes, failed: str | None = None
) -> list[Span]:
    plans = [trace.child("plan", each, attributes) for each in found.planned]
    return [*plans, trace.child("begin", found.begun, attributes, failed)]


def _send(
    trace: BatchTrace, found: Beginning, steps: Sequence[Span], attributes: Attributes, failed: str | None
) -> None:
    """Send the spans of the steps and that of the whole, now: Spark may end this process with its query."""
    export(*steps, trace.root(Interval.since(found.start_ns), attributes, failed))
    flush()
