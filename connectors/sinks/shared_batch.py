"""One batch into many tables: each topic goes to a table, and each table has its part of the batch in its own commit.

The batch is Spark's, one for all topics. What a table gets of it is a batch of its own (`StreamSink.batch_of`): the
ranges of its topics, with a fingerprint over these alone, under the table's own appId. So each table compares, writes
and commits as the table of a query does that reads nothing else, and after any crash has its part once, whichever
other tables have theirs. Tables of which no partition has moved are not looked at.

Within a table the order is that of `connectors.sinks.stream_sink`: dead letters before rows. Tables are begun and
finished in the order of their names, on object stores several at once. Only direct queries can do that: there a task
knows which topic its rows are of before it reads them.

A table that refuses its part stops the query, or is left out (``isolateTables`` of the source), unless its offsets are
past the part already. Left out, it lacks the records of this batch and has no offset past them, so every later part is
refused as a gap, and nothing is written twice or skipped: the source does not read the topic until the table has caught
up (`Planner.without_those_behind`). If all tables of a batch are refused since their store does not answer, the batch
fails instead, and is repeated.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sparkonce.connectors.runtime.memory import begin_call
from sparkonce.connectors.sinks.batch_reports import shared_reports
from sparkonce.connectors.sinks.stream_sink import StreamSink, TaskMessage, of_one_attempt, rules_of
from sparkonce.crash_points import reach
from sparkonce.exactly_once.batch import Batch, BatchEntry
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.errors import PlanError
from sparkonce.offset_store.errors import OffsetStoreError, StoreOutageError
from sparkonce.offset_store.record import BatchCounts
from sparkonce.offset_store.store_hints import is_outage
from sparkonce.shipping import Shipped

_log = logging.getLogger(__name__)


class RangesByTopic(Protocol):
    """Divides the ranges of a task. Sent to the tasks."""

    def by_topic(self, handed_over: Iterable[pa.RecordBatch]) -> Mapping[str, Iterable[pa.RecordBatch]]:
        """Return what Spark has passed to a task, divided by topic. Raises ValueError for a row that is not a range."""


class Tables(Protocol):
    """The tables of a query, by name. Sent to the tasks."""

    @property
    def at_once(self) -> int:
        """How many tables are looked at and written at once: 1 where a store answers at once, as a disk does."""

    def of(self, topics: Iterable[str]) -> Mapping[str, Set[str]]:
        """Return the tables of some topics, and which of these go into each."""

    def begun(self, name: str, entry: BatchEntry, attempt_id: str, topics: Set[str]) -> StreamSink:
        """Return the sink of a table, which has begun its part of a batch. Raises what `StreamSink.begin` does."""

    def sink(self, name: str) -> StreamSink:
        """Return the sink of a table, to finish a batch that another process has begun."""

    def is_isolated(self, error: Exception) -> bool:
        """Whether an error is of one table alone, and the others go on."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a table has not got its part of a batch."""

    why: str
    store_is_out: bool
    """Whether its store does not answer, whatever it is asked."""

    @classmethod
    def by(cls, error: Exception) -> LeftOut:
        """Return the reason that an error is; values of rows that a message quotes are no outage."""
        causes = [each for each in (error, error.__cause__) if isinstance(each, (OSError, OffsetStoreError))]
        return cls(f"{type(error).__name__}: {error}", any(is_outage(str(each)) for each in causes))


@dataclass(frozen=True, slots=True)
class SharedMessage(WriterCommitMessage):
    """What one task wrote into each table of which it was to read anything."""

    tables: Mapping[str, TaskMessage]
    left_out: Mapping[str, LeftOut]
    """Why tables of which it was to read anything have refused their rows."""


