"""A Delta table as the target of a sink: rows and offsets of a micro-batch in one commit.

Tasks write Parquet files into the table's folder and return their names, so nothing is visible yet; the driver's
commit names them all. Files of a batch that failed are deleted only when the log shows that they did not land, and on
an object store only when no commit was attempted.

Errors of object stores say what to do (`offset_store.store_hints`), and show no secret (`offset_store.secrets`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import cast

import pyarrow as pa
from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.options import SinkOptions, TableOptions
from sparkonce.connectors.delta_sink.parquet import FILE_PREFIX, DataFile, FileSettings, TableWriter, delete_quietly
from sparkonce.connectors.delta_sink.schema import WriteSchema, rule_names
from sparkonce.connectors.delta_sink.separate_store import copy_offsets, expect_brokers, separate_store
from sparkonce.connectors.delta_sink.table import ResultTable, cached_store
from sparkonce.connectors.sinks.target import TargetPlan, Task, WrappedPlan
from sparkonce.crash_points import reach
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery, DeliveryPlan, look
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.decision import Fresh, Stored, decide
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.exactly_once.refusals import THE_TABLE, StoreName
from sparkonce.exactly_once.restored import restore_since
from sparkonce.offset_store import DELTA
from sparkonce.offset_store.delta import COMMITS_LOOKED_AT
from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.record import BatchCounts, BatchRecord
from sparkonce.offset_store.secrets import shows_secret, with_message, without_secrets
from sparkonce.offset_store.store_hints import store_hint
from sparkonce.offset_store.tables import join, table_filesystem

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeltaPlan(WrappedPlan):
    """What was decided about a batch, and how its files are written."""

    plan: DeliveryPlan
    settings: FileSettings
    query: StructType
    """The columns of its rows. The committing process takes them from here: in a query that follows the schemas of a
    registry, it could find newer ones."""
    rules: Set[str]
    """The names of the table's rules about rows."""


