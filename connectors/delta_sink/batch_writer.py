"""What ``df.write.format("delta_once")`` does: the rows of all tasks in one commit, and with a key, once.

Tasks write files that nothing names yet, and the driver's commit names them all, so a job that fails leaves no row, and
neither do tasks that Spark runs again or speculatively. With `idempotencyKey` the commit also writes a transaction id
of that key, whose version is the number of rows, and is made through the handle that has been looked up for it: of two
jobs with one key, at the same time or one after the other, one commits. The other counts its rows: another number shows
that the key was used for other rows, and is an error.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.options import FORMAT, BatchOptions
from sparkonce.connectors.delta_sink.parquet import DataFile, FileSettings, TableWriter, delete_quietly
from sparkonce.connectors.delta_sink.schema import WriteSchema
from sparkonce.connectors.delta_sink.table import ResultSnapshot, ResultTable
from sparkonce.connectors.delta_sink.target import add_action, file_settings, may_land_later, store_errors
from sparkonce.connectors.runtime.memory import begin_call
from sparkonce.connectors.values.letters import COLUMN
from sparkonce.crash_points import reach
from sparkonce.exactly_once.commit import MAX_CONFLICTS
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.exactly_once.restored import with_restores
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.own_commits import BATCH_INFO_KEY, IDEMPOTENCY_KEY
from sparkonce.offset_store.tables import join, table_filesystem
from sparkonce.offset_store.txn_ids import write_txn_id
from sparkonce.options import OptionError
from sparkonce.shipping import Shipped
from sparkonce.words import counted

FILE_PREFIX = "batch"
"""Names of files, unlike those of streams: rows without offsets, which a stream need not account for."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskFiles(WriterCommitMessage):
    """What one task wrote, and of how many rows."""

    rows: int
    files: tuple[DataFile, ...] = ()