class SharedBatchSink(DataSourceStreamArrowWriter, metaclass=Shipped):
    """Writes one batch into the tables of its topics. Travels to the tasks after `begin`."""

    def __init__(
        self,
        format_name: str,
        checkpoint: str,
        storage_options: Mapping[str, str],
        ranges: RangesByTopic,
        tables: Tables,
    ) -> None:
        """Write the records of ``ranges`` into ``tables``; ``storage_options`` are those of the checkpoint's store."""
        self._format_name = format_name
        self._checkpoint = checkpoint
        self._storage_options = dict(storage_options)
        self._ranges = ranges
        self._tables = tables
        self._sinks: dict[str, StreamSink] = {}
        self._left_out: dict[str, LeftOut] = {}

    def begin(self) -> None:
        """Let each table decide about its part of the batch that Spark has logged. Raises as `StreamSink.begin`."""
        begin_call()
        checkpoint = Checkpoint.open(self._checkpoint, self._storage_options)
        entry = self._entry(checkpoint.latest_batch_id())

        def begin(name: str, topics: Set[str]) -> None:
            with self._isolating(name, self._left_out):
                self._sinks[name] = self._tables.begun(name, entry, str(uuid.uuid4()), topics)

        tables = self._tables.of(entry.moved_topics)
        self._each_table(tables, begin)
        _check_store(tables, self._left_out)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SharedMessage:
        """Write the rows of one task, table by table."""
        begin_call()
        by_topic = self._ranges.by_topic(iterator)
        written: dict[str, TaskMessage] = {}
        left_out: dict[str, LeftOut] = {}
        for name, topics in sorted(self._tables.of(by_topic).items()):
            if name in self._left_out:
                left_out[name] = self._left_out[name]
                continue
            with self._isolating(name, left_out):
                rows = (batch for topic in sorted(topics) for batch in by_topic[topic])
                written[name] = self._sink(name).write_task(rows)
        return SharedMessage(written, left_out)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make each table's part visible there, unless it is already; clean up in those that are left out.

        Raises:
            DeliveryError, OffsetStoreError: if one must not be written.
        """
        begin_call()
        entry, start = self._entry(batchId), time.monotonic()
        written, refused, tables = _by_table(messages), _left_out(messages), self._tables.of(entry.moved_topics)
        for name, topics in tables.items():
            if name not in written and name not in refused:
                raise PlanError(
                    f"batch {batchId} reads {', '.join(sorted(topics))}, and no task was told to: with "
                    "handOver=ranges, no operator between source and sink may drop rows (filter, limit, sample). "
                    "Remove that operator, or set handOver=rows on the source"
                )
        assert written.keys() <= tables.keys(), "tasks only write what the batch reads"
        counts: list[BatchCounts] = []
        left_out, first = dict(refused), min(tables, default="")

        def finish(name: str, topics: Set[str]) -> None:
            if name in refused:
                return
            with self._isolating(name, left_out):
                batch = self._batch(name, entry, written[name], topics)
                if name != first:
                    reach(SinkPoint.BETWEEN_TARGETS, batchId, batch.record.app_id)
                counts.append(self._tables.sink(name).finish_batch(batch, written[name]))

        def leave_out(name: str, topics: Set[str]) -> None:
            _log.warning("%s: batch %d: %s is left out: %s", self._format_name, batchId, name, left_out[name].why)
            self._undo(name, entry, written.get(name, []), topics, may_be_committed=name not in refused)

        self._each_table(tables, finish)
        _check_store(tables, left_out)
        # Only now: if a table stops the batch, Spark has all of them aborted.
        self._each_table({name: tables[name] for name in left_out}, leave_out)
        if counts:
            total = reduce(BatchCounts.of_tasks, counts)
            seconds = time.monotonic() - start
            _log.info("%s: batch %d: %d tables in %.1f s", self._format_name, batchId, len(counts), seconds)
            shared_reports().add(entry.query_id, batchId, total)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Clean up after a failed batch in each table where its part did not land."""
        written, refused = _by_table(messages), _left_out(messages)
        try:
            entry = self._entry(batchId)
            tables = self._tables.of(entry.moved_topics)
        except Exception as error:  # raising here would hide why the batch failed
            _log.warning(
                "%s: batch %d: what it wrote stays, since the checkpoint cannot be read: %s",
                self._format_name,
                batchId,
                error,
            )
            return
        for name, own in sorted(written.items()):
            may_be_committed = None not in messages and name not in refused
            self._undo(name, entry, own, tables[name], may_be_committed=may_be_committed)

    def _each_table(self, tables: Mapping[str, Set[str]], do: Callable[[str, Set[str]], None]) -> None:
        """Do something for each table, in the order of their names; several at once where each waits for its store.

        Raises what the first one raises, once all that have begun are done.
        """
        in_order = sorted(tables.items())
        if self._tables.at_once == 1:
            for name, topics in in_order:
                do(name, topics)
            return
        with ThreadPoolExecutor(self._tables.at_once) as pool:
            running = [pool.submit(do, name, topics) for name, topics in in_order]
            try:
                for each in running:
                    each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    @contextmanager
    def _isolating(self, name: str, left_out: dict[str, LeftOut]) -> Iterator[None]:
        """Note an error as the reason why a table is left out, if it is of that table alone."""
        try:
            yield
        except Exception as error:
            if not self._tables.is_isolated(error):
                raise
            left_out[name] = LeftOut.by(error)

    def _batch(self, name: str, entry: BatchEntry, own: Sequence[TaskMessage], topics: Set[str]) -> Batch:
        return self._tables.sink(name).batch_of(entry, own[0].plans[0].attempt_id, rules_of(own), topics)

    def _undo(
        self, name: str, entry: BatchEntry, own: Sequence[TaskMessage], topics: Set[str], *, may_be_committed: bool
    ) -> None:
        """Remove what tasks have written for a table, unless its part has landed."""
        if own:
            batch = self._batch(name, entry, own, topics)
            self._tables.sink(name).abort_batch(batch, own, every_task_answered=may_be_committed)

    def _entry(self, batch_id: int) -> BatchEntry:
        return BatchEntry.read(Checkpoint.open(self._checkpoint, self._storage_options), batch_id, reads_ranges=True)

    def _sink(self, name: str) -> StreamSink:
        assert name in self._sinks, "a task reads what the batch reads"
        return self._sinks[name]


def _check_store(tables: Mapping[str, Set[str]], left_out: Mapping[str, LeftOut]) -> None:
    """Raise StoreOutageError if it is no table's own trouble that all of them are left out."""
    if len(tables) > 1 and tables.keys() == left_out.keys() and all(each.store_is_out for each in left_out.values()):
        raise StoreOutageError(f"none of {len(tables)} tables can be reached: {left_out[min(tables)].why}")


def _by_table(messages: Sequence[WriterCommitMessage | None]) -> dict[str, list[TaskMessage]]:
    """Return what the tasks have written to each table."""
    found: dict[str, list[WriterCommitMessage | None]] = {}
    for message in messages:
        if isinstance(message, SharedMessage):
            for name, own in message.tables.items():
                found.setdefault(name, []).append(own)
    return {name: of_one_attempt(own) for name, own in found.items()}


def _left_out(messages: Iterable[WriterCommitMessage | None]) -> dict[str, LeftOut]:
    """Return why tables have refused their rows, in a task or before."""
    return {
        name: why
        for message in messages
        if isinstance(message, SharedMessage)
        for name, why in message.left_out.items()
    }