class DeltaTarget:
    """The table of one query, for rows of one schema (`connectors.sinks.target.Target`); a part is a task's files."""

    def __init__(
        self, options: SinkOptions, schema: StructType, store_name: StoreName = THE_TABLE, *, replace: bool = False
    ) -> None:
        """Write rows of ``schema``; ``store_name`` is what messages call the table.

        With ``replace`` each batch replaces all rows of the table.
        """
        self._options = options
        self._schema = schema
        self._store_name = store_name
        self._replace = replace

    def __str__(self) -> str:
        """See `Target`."""
        together = self._options.guarantee is Guarantee.EXACTLY_ONCE or self._options.offset_store is None
        store = f"{DELTA}{self._options.table}" if together else self._options.offset_store
        return f"the table {self._options.table} (offsets in {store})"

    @property
    def offsets_first(self) -> bool:
        """See `Target`."""
        return self._options.guarantee is Guarantee.AT_MOST_ONCE

    def stored(self, batch: Batch) -> Stored:
        """See `Target.stored`."""
        table, delivery = self._delivery()
        with self._store_errors():
            rows = table.snapshot()
            return look(rows if delivery.offsets is None else delivery.offsets.snapshot(), batch, rows)

    def begin(self, batch: Batch) -> DeltaPlan:
        """See `Target.begin`. Raises DeliveryError, OffsetStoreError, TableError or SchemaError to refuse the batch."""
        expect_brokers(self._options, batch)
        with self._store_errors():
            return self._begin(batch)

    def _begin(self, batch: Batch) -> DeltaPlan:
        table, delivery = self._delivery()
        # New columns first, so that a failure there comes before anything is written; but not for a batch that the
        # table has, or that will be refused.
        if self._options.merge_schema and isinstance(decide(self.stored(batch), batch), Fresh):
            table.grow()
        plan = delivery.begin(batch)
        self._warn_of_restore(table)
        return DeltaPlan(plan, file_settings(table, self._options), self._schema, rule_names(table.facts))

    def _warn_of_restore(self, table: ResultTable) -> None:
        """Log once that a RESTORE has removed rows since the query's last commit: offsets stay as they are."""
        app_id, followed = self._options.app_id, table.followed
        if followed.version is None or not followed.may_be_restored:
            return
        try:
            found = restore_since(app_id, islice(table.entries(followed.version), COMMITS_LOOKED_AT))
        except OffsetStoreError as error:  # the next batch looks again
            _log.warning("delta_once: whether a RESTORE has removed rows of appId %s is unknown: %s", app_id, error)
            return
        followed.may_be_restored = False
        if found is not None:
            restore, last = found
            to = "an older version" if restore.restored_to is None else f"version {restore.restored_to}"
            _log.warning(
                "delta_once: version %d of the table %s is a RESTORE to %s, after the last commit of appId %s (version "
                "%d). It removed the rows that were written after that version, and left the stored offsets: their "
                "records are not read again. To write them again, stop the query, revert the offsets to match the rows "
                "(sparkonce offsets rewind %s --to-version %s --restore), and start with a new checkpointLocation and "
                "offsetStore",
                restore.version,
                self._options.table,
                to,
                app_id,
                last,
                self._options.table,
                "<that version>" if restore.restored_to is None else restore.restored_to,
            )

    def records(self, app_id: str) -> Iterator[BatchRecord]:
        """See `Target.records`: one for each commit that the log of the table keeps."""
        with self._store_errors():
            for entry in self._delivery()[0].snapshot().entries_since(-1):
                if entry.batch is not None and entry.batch.record.app_id == app_id:
                    yield entry.batch.record

    def open(self, plan: TargetPlan, task: Task) -> FileWriter | None:
        """See `Target.open`: with at-most-once, a retried task writes nothing."""
        retried = self._options.guarantee is Guarantee.AT_MOST_ONCE and task.attempt_number > 0
        if not plan.writes_rows or retried:
            return None
        filesystem, root = table_filesystem(self._options.table, self._options.storage_options)
        batch_id, app_id = task.batch_id, self._options.app_id
        table_writer = TableWriter(
            filesystem,
            root,
            _own(plan).settings,
            before_closing=lambda: reach(SinkPoint.WRITING, batch_id, app_id),
        )
        return FileWriter(table_writer, batch_id, app_id, self._store_errors)

    def finish(self, batch: Batch, plan: TargetPlan, parts: Sequence[object]) -> None:
        """See `Target.finish`. Raises DeliveryError, OffsetStoreError, TableError or SchemaError to refuse a batch."""
        own = _own(plan)
        expect_brokers(self._options, batch)
        table, delivery = self._delivery(own.settings.table_id, own.settings.schema, own.query)
        with self._store_errors():
            delivery.finish(batch, own.plan, [add_action(file) for file in _files(parts)])
        copy = separate_store(self._options)
        if delivery.offsets is None and copy is not None:
            copy_offsets(table, copy, batch, self._options.storage_options)

    def abort(self, batch: Batch, plan: TargetPlan, parts: Sequence[object], *, every_task_answered: bool) -> None:
        """See `Target.abort`."""
        if may_land_later(self._options.table, every_task_answered=every_task_answered):
            _log.warning("delta_once: %s: its files stay, since its commit may still be in flight", batch)
            return
        files = _files(parts)
        if files and not self._may_have_landed(batch, _own(plan)):
            filesystem, root = table_filesystem(self._options.table, self._options.storage_options)
            for file in files:
                delete_quietly(filesystem, join(root, file.path))

    def _may_have_landed(self, batch: Batch, plan: DeltaPlan) -> bool:
        try:
            # Unchecked: a changed schema may be why the batch failed.
            _, delivery = self._delivery(plan.settings.table_id)
            with self._store_errors():
                return delivery.has_landed(batch.record, plan.plan.rows_version)
        except Exception as error:
            # Raising here would hide why the batch failed: Spark would only report "Writing job failed".
            _log.warning("delta_once: %s: its files stay, since the log cannot be read: %s", batch, error)
            return True

    def _store_errors(self) -> AbstractContextManager[None]:
        return store_errors(self._options.table, self._options.storage_options)

    def _delivery(
        self, table_id: str | None = None, written_as: WriteSchema | None = None, query: StructType | None = None
    ) -> tuple[ResultTable, Delivery]:
        # Dead letters of several applications share a table, each with those of its own rows.
        meant = self._options.meant if self._store_name.holds_rows else None
        table = ResultTable(
            self._options, query or self._schema, table_id, written_as, replace=self._replace, meant=meant
        )
        together = self._options.guarantee is Guarantee.EXACTLY_ONCE
        apart = None if together else separate_store(self._options)
        return table, Delivery(table, ORDERS[self._options.guarantee], apart, self._store_name)


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes the rows of one task into files; see `connectors.sinks.target.TaskWriter`."""

    table_writer: TableWriter
    batch_id: int
    app_id: str
    store_errors: Callable[[], AbstractContextManager[None]]

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows."""
        with self.store_errors():
            self.table_writer.write(rows)

    def close(self) -> tuple[DataFile, ...] | None:
        """Finish every file, and return them all."""
        with self.store_errors():
            files = tuple(self.table_writer.close())
        if not files:
            return None
        reach(SinkPoint.FILE_WRITTEN, self.batch_id, self.app_id)
        return files

    def discard(self) -> None:
        """Remove every file."""
        self.table_writer.discard()

    @property
    def written(self) -> BatchCounts:
        """See `connectors.sinks.target.TaskWriter`."""
        files = self.table_writer.finished
        return BatchCounts(
            rows=sum(file.rows for file in files), files=len(files), written_bytes=sum(file.size for file in files)
        )


