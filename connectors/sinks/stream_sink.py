"""The common part of both sinks: the steps in which Spark writes a micro-batch, for one `Target` or several.

Spark calls ``streamWriter`` twice for every batch, in two long-lived processes of the driver:

1. in one, before the tasks: the returned `StreamSink` is sent to them. `StreamSink.begin` reads the batch from Spark's
   offset log, and each target compares it with what it has stored, and makes the commits that come before the rows, if
   the guarantee has any;
2. tasks pass their rows to the writers of the targets, which make them durable, but not visible, and return a message;
3. in the other process, before ``commit`` or ``abort``, with the tasks' messages: each target makes its rows visible.

Only the messages connect 1 and 3. A batch that is already in every target (a replay) is detected in step 1, so its
tasks do not even read their records, and a warning is logged. If the query has state they still read: Spark saves the
state of a task when its rows have been read. ``abort`` is also called after a ``commit`` that failed.

Targets are begun and finished in their order, dead letters before rows: after any crash, an earlier target in the order
is at least as far as the later ones.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sparkonce.connectors.runtime.memory import begin_call
from sparkonce.connectors.sinks.batch_reports import shared_reports
from sparkonce.connectors.sinks.batch_trace import (
    Beginning,
    TraceNote,
    beginning,
    of_counts,
    trace_commit,
    trace_failed_tasks,
    trace_refusal,
)
from sparkonce.connectors.sinks.range_reader import RangeReader, Reading
from sparkonce.connectors.sinks.target import Routing, Target, TargetPlan, Task, TaskWriter
from sparkonce.connectors.telemetry.tasks import TaskSpan, of_records, trace_of_task, traced_rows
from sparkonce.connectors.values.rules import Rules, with_unknown
from sparkonce.crash_points import reach
from sparkonce.exactly_once.batch import Batch, BatchEntry
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.coverage import Part, check_coverage
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.errors import CheckpointError, DeliveryError, PlanError
from sparkonce.offset_store.record import BatchCounts
from sparkonce.options import KAFKA_FORMAT, OptionError
from sparkonce.shipping import Shipped
from sparkonce.words import counted

BATCH_ID_PROPERTY = "streaming.sql.batchId"
CALL_SITE_PROPERTY = "callSite.short"
"""The method of Spark that started the query, and where it was called: ``start at …``, ``toTable at …``."""
TO_TABLE = "toTable "
_COMMIT_RUNNER = "python_streaming_sink_runner.py"

RANGES_IN_MESSAGES = 3
"""How many partitions of a batch a message names."""

_log = logging.getLogger(__name__)


def called_to_commit() -> bool:
    """Whether Spark requests a writer in order to commit or abort, and not to begin a batch.

    Must be called directly by ``streamWriter``, since it depends on the file of its caller. If that is unknown, the
    batch is begun twice, which is safe.
    """
    frame = sys._getframe(2)
    return frame.f_code.co_filename.endswith(_COMMIT_RUNNER)


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """What one task wrote, and what was planned for the batch that it belongs to; both in the order of the targets."""

    plans: tuple[TargetPlan, ...]
    parts: tuple[object | None, ...]
    """None where it had no rows for a target."""
    read: tuple[Part, ...] = ()
    """The ranges that the task was to read, in a query that hands over ranges."""
    counts: tuple[BatchCounts, ...] = ()
    """What it has read, and written to each target."""
    rules: str | None = None
    """What made rows of the records, in such a query."""
    note: TraceNote | None = None
    """None if batches are not traced."""


def no_table_of_a_catalog(format_name: str) -> str:
    """Return why ``toTable`` is rejected: Spark makes the query's format the table's provider, and cannot read it."""
    instead = (
        "for a table's name, use sparkonce.write_stream(rows) in place of rows.writeStream"
        if format_name != KAFKA_FORMAT
        else "use start with the option topic"
    )
    return (
        f"{format_name}: toTable creates a table in Spark's catalog whose provider is {format_name}, which nothing can "
        f"read. No row was written. Drop that entry, which holds nothing (DROP TABLE <name>); {instead}"
    )


class StreamSink(DataSourceStreamArrowWriter, metaclass=Shipped):
    """Writes one batch. Travels to the tasks after `begin`."""

    def __init__(
        self,
        format_name: str,
        checkpoint: str,
        app_id: str,
        targets: Sequence[Target],
        routing: Routing | None = None,
        storage_options: Mapping[str, str] | None = None,
        reader: RangeReader | None = None,
    ) -> None:
        """Write to ``targets``, in this order; ``routing`` distributes the rows if there are several.

        ``storage_options`` are those of the store that the checkpoint lies in. With ``reader``, what Spark passes to
        the tasks are ranges, whose rows it reads.
        """
        assert routing is not None or len(targets) == 1, "only one target takes rows as they are"
        self._format_name = format_name
        self._checkpoint = checkpoint
        self._storage_options = dict(storage_options or {})
        self._app_id = app_id
        self._targets = tuple(targets)
        self._routing = routing
        self._reader = reader
        self._plans: tuple[TargetPlan, ...] = ()
        self._stateful = False
        self._beginning: Beginning | None = None

    @property
    def reader(self) -> RangeReader | None:
        """The reader of the rows; after `begin`, by the rules with which the batch was begun."""
        return self._reader

    def checked_by(self, check: Callable[[RangeReader, TargetPlan], RangeReader]) -> Self:
        """Have tasks read with what ``check`` makes of the reader, if there is one, and of the plan for the rows."""
        if self._reader is not None:
            self._reader = check(self._reader, self._plans[-1])
        return self

    def begin(self) -> None:
        """Decide about the batch that Spark has just logged. Raises DeliveryError or OffsetStoreError to refuse it."""
        begin_call()
        start_ns = time.time_ns()
        checkpoint = Checkpoint.open(self._checkpoint, self._storage_options)
        batch = self._read_batch(checkpoint, checkpoint.latest_batch_id(), str(uuid.uuid4()), self.rules)
        try:
            self.begin_batch(batch)
        except Exception as error:
            trace_refusal(batch, checkpoint, start_ns, error)
            raise
        self._beginning = beginning(batch, checkpoint, start_ns)

    def begin_batch(self, batch: Batch) -> None:
        """Decide about a batch, which `batch_of` has returned. Raises as `begin`."""
        self._stateful = batch.stateful
        if self._reader is not None:
            _check_direct(batch)
        self._plans = tuple(target.begin(batch) for target in self._targets)
        if self._plans[-1].writes_rows:
            self._complete_by(batch, frozenset[str]().union(*(plan.written_by for plan in self._plans)))
        if not self._plans[-1].writes_rows:
            self._warn_of_skipped(batch)

    def _complete_by(self, batch: Batch, rules: Set[str]) -> None:
        """Read the batch by the rules with which a part of it was written already, if there are any.

        Raises:
            DeliveryError: if they are not available, or each part has different ones.
        """
        if not rules:
            return
        if len(rules) > 1:
            raise DeliveryError(
                f"{batch}: its dead letters are written, found in its parts by different versions of a schema, options "
                "of values or schemas that the registry had, and its rows are not, as after a restore of the table of "
                "the rows, or of its offsets: "
                "read by one of them, a record could be in both places, or in neither. Restore the place of the dead "
                "letters to before these records, too, or set its offsets back, which writes their dead letters again"
            )
        (written_by,) = rules
        reader = None if self._reader is None else self._reader.with_rules(written_by)
        if reader is None:
            raise DeliveryError(
                f"{batch}: its dead letters are written, found by another sql, valueSchema, mode or option of values "
                "than the source and the sink have now, or by a constraint that the table no longer has, and its rows "
                "are not: a record could be in both places, or in neither. Set the options, and the table's "
                "constraints, as they were until this batch is complete, and change them then"
            )
        if written_by != self.rules:
            _log.info("%s: %s is completed with the schema that it was begun with", self._format_name, batch)
        self._reader = reader

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task."""
        begin_call()
        trace = trace_of_task()
        if trace is None:
            return self.write_task(iterator)
        span = TaskSpan(trace, "write")
        of_app = {"sparkonce.app_id": self._app_id}
        try:
            message = self.write_task(iterator, span)
        except BaseException as error:
            span.end(of_app, error)
            raise
        span.end({**of_app, **of_counts(reduce(BatchCounts.of_commits, message.counts))})
        return message if self._beginning is None else replace(message, note=TraceNote(trace, self._beginning))

    def write_task(self, iterator: Iterator[pa.RecordBatch], span: TaskSpan | None = None) -> TaskMessage:
        """Write the rows of one task, in the span of the task if it is traced."""
        assert self._plans, "begin was called before the writer was sent to tasks"
        task = self._task(self._plans[0].batch_id)
        reading = None if self._reader is None else self._reader.open(iterator)
        writers: list[TaskWriter | None] = []
        try:
            for target, plan in zip(self._targets, self._plans, strict=True):
                writers.append(target.open(plan, task) if plan.writes_rows else None)
            if any(writer is not None for writer in writers):
                self._write_rows(iterator if reading is None else _rows(reading, span), writers)
            else:
                self._read_for_state(iterator, task)
            parts = tuple(None if writer is None else writer.close() for writer in writers)
            counts = tuple(_counts(writer, reading) for writer in writers)
        except BaseException:
            for writer in writers:
                if writer is not None:
                    writer.discard()
            raise
        if reading is None:
            return TaskMessage(self._plans, parts, (), counts)
        return TaskMessage(self._plans, parts, reading.parts, counts, with_unknown(self.rules, reading.count.unknown))

    def _task(self, planned_batch_id: int) -> Task:
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        if (context.getLocalProperty(CALL_SITE_PROPERTY) or "").startswith(TO_TABLE):
            raise OptionError(no_table_of_a_catalog(self._format_name))
        batch_id = int(context.getLocalProperty(BATCH_ID_PROPERTY) or planned_batch_id)
        if batch_id != planned_batch_id:
            raise CheckpointError(
                f"Spark runs batch {batch_id}, and {planned_batch_id} is the newest in checkpointLocation="
                f"{self._checkpoint}: set that option to the directory that the query really uses"
            )
        return Task(batch_id, context.partitionId(), context.attemptNumber(), context.taskAttemptId())

    def _write_rows(self, batches: Iterable[pa.RecordBatch], writers: Sequence[TaskWriter | None]) -> None:
        for rows in batches:
            routed = [rows] if self._routing is None else self._routing(rows)
            for writer, own in zip(writers, routed, strict=True):
                if writer is not None and own.num_rows:
                    writer.write(own)

    def _read_for_state(self, rows: Iterable[pa.RecordBatch], task: Task) -> None:
        """Read rows that are not written, if the query has state: otherwise the next batch would not find its state.

        Spark creates the state folder while it plans batch 0, so it may have appeared since `begin`.
        """
        stateful = self._stateful
        if not stateful and task.batch_id == 0:
            stateful = Checkpoint.open(self._checkpoint, self._storage_options).is_stateful()
        if stateful:
            for _ in rows:
                pass

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch visible in each target, unless it is there already.

        Raises:
            DeliveryError, OffsetStoreError: if it must not be written.
        """
        begin_call()
        start_ns = time.time_ns()
        written = of_one_attempt(messages)
        if not written:
            return  # Spark runs at least one task, also for a batch without rows (`WriteToDataSourceV2Exec`)
        note = written[0].note
        try:
            counts = self._commit(written, batchId)
        except Exception as error:
            if note is not None:
                trace_commit(note, self._app_id, start_ns, error=error)
            raise
        if note is not None:
            trace_commit(note, self._app_id, start_ns, counts)

    def _commit(self, written: Sequence[TaskMessage], batch_id: int) -> BatchCounts:
        checkpoint = Checkpoint.open(self._checkpoint, self._storage_options)
        batch = self._read_batch(checkpoint, batch_id, written[0].plans[0].attempt_id, rules_of(written))
        total = self.finish_batch(batch, written)
        shared_reports().add(batch.record.query_id, batch_id, total)
        return total

    def finish_batch(self, batch: Batch, written: Sequence[TaskMessage]) -> BatchCounts:
        """Make a batch visible in each target, and return what was read and written. Raises as `commit`."""
        plans, batch_id = written[0].plans, batch.record.batch_id
        if self._reader is not None:
            _check_direct(batch)
            check_coverage(batch, (part for message in written for part in message.read))
        counts = [_sum(written, position) for position in range(len(self._targets))]
        for position, (target, plan) in enumerate(zip(self._targets, plans, strict=True)):
            if position > 0 and plan.writes_rows:
                reach(SinkPoint.BETWEEN_TARGETS, batch_id, self._app_id)
            counted_batch = replace(batch, record=replace(batch.record, counts=counts[position]))
            target.finish(counted_batch, plan, _parts(written, position))
        total = reduce(BatchCounts.of_commits, counts)
        _log.info("%s: %s: %s", self._format_name, batch, total.to_document())
        return total

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Clean up after a failed batch in each target where it did not land."""
        written = of_one_attempt(messages)
        if not written:
            return
        note = written[0].note
        if note is not None and None in messages:  # else its commit has failed, and is traced
            trace_failed_tasks(note, self._app_id)
        try:
            checkpoint = Checkpoint.open(self._checkpoint, self._storage_options)
            batch = self._read_batch(checkpoint, batchId, written[0].plans[0].attempt_id, rules_of(written))
        except Exception as error:
            # Raising here would hide why the batch failed: Spark would only report "Writing job failed".
            _log.warning(
                "%s: batch %d: what it wrote stays, since the checkpoint cannot be read: %s",
                self._format_name,
                batchId,
                error,
            )
            return
        self.abort_batch(batch, written, every_task_answered=None not in messages)

    def abort_batch(self, batch: Batch, written: Sequence[TaskMessage], *, every_task_answered: bool) -> None:
        """Clean up after a failed batch in each target where it did not land; never raises expected errors."""
        for position, (target, plan) in enumerate(zip(self._targets, written[0].plans, strict=True)):
            target.abort(batch, plan, _parts(written, position), every_task_answered=every_task_answered)

    def _warn_of_skipped(self, batch: Batch) -> None:
        """Log that a batch is already stored; the last target is that of the rows."""
        moved = sorted(batch.record.moved.items())
        records = [
            f"{source} {tp} [{extent.start}, {extent.end})" for (source, tp), extent in moved[:RANGES_IN_MESSAGES]
        ]
        if len(moved) > len(records):
            records.append(counted(len(moved) - len(records), "more partition"))
        target = self._targets[-1]
        stored = f"its rows are in {target} already, nothing is written again"
        if target.offsets_first:
            stored = (
                f"its offsets are stored already, and at-most-once writes nothing again to {target}: rows that were "
                "not yet written at a crash are lost"
            )
        _log.warning(
            "%s: %s: %s. It covers %s. Either a crash happened before Spark recorded the batch in "
            "checkpointLocation=%s, which is expected; or that checkpoint is new: then option offsetStore with this "
            "appId on the source starts after these rows",
            self._format_name,
            batch,
            stored,
            ", ".join(records) or "no new records",
            self._checkpoint,
        )

    @property
    def rules(self) -> str | None:
        """What makes rows of the records, if it reads them itself."""
        return None if self._reader is None else self._reader.rules

    def _read_batch(self, checkpoint: Checkpoint, batch_id: int, attempt_id: str, rules: str | None) -> Batch:
        entry = BatchEntry.read(checkpoint, batch_id, reads_ranges=self._reader is not None)
        return self.batch_of(entry, attempt_id, rules)

    def batch_of(self, entry: BatchEntry, attempt_id: str, rules: str | None, topics: Set[str] | None = None) -> Batch:
        """Return a batch as it is for this sink, read by ``rules``; with ``topics``, only their part of it."""
        batch = entry.batch(self._app_id, attempt_id, topics)
        return replace(batch, record=replace(batch.record, rules=rules), is_one_of_all=True)


