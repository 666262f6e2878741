"""The result table: made when it is missing, refused when rows in it could go wrong, and looked at afresh each batch.

Tables come with features that a writer must know. delta-rs does part of the work; what neither it nor this sink does
for files that a task wrote is refused by name, and the way out is always the same: delta-spark knows them all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyspark.sql import types as t

from connectors.delta_once.kept import Kept
from connectors.delta_once.options import SinkOptions
from connectors.delta_once.schema import (
    SchemaError,
    WriteSchema,
    check_partition_columns,
    table_schema,
    write_schema,
)
from connectors.delta_once.statistics import DEFAULT_INDEXED_COLUMNS
from offset_store.delta import DeltaOffsetStore, DeltaSnapshot
from offset_store.errors import OffsetStoreError, StoreMissingError
from offset_store.locations import Location
from offset_store.store import Commit, FileT
from offset_store.tables import check_remembers

# Writer features that ask nothing of an append, or only when used: their use is looked at below.
_SAFE_FEATURES = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "columnMapping",
    "identityColumns",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "allowColumnDefaults",
    "deletionVectors",
}
_INSTEAD = "write to it with delta-spark (foreachBatch), or to another table"


class TableError(ValueError):
    """A table that this sink must not write to; the message names the reason and the way out."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table says about itself, as far as a writer must heed it."""

    table_id: str
    """Given to a table when it is made, and kept for its life."""
    schema_json: str
    partition_columns: tuple[str, ...]
    configuration: tuple[tuple[str, str], ...]
    writer_features: tuple[str, ...]

    @classmethod
    def of(cls, table: DeltaTable) -> TableFacts:
        """Read them from a handle."""
        metadata = table.metadata()
        return cls(
            str(metadata.id),
            table.schema().to_json(),
            tuple(metadata.partition_columns),
            tuple(sorted(metadata.configuration.items())),
            tuple(sorted(table.protocol().writer_features or ())),
        )

    @property
    def indexed_columns(self) -> int:
        """How many leading columns get statistics; all if negative."""
        text = dict(self.configuration).get("delta.dataSkippingNumIndexedCols")
        return int(text) if text is not None else DEFAULT_INDEXED_COLUMNS


_kept_stores: Kept[tuple[str, str, tuple[tuple[str, str], ...]], DeltaOffsetStore] = Kept()


def kept_store(options: SinkOptions) -> DeltaOffsetStore:
    """Give this process's store for a table: its handle is brought up to date rather than loaded each batch."""
    key = (options.table.text, options.app_id, tuple(sorted(options.storage_options.items())))
    return _kept_stores.get(key, lambda: DeltaOffsetStore(options.table, options.app_id, options.storage_options))


