"""The sink `delta_once`: rows and offsets of a micro-batch in one Delta commit.

Spark calls ``streamWriter`` twice for every batch, in two long-lived processes of the driver:

1. in one, before the tasks: the writer that it gives is sent to them. `begin` reads the batch from Spark's offset
   log, compares it with the table and makes the commits that come before the rows, if the guarantee has any;
2. tasks write Parquet files into the table's folder and answer with their names: nothing is visible yet;
3. in the other process, before ``commit`` or ``abort``, with the tasks' messages: one commit makes all visible.

Only the messages link 1 and 3. A batch that is in the table already (a replay) is seen in step 1, so its tasks do
not even read their records. ``abort`` is also called after a ``commit`` that failed, so it deletes files only when the
log shows that they did not land, and on an object store only when no commit was tried.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from connectors.delta_once.apart import copy_offsets, store_apart
from connectors.delta_once.options import FORMAT, SinkOptions
from connectors.delta_once.parquet import DataFile, FileSettings, TableWriter, delete_quietly
from connectors.delta_once.schema import WriteSchema
from connectors.delta_once.table import ResultTable, TableError
from connectors.options import OptionError
from exactly_once.batch import Batch, read_batch
from exactly_once.checkpoint import Checkpoint
from exactly_once.commit import Delivery, Plan
from exactly_once.crash_points import CrashPoint, reach
from exactly_once.guarantee import ORDERS, Guarantee
from offset_store.locations import Location
from offset_store.tables import join, table_filesystem

BATCH_ID_PROPERTY = "streaming.sql.batchId"
_COMMIT_RUNNER = "python_streaming_sink_runner.py"

_log = logging.getLogger(__name__)


class DeltaOnceDataSource(DataSource):
    """The format ``delta_once`` of ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Refuse ``spark.read``.

        Raises:
            OptionError: always.
        """
        raise OptionError(f"{FORMAT} only writes: read the table with delta-spark or deltalake")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Refuse ``df.write``: a batch has no offsets to commit.

        Raises:
            OptionError: always.
        """
        raise OptionError(f"{FORMAT} is for writeStream: write a batch with delta-spark or deltalake")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaOnceWriter:  # noqa: N802
        """Give the writer of one batch; see the module's docstring for when.

        Raises:
            OptionError: for options that cannot work.
            DeliveryError, TableError, SchemaError: if the batch must not be written.
        """
        options = SinkOptions.read(self.options)
        if overwrite:
            raise OptionError(
                f"{FORMAT}: outputMode complete would replace the table every batch, which {FORMAT} does not do. Use "
                "append or update; or foreachBatch with delta-spark's overwrite"
            )
        writer = DeltaOnceWriter(options, schema)
        if not _called_to_commit():
            writer.begin()
        return writer


def _called_to_commit() -> bool:
    """Whether Spark asks for the writer in order to commit; if this cannot be told, it begins twice, which is safe."""
    frame = sys._getframe(2)
    return frame.f_code.co_filename.endswith(_COMMIT_RUNNER)


@dataclass(frozen=True, slots=True)
class FilesWritten(WriterCommitMessage):
    """What one task did, and what was planned for the batch that it belongs to."""

    plan: Plan
    settings: FileSettings
    files: tuple[DataFile, ...]


