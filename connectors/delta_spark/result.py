"""The result: written by delta-spark, its log read by delta-rs, as it reads logs of tables that it cannot write.

The transaction version and the commit info of an append are options of the write. A MERGE takes none, only settings of
the session. In ``foreachBatch`` the batch has a session of its own, a copy that Spark makes for each query, so they are
set there, around the MERGE alone, and reset. A function may write to several tables in threads: of the MERGEs of one
session one runs at a time.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.schema import check_partition_columns, table_schema
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.connectors.delta_spark.intents import intent_from_info, intent_to_info
from sparkonce.connectors.delta_spark.other_rows import OtherRows
from sparkonce.connectors.delta_spark.sequence import Intent, Landed, ResultState
from sparkonce.offset_store.administration import CommitEntry, read_entry
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import CommitConflictError, StoreMissingError
from sparkonce.offset_store.other_apps import OtherApps
from sparkonce.offset_store.record import (
    COMMIT_INFO_KEY,
    BatchRecord,
    Commit,
    CommittedBatch,
    FileT,
    PartitionKey,
    Writes,
    read_history,
)
from sparkonce.offset_store.store import SnapshotSource, SnapshotWithoutOffsets
from sparkonce.offset_store.txn_ids import merge_txn_id

if TYPE_CHECKING:
    from delta.tables import DeltaTable

WriteFunction: TypeAlias = Callable[[str, DataFrame, Mapping[str, str]], object]
"""Writes a batch's rows into the table at a path of Spark's, in one commit, under settings of a session."""

TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
LINKAGE_ERROR = re.compile(
    r"\b(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error\b"
    r"[^\n]*\b(?:org[./]apache[./]spark|io[./]delta)[./][^\n]*"
)
"""The JVM's message for a class of Spark or Delta that was compiled against another version (Java's `LinkageError`)."""
COMPACTION = "OPTIMIZE"
"""Delta's automatic compaction after a write copies its metadata; it is not the write."""


@dataclass(frozen=True, slots=True)
class DeltaResult:
    """A Delta table that one application writes to."""

    store: DeltaOffsetStore
    spark_path: str
    """The same location in Spark's form."""
    function: WriteFunction

    def exists(self) -> bool:
        """Whether there is a Delta table."""
        try:
            self.store.snapshot()
        except StoreMissingError:
            return False
        return True

    def create_missing(self, session: SparkSession, schema: StructType, partition_by: Sequence[str]) -> None:
        """Create an empty table if there is none, unless another driver creates it at the same moment.

        Raises:
            TableError, SchemaError: if it cannot be created.
        """
        if self.exists():
            return
        wanted = table_schema(schema)
        columns = check_partition_columns(partition_by, wanted)
        builder = delta_table().createIfNotExists(session).location(self.spark_path).addColumns(wanted)
        try:
            with _fitting_delta(session):
                builder.partitionedBy(*columns).execute()
        except PySparkException as error:
            if not self.exists():
                raise TableError(f"cannot create the table {self.store.location}: {error}") from error

    def look(self) -> ResultState:
        """See `ResultLog.look`."""
        try:
            snapshot = self.store.snapshot()
        except StoreMissingError:
            return ResultState(-1, 0)
        return ResultState(snapshot.version, snapshot.look_up(merge_txn_id(self.store.app_id)) or 0)

    def write(self, rows: DataFrame, intent: Intent) -> None:
        """See `ResultLog.write`."""
        numbered = {TXN_APP_ID: merge_txn_id(self.store.app_id), TXN_VERSION: str(intent.sequence)}
        self.run(rows, {**numbered, USER_METADATA: _to_text(intent_to_info(intent, Writes.ROWS))})

    def run(self, rows: DataFrame, settings: Mapping[str, str]) -> None:
        """Write a batch's rows under settings of a session: the write's own ones, whatever else runs in the session.

        Raises:
            CommitConflictError: if others changed the table meanwhile.
            TableError: if delta-spark was built for another version of Spark, or could skip the rows.
        """
        session = rows.sparkSession
        if TXN_APP_ID not in settings and session.conf.get(TXN_APP_ID, None) is not None:
            raise TableError(
                f"{TXN_APP_ID} is set in the session of the batch: Delta silently skips a write whose "
                f"{TXN_VERSION} it has seen. Unset both (spark.conf.unset)"
            )
        conflicts = _conflicts()
        try:
            with _fitting_delta(session):
                self.function(self.spark_path, rows, settings)
        except conflicts as error:
            raise CommitConflictError(str(error)) from error

    def find(self, sequence: int, since_version: int | None = None) -> Landed | None:
        """See `ResultLog.find`."""
        snapshot = self.store.snapshot()
        newer = None if since_version is None else snapshot.version - since_version
        for entry in snapshot.commit_infos(newer):
            if entry.get("operation") == COMPACTION:
                continue
            intent = intent_from_info(_from_text(entry.get("userMetadata")), self.store.app_id)
            if intent is not None and intent.sequence == sequence:
                return Landed(intent, int(entry["version"]))
        return None

    def entries(self, limit: int | None = None, version: int | None = None) -> Iterator[CommitEntry]:
        """See `ResultLog.entries`; of the newest ``limit`` up to ``version``, if these are given."""
        for info in self.store.snapshot_unchecked().commit_infos(limit, version):
            written = None if info.get("operation") == COMPACTION else _from_text(info.get("userMetadata"))
            yield read_entry(int(info["version"]), info if written is None else {**info, COMMIT_INFO_KEY: written})

    def __str__(self) -> str:
        return str(self.store.location)