class DeltaBatchWriter(DataSourceArrowWriter, metaclass=Shipped):
    """Writes the rows of a batch query. Travels to the tasks, and to the process that commits."""

    def __init__(self, options: BatchOptions, schema: StructType, *, replace: bool) -> None:
        """Check the table, which is created if it is missing, and look the key up; with ``replace``, overwrite.

        Raises:
            OptionError: if there are dead letters among the rows, which would be written as rows.
            TableError, SchemaError, OffsetStoreError: if the rows must not go into the table.
        """
        begin_call()
        if COLUMN in schema.names:
            raise OptionError(
                f"{FORMAT}: the rows have a column {COLUMN}, and a batch (df.write) writes no dead letters: write the "
                "rows where it is null, without the column, and the others separately; or use writeStream with "
                "deadLetters"
            )
        self._options, self._schema, self._replace = options, schema, replace
        self._attempt_id = str(uuid.uuid4())
        with self._store_errors():
            table = self._table()
            snapshot = table.snapshot()
            self._is_there = self._rows_there(snapshot) is not None
            if options.merge_schema and not self._is_there:
                table.grow()
            self._since = snapshot.version
            self._settings: FileSettings = file_settings(table, options, FILE_PREFIX)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of one task; only count them if the key is in the table."""
        begin_call()
        if self._is_there:
            return TaskFiles(sum(rows.num_rows for rows in iterator))
        with self._store_errors():
            filesystem, root = table_filesystem(self._options.table, self._options.storage_options)
            writer = TableWriter(filesystem, root, self._settings, before_closing=lambda: reach(SinkPoint.WRITING))
            count = 0
            try:
                for rows in iterator:
                    if rows.num_rows:
                        writer.write(rows)
                        count += rows.num_rows
                return TaskFiles(count, tuple(writer.close()))
            except BaseException:
                writer.discard()
                raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote, unless the key is in the table.

        Raises:
            DeliveryError: if the key is in the table with another number of rows, or was removed meanwhile.
            TableError, SchemaError, OffsetStoreError: if the rows must not go into the table.
        """
        begin_call()
        count, files = _of_all(messages)
        reach(SinkPoint.BEFORE_COMMIT)
        with self._store_errors():
            there = self._commit(count, files)
            if there is not None:
                self._skip(there, count, files)
        reach(SinkPoint.AFTER_COMMIT)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of a failed job, unless its commit landed."""
        _, files = _of_all(messages)
        if not files:
            return
        try:
            with self._store_errors():
                landed = self._has_landed()
        except Exception as error:
            # Raising here would hide why the job failed.
            _log.warning("%s: files of the failed write stay, since the log cannot be read: %s", FORMAT, error)
            return
        if not landed:
            self._delete(files, every_task_answered=None not in messages)

    def _commit(self, count: int, files: Sequence[DataFile]) -> int | None:
        """Commit the files, or return how many rows the table has under the key already."""
        key = self._options.idempotency_key
        transactions = {} if key is None else {write_txn_id(key): count}
        table = self._table(self._settings.table_id, self._settings.schema)
        actions = [add_action(file) for file in files]
        conflict: Exception | None = None
        for _ in range(MAX_CONFLICTS):
            snapshot = table.snapshot()
            there = self._rows_there(snapshot)
            if there is not None:  # this very write: a store can complete a commit after it has reported a conflict
                return None if conflict is not None and self._has_landed() else there
            self._check_counted_only()
            if not (actions or transactions or self._replace):
                return None
            snapshot.check_files(actions, "this write")
            try:
                snapshot.write(Proposal(transactions, {BATCH_INFO_KEY: self._info(count)}, actions))
                reach(SinkPoint.ROWS_LANDED)
                return None
            except Exception as error:  # of many kinds: one that shows a secret is an OffsetStoreError by now
                if self._has_landed():
                    return None
                if not isinstance(error, CommitConflictError):
                    raise
                conflict = error
        raise DeliveryError(
            f"{FORMAT}: gave up after {MAX_CONFLICTS} commits to {self._options.table} that conflicted with other "
            f"writers; the last: {conflict}"
        ) from conflict

    def _check_counted_only(self) -> None:
        if self._is_there:
            raise DeliveryError(
                f"{FORMAT}: {self._named} was in the table {self._options.table} when this write began, so its rows "
                "were only counted, and is not there now: the table was replaced. Nothing was written; repeat the write"
            )

    def _skip(self, there: int, count: int, files: Sequence[DataFile]) -> None:
        """Report that the key is in the table. Raises DeliveryError if it is there with another number of rows."""
        self._delete(files, every_task_answered=False)
        if there != count:
            raise DeliveryError(
                f"{FORMAT}: the table {self._options.table} has a write of {counted(there, 'row')} under "
                f"{self._named}, and this one has {counted(count, 'row')}: nothing was written. Use another key for "
                "other rows"
            )
        _log.warning(
            "%s: the table %s has a write of %s under %s: nothing is written again",
            FORMAT,
            self._options.table,
            counted(count, "row"),
            self._named,
        )

    def _rows_there(self, snapshot: ResultSnapshot) -> int | None:
        """Return how many rows were written under the key; None if none were, or there is no key.

        Raises:
            DeliveryError: if a RESTORE has removed these rows, or may have: it leaves transaction ids as they are.
        """
        key = self._options.idempotency_key
        count = None if key is None else snapshot.look_up(write_txn_id(key))
        if count is None:
            return None
        removed_by: CommitEntry | None = None
        for entry, restore in with_restores(snapshot.entries_since(-1)):
            removed_by = restore
            if entry.write_key == key:
                break
        if removed_by is not None:
            raise DeliveryError(
                f"{FORMAT}: the table {self._options.table} has {self._named}, and by its log version "
                f"{removed_by.version} (RESTORE) removed that write of {counted(count, 'row')}. Nothing was written: "
                "to write them again, use another key"
            )
        return count

    def _has_landed(self) -> bool:
        """Whether a commit since the beginning is this write's."""
        snapshot = self._table(self._settings.table_id).snapshot_unchecked()
        infos = snapshot.commit_infos(snapshot.version - self._since)
        own = (info.get(BATCH_INFO_KEY) for info in infos)
        return any(isinstance(each, dict) and each.get("attemptId") == self._attempt_id for each in own)

    def _delete(self, files: Sequence[DataFile], *, every_task_answered: bool) -> None:
        if not files or may_land_later(self._options.table, every_task_answered=every_task_answered):
            return
        filesystem, root = table_filesystem(self._options.table, self._options.storage_options)
        for file in files:
            delete_quietly(filesystem, join(root, file.path))

    def _info(self, count: int) -> dict[str, Any]:
        key = self._options.idempotency_key
        named = {} if key is None else {IDEMPOTENCY_KEY: key}
        return {"attemptId": self._attempt_id, "rows": count, **named}

    @property
    def _named(self) -> str:
        return f"idempotencyKey={self._options.idempotency_key}"

    def _table(self, table_id: str | None = None, written_as: WriteSchema | None = None) -> ResultTable:
        return ResultTable(self._options, self._schema, table_id, written_as, replace=self._replace)

    def _store_errors(self) -> AbstractContextManager[None]:
        return store_errors(self._options.table, self._options.storage_options)


def _of_all(messages: Sequence[WriterCommitMessage | None]) -> tuple[int, list[DataFile]]:
    written = [message for message in messages if isinstance(message, TaskFiles)]
    return sum(each.rows for each in written), [file for each in written for file in each.files]