def may_land_later(table: Location, *, every_task_answered: bool) -> bool:
    """Whether a commit that has failed could still appear in the log.

    On a local disk it is there or not. An object store can complete a write whose sender has timed out. Spark aborts in
    another process than it commits in, so this only knows whether all tasks sent their messages, as they have if a
    commit was attempted.
    """
    return not table.is_local and every_task_answered


def _own(plan: TargetPlan) -> DeltaPlan:
    assert isinstance(plan, DeltaPlan), "a target is given the plans that it made"
    return plan


def _files(parts: Sequence[object]) -> list[DataFile]:
    return [file for part in parts for file in cast("tuple[DataFile, ...]", part)]


def file_settings(table: ResultTable, options: TableOptions, prefix: str = FILE_PREFIX) -> FileSettings:
    """Return how files of a table, as of its last snapshot, are written."""
    facts = table.facts
    return FileSettings(
        facts.table_id,
        table.write_schema,
        options.compression,
        options.target_file_bytes,
        facts.indexed_columns,
        facts.statistics_columns,
        options.row_group_bytes,
        options.row_group_rows,
        prefix,
    )


def last_rules(options: SinkOptions) -> str | None:
    """Return the rules of the table's last batch, None if not recorded. Raises OffsetStoreError if not readable."""
    with store_errors(options.table, options.storage_options):
        try:
            snapshot = cached_store(options).snapshot_unchecked()
        except StoreMissingError:
            return None
        newest = snapshot.newest_of(options.app_id)
    return None if newest is None else newest.record.rules


def add_action(file: DataFile) -> AddFile:
    """Return the action of a commit that names a file."""
    return AddFile(file.path, file.size, file.partition_values, file.modification_time_ms, file.statistics, file.rows)


@contextmanager
def store_errors(location: Location, storage_options: Mapping[str, str]) -> Iterator[None]:
    """Pass errors on unchanged, unless they show a secret, or something can be done about the store.

    Raises:
        OffsetStoreError: in place of those; but an error of our own that shows a secret keeps its class.
    """
    try:
        yield
    except Exception as error:
        text = plain(error)
        # Our own errors say what to do themselves.
        hint = store_hint(location, text) if isinstance(error, OSError) else ""
        told = without_secrets(text, storage_options) + hint
        if shows_secret(error, storage_options):
            raise with_message(error, told) from None
        if hint:
            raise OffsetStoreError(f"{location}: {told}") from error
        raise