@dataclass(frozen=True, slots=True)
class PlainResult(SnapshotSource):
    """The result for the other two guarantees: writes without a number, with their offsets elsewhere."""

    result: DeltaResult
    other_rows: OtherRows | None = None
    """None if what other applications have written there does not matter."""

    def snapshot(self) -> PlainSnapshot:
        """Return a snapshot of the result."""
        return PlainSnapshot(self.result, self.result.look().version, self.other_rows)

    def __str__(self) -> str:
        return str(self.result)


@dataclass(frozen=True, slots=True)
class PlainSnapshot(SnapshotWithoutOffsets):
    """The result at one version; it has rows and their records, but no offsets."""

    result: DeltaResult
    version: int = field()
    other_rows: OtherRows | None = None

    def others(self, batch: BatchRecord, new: Collection[PartitionKey], *, keeps_offsets: bool) -> OtherApps | None:  # noqa: ARG002
        """See `Snapshot.others`."""
        return None if self.other_rows is None else self.other_rows.look(batch, new)

    def written_by_delta(self, record: BatchRecord) -> int | None:
        """See `Snapshot.written_by_delta`."""
        return None if self.other_rows is None else self.other_rows.written_by_delta(record)

    def commit(self, commit: Commit[FileT]) -> None:
        """Write a batch's rows; the one file is the batch's DataFrame."""
        assert commit.writes == Writes.ROWS, "offsets do not go into the result"
        (rows,) = commit.files
        assert isinstance(rows, DataFrame)
        self.result.run(rows, {USER_METADATA: _to_text(commit.record.to_commit_info(Writes.ROWS))})

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`."""
        entries = self.result.store.snapshot().commit_infos(limit, self.version)
        return read_history({**entry, COMMIT_INFO_KEY: _from_text(entry.get("userMetadata"))} for entry in entries)

    def entries_since(self, version: int) -> Iterator[CommitEntry]:
        """As `DeltaSnapshot.entries_since`; a write has its record in the user metadata."""
        return self.result.entries(self.version - version, self.version)


_locks: WeakKeyDictionary[SparkSession, threading.Lock] = WeakKeyDictionary()


@contextmanager
def session_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session, and set them back; of several threads one at a time."""
    with _locks.setdefault(session, threading.Lock()):
        before: dict[str, str | None] = {name: session.conf.get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                session.conf.set(name, value)
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, old)


def _to_text(info: Mapping[str, Any]) -> str:
    return json.dumps({COMMIT_INFO_KEY: info}, separators=(",", ":"))


def _from_text(text: object) -> object:
    if not isinstance(text, str):
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document.get(COMMIT_INFO_KEY) if isinstance(document, dict) else None


def quoted(name: str) -> str:
    """Return a column's name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def delta_table() -> type[DeltaTable]:
    """Return delta-spark's class.

    Raises:
        ModuleNotFoundError: if it is not installed.
    """
    try:
        from delta.tables import DeltaTable as Table
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this needs delta-spark: pip install 'sparkonce[delta-spark]' (with PySpark 4.2), and its jar in the "
            "session (spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0)"
        ) from error
    table: type[DeltaTable] = Table
    return table


@contextmanager
def _fitting_delta(session: SparkSession) -> Iterator[None]:
    """Turn the errors of a delta-spark that was built for another Spark into one sentence."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        missing = LINKAGE_ERROR.search(str(error))
        if missing is None:
            raise
        minor = ".".join(session.version.split(".")[:2])
        raise TableError(
            f"the delta-spark in this session was built for another version of Spark than {session.version} "
            f"({missing[0]}). Use the one for it (io.delta:delta-spark_{minor}_2.13), or a Spark version that has one"
        ) from error


def _conflicts() -> tuple[type[Exception], ...]:
    """Return what delta-spark raises on write conflicts; in Python these exceptions have no base of their own.

    Importing them also makes PySpark turn the JVM's exceptions into them.
    """
    from delta import exceptions

    return (
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentWriteException,
        exceptions.DeltaConcurrentModificationException,
        exceptions.MetadataChangedException,
        exceptions.ProtocolChangedException,
    )