@dataclass(frozen=True, slots=True)
class ResultSnapshot(DeltaSnapshot):
    """A picture of the table that takes only files written the way it wants rows.

    The comparison is made where the commit is, so a schema that changes between the two makes the commit conflict, and
    is found when it is tried again. Looking, and commits without files, need no schema: so a change never hides
    whether a commit has landed.
    """

    location: Location
    write_schema: WriteSchema
    """How rows go into the table at this version."""
    written_as: WriteSchema | None = field(repr=False)
    """How the files that are to be committed were written."""

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`.

        Raises:
            TableError: if there are files, and they were written for another schema.
        """
        if commit.files and self.written_as not in (None, self.write_schema):
            record = commit.record
            raise TableError(
                f"the schema of the table {self.location} changed while batch {record.batch_id} of query "
                f"{record.query_id} (appId {record.app_id}) was written; start the query again"
            )
        DeltaSnapshot.commit(self, commit)


class ResultTable:
    """The table of one query: every snapshot that it gives has been checked against the query's rows.

    With ``table_id`` only that very table will do: files written for it are nowhere else. With ``written_as`` only
    files of that schema are committed.
    """

    def __init__(
        self,
        options: SinkOptions,
        query: t.StructType,
        table_id: str | None = None,
        written_as: WriteSchema | None = None,
    ) -> None:
        self._options = options
        self._query = query
        self._wanted_id = table_id
        self._written_as = written_as
        self._store = kept_store(options)
        self._facts: TableFacts | None = None
        self._write_schema: WriteSchema | None = None

    def snapshot(self) -> ResultSnapshot:
        """Take a picture of the table, which is made first if it is missing.

        Raises:
            TableError, SchemaError: if the query's rows must not go into it.
            OffsetStoreError: if it cannot be read, or drops offsets after a while.
        """
        try:
            snapshot = self.snapshot_unchecked()
        except StoreMissingError:
            self._create()
            snapshot = self.snapshot_unchecked()
        facts = TableFacts.of(snapshot.table)
        if facts != self._facts:
            self._write_schema = self._check(facts)
            self._facts = facts
        return ResultSnapshot(
            snapshot.table,
            snapshot.app_id,
            snapshot.open_log,
            self._options.table,
            self.write_schema,
            self._written_as,
        )

    def snapshot_unchecked(self) -> DeltaSnapshot:
        """Take a picture of the table, whatever has become of its schema and properties, to see what is in it.

        Raises:
            TableError: if it is not the table that is meant any more.
            OffsetStoreError: if it is missing, or cannot be read.
        """
        try:
            snapshot = self._store.snapshot_unchecked()
        except StoreMissingError as error:
            if self._wanted_id is not None:
                raise self._replaced() from error
            raise
        if self._wanted_id not in (None, str(snapshot.table.metadata().id)):
            raise self._replaced()
        return snapshot

    def __str__(self) -> str:
        return f"delta:{self._options.table}"

    @property
    def table_id(self) -> str:
        """The table's own id, as of the last snapshot."""
        assert self._facts is not None, "known after the first snapshot"
        return self._facts.table_id

    @property
    def write_schema(self) -> WriteSchema:
        """How rows go into the table, as of the last snapshot."""
        assert self._write_schema is not None, "known after the first snapshot"
        return self._write_schema

    @property
    def indexed_columns(self) -> int:
        """How many leading columns get statistics, as of the last snapshot."""
        assert self._facts is not None, "known after the first snapshot"
        return self._facts.indexed_columns

    def _replaced(self) -> TableError:
        return TableError(
            f"the table {self._options.table} was deleted, or replaced by another, while a batch was written to it. "
            "Start the query again: the batch is then written anew, into the table that is there by then"
        )

    def _create(self) -> None:
        """Make an empty table; a driver that makes it at the same moment is welcome to be first."""
        schema = table_schema(self._query)
        columns = list(self._options.partition_by)
        check_partition_columns(columns, schema)
        try:
            DeltaTable.create(
                self._options.table.text,
                Schema.from_json(schema.json()),
                mode="error",
                partition_by=columns,
                storage_options=dict(self._options.storage_options) or None,
            )
        except (DeltaError, OSError) as error:
            try:
                self._store.snapshot_unchecked()
            except OffsetStoreError:
                raise TableError(f"cannot create the table {self._options.table}: {error}") from error

    def _check(self, facts: TableFacts) -> WriteSchema:
        check_remembers(self._options.table, dict(facts.configuration))
        problems = refusals(facts)
        if problems:
            raise TableError(
                f"delta_once cannot write to the table {self._options.table}: "
                + "; ".join(problems)
                + f". Instead, {_INSTEAD}"
            )
        wanted = self._options.partition_by
        if wanted and wanted != facts.partition_columns:
            has = ", ".join(facts.partition_columns) or "no column"
            raise TableError(
                f"partitionBy={','.join(wanted)}, but the table {self._options.table} is partitioned by {has}. Leave "
                "partitionBy out to follow the table, or write to another path"
            )
        try:
            return write_schema(self._query, facts.schema_json, facts.partition_columns)
        except SchemaError as error:
            raise SchemaError(f"{self._options.table}: {error}") from error


def refusals(facts: TableFacts) -> list[str]:
    """Name every feature in use that a plain append with files of our own would not honour."""
    configuration = dict(facts.configuration)
    problems = [f"it has the feature {name}" for name in facts.writer_features if name not in _SAFE_FEATURES]
    mapping = configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        problems.append(f"its columns are mapped (delta.columnMapping.mode={mapping})")
    constraints = [key for key in configuration if key.startswith("delta.constraints.")]
    if constraints:
        problems.append("it has check constraints: " + ", ".join(key.rpartition(".")[2] for key in constraints))
    flags = ("delta.enableRowTracking", "delta.enableInCommitTimestamps")
    problems += [f"it has {flag}=true" for flag in flags if configuration.get(flag, "false").lower() == "true"]
    for column in json.loads(facts.schema_json)["fields"]:
        problems += _column_refusals(column)
    return problems


def _column_refusals(field: Mapping[str, object]) -> list[str]:
    metadata = field.get("metadata") or {}
    assert isinstance(metadata, Mapping)
    reasons = {
        "delta.generationExpression": "is generated",
        "delta.invariants": "has an invariant",
        "delta.identity.start": "is an identity column",
    }
    return [f"column {field['name']} {reason}" for key, reason in reasons.items() if key in metadata]