def rules_of(written: Sequence[TaskMessage]) -> str | None:
    """Return what made rows of the records of all tasks."""
    noted = [Rules.parse(message.rules) for message in written if message.rules is not None]
    return with_unknown(written[0].rules, frozenset().union(*(each.unknown for each in noted)))


def _check_direct(batch: Batch) -> None:
    """Check that the rows of a batch can be the ranges of our source alone.

    Raises:
        PlanError: if the query keeps state, or another source has planned a part of the batch.
    """
    if batch.foreign:
        raise PlanError(
            f"{batch}: a part of it was planned by another source, such as Spark's own Kafka connector, so what its "
            "ranges are is not in the checkpoint. If that was the source of this query until now, complete the batch "
            "with handOver=rows first"
        )
    if batch.stateful:
        raise PlanError(
            f"{batch}: the query keeps state (dropDuplicates, groupBy), and with handOver=ranges its rows are ranges "
            "to read, not records: set handOver=rows on the source"
        )


def of_one_attempt(messages: Iterable[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Return the messages that tasks sent; a task that failed sent none."""
    written = [message for message in messages if isinstance(message, TaskMessage)]
    attempts = {message.plans[0].attempt_id for message in written}
    assert len(attempts) <= 1, "one writer object served all tasks of a batch"
    return written


def _rows(reading: Reading, span: TaskSpan | None) -> Iterator[Any]:
    """Return the rows of ranges, in a span of their own if the task has one."""
    if span is None:
        return reading.rows()
    topics = {part.tp.topic for part in reading.parts}
    return traced_rows(reading.rows(), span.trace, lambda: of_records(topics, reading.count), span)


def _counts(writer: TaskWriter | None, reading: Reading | None) -> BatchCounts:
    """Return what a task has read, and written to one target."""
    written = BatchCounts() if writer is None else writer.written
    return (
        written if reading is None else replace(written, records=reading.count.records, read_bytes=reading.count.bytes)
    )


def _sum(written: Iterable[TaskMessage], position: int) -> BatchCounts:
    """Return what all tasks have read, and written to one target."""
    return reduce(BatchCounts.of_tasks, (message.counts[position] for message in written))


def _parts(written: Iterable[TaskMessage], position: int) -> list[object]:
    return [part for message in written if (part := message.parts[position]) is not None]