class DeltaOnceWriter(DataSourceStreamArrowWriter):
    """Writes one batch. Travels to the tasks after `begin`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._plan: Plan | None = None
        self._settings: FileSettings | None = None

    def begin(self) -> None:
        """Decide about the batch that Spark has just logged."""
        checkpoint = Checkpoint.open(self._options.checkpoint)
        batch = self._read_batch(checkpoint, checkpoint.latest_batch_id(), str(uuid.uuid4()))
        table, delivery = self._delivery()
        self._plan = delivery.begin(batch)
        self._settings = FileSettings(
            table.table_id,
            table.write_schema,
            self._options.compression,
            self._options.target_file_bytes,
            table.indexed_columns,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task."""
        plan, settings = self._plan, self._settings
        assert plan is not None, "begin was called before the writer was sent to tasks"
        assert settings is not None
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        batch_id = int(context.getLocalProperty(BATCH_ID_PROPERTY) or plan.batch_id)
        if batch_id != plan.batch_id:
            raise TableError(
                f"Spark runs batch {batch_id}, and {plan.batch_id} is the newest in checkpointLocation="
                f"{self._options.checkpoint}: set that option to the directory that the query really uses"
            )
        retried = self._options.guarantee is Guarantee.AT_MOST_ONCE and context.attemptNumber() > 0
        if not plan.writes_rows or retried:
            return FilesWritten(plan, settings, ())
        return FilesWritten(plan, settings, self._write_files(iterator, settings, batch_id))

    def _write_files(
        self, batches: Iterable[pa.RecordBatch], settings: FileSettings, batch_id: int
    ) -> tuple[DataFile, ...]:
        filesystem, root = table_filesystem(self._options.table, self._options.storage_options)
        app_id = self._options.app_id
        writer = TableWriter(
            filesystem, root, settings, before_closing=lambda: reach(CrashPoint.SINK_WRITING, batch_id, app_id)
        )
        try:
            for batch in batches:
                writer.write(batch)
            files = tuple(writer.close())
        except BaseException:
            writer.discard()
            raise
        if files:
            reach(CrashPoint.SINK_FILE_WRITTEN, batch_id, app_id)
        return files

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch visible, unless it is there already.

        Raises:
            DeliveryError, TableError, SchemaError: if it must not be written.
        """
        written = _of_one_attempt(messages)
        if not written:
            # No task ran, so there are no rows, and no range has moved: nothing to write.
            return
        plan, settings = written[0].plan, written[0].settings
        files = [file for message in written for file in message.files]
        batch = self._read_batch(Checkpoint.open(self._options.checkpoint), batchId, plan.attempt_id)
        table, delivery = self._delivery(settings.table_id, settings.schema)
        delivery.finish(batch, plan, [_add_action(file) for file in files])
        copy = store_apart(self._options)
        if delivery.offsets is None and copy is not None:
            copy_offsets(table, copy, batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of a batch that failed, if the log shows that they did not land."""
        if may_land_later(self._options.table, messages):
            _log.warning("delta_once: batch %d: its files stay, since its commit may be on its way still", batchId)
            return
        for message in _of_one_attempt(messages):
            if message.files and not self._may_have_landed(message, batchId):
                self._delete(message.files)

    def _may_have_landed(self, message: FilesWritten, batch_id: int) -> bool:
        plan = message.plan
        try:
            batch = self._read_batch(Checkpoint.open(self._options.checkpoint), batch_id, plan.attempt_id)
            # Whatever has become of the table's schema: that may be why the batch failed.
            _, delivery = self._delivery(message.settings.table_id)
            return delivery.has_landed(batch.record, plan.rows_version)
        except Exception as error:
            # Raised here it would hide why the batch failed: Spark then says "Writing job failed" and nothing else.
            _log.warning("delta_once: batch %d: its files stay, since the log cannot be read: %s", batch_id, error)
            return True

    def _delete(self, files: Sequence[DataFile]) -> None:
        filesystem, root = table_filesystem(self._options.table, self._options.storage_options)
        for file in files:
            delete_quietly(filesystem, join(root, file.path))

    def _read_batch(self, checkpoint: Checkpoint, batch_id: int, attempt_id: str) -> Batch:
        return read_batch(checkpoint, batch_id, self._options.app_id, attempt_id)

    def _delivery(
        self, table_id: str | None = None, written_as: WriteSchema | None = None
    ) -> tuple[ResultTable, Delivery]:
        table = ResultTable(self._options, self._schema, table_id, written_as)
        together = self._options.guarantee is Guarantee.EXACTLY_ONCE
        return table, Delivery(table, ORDERS[self._options.guarantee], None if together else store_apart(self._options))


def may_land_later(table: Location, messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether a commit that has failed by now could be in the log later on.

    On a local disk it is there or not. An object store can do a write whose sender has given up. Spark aborts in
    another process than it committed in, so what is known here is only whether all tasks answered, as they have
    when a commit was tried.
    """
    return not table.is_local and None not in messages


def _of_one_attempt(messages: Iterable[WriterCommitMessage | None]) -> list[FilesWritten]:
    """Give the messages that tasks sent; a task that failed sent none."""
    written = [message for message in messages if isinstance(message, FilesWritten)]
    assert len({message.plan.attempt_id for message in written}) <= 1, "one writer object served all tasks of a batch"
    return written


def _add_action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        modification_time=file.modification_time_ms,
        data_change=True,
        stats=file.statistics,
    )
