"""The result table: created if missing, rejected if rows in it could go wrong, and loaded again for each batch.

What a table requires of its writers is in `connectors.delta_sink.features`, how its columns and the query's fit in
`connectors.delta_sink.schema`. With ``mergeSchema`` the table gets what it lacks in a commit of its own, before the
rows: between the two, or after a crash there, the new columns are null everywhere. The next writer compares again, and
finds nothing to add.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.data_files import check_files_are_there
from sparkonce.connectors.delta_sink.features import TableFacts, are_for_spark, growth_refusals, refusals
from sparkonce.connectors.delta_sink.growth import added_columns
from sparkonce.connectors.delta_sink.options import TableOptions
from sparkonce.connectors.delta_sink.schema import (
    Fit,
    SchemaError,
    WriteSchema,
    check_partition_columns,
    fit,
    table_schema,
)
from sparkonce.connectors.runtime.cache import MAX_TABLES, LruCache
from sparkonce.exactly_once.restored import with_restores
from sparkonce.offset_store.accounted_rows import check_no_numbered_writes
from sparkonce.offset_store.administration import CommitEntry, read_entry
from sparkonce.offset_store.delta import DeltaOffsetStore, DeltaSnapshot
from sparkonce.offset_store.errors import (
    CatalogManagedError,
    CommitConflictError,
    LogFileMissingError,
    OffsetStoreError,
    StoreMissingError,
    plain,
)
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.creation import NewTable
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.stores import check_commits
from sparkonce.offset_store.other_apps import OtherApps, other_apps
from sparkonce.offset_store.record import BatchRecord, Commit, FileT, PartitionKey, Writes
from sparkonce.offset_store.store import SnapshotSource
from sparkonce.offset_store.store_hints import store_hint
from sparkonce.offset_store.tables import check_keeps_transaction_ids
from sparkonce.offset_store.txn_ids import BEGINS_LATE, COVERED_TWICE, meant_txn_id

BY_WRITE_STREAM = (
    "have Spark check and compute that: sparkonce.write_stream, with handOver=rows on the source (a query of "
    "write_stream that has run: start it again)"
)
_INSTEAD = (
    "let delta-spark write to it, with the same guarantee: sparkonce.AppendWriter, for foreachBatch "
    "(docs/upserts.md); or write to another table"
)
_INSTEAD_OF_A_CATALOG = "write to it with delta-spark and its catalog, or to another table"
_MERGE_ATTEMPTS = 10
"""How often comparing and adding columns is retried when other writers change the table at the same time."""

_LOST = "Nothing names them; its offsets are stored already, so these rows are lost, as at-most-once allows"


class TableError(ValueError):
    """A table that this sink must not write to; the message names the reason and what to do."""


@dataclass(slots=True)
class Followed:
    """How far this process has read a table's log for an application."""

    version: int | None = None
    """Of the last snapshot."""
    may_be_restored: bool = True
    """Whether there may be an unchecked RESTORE."""


MAX_FOLLOWED = 10_000
"""Of how many applications and tables a process knows this; of any other, it reads more of the log."""
_followed: LruCache[tuple[Location, str, str], Followed] = LruCache(MAX_FOLLOWED)
"""For tables, by location and id, and applications."""

_kept_stores: LruCache[tuple[str, str, tuple[tuple[str, str], ...]], DeltaOffsetStore] = LruCache(MAX_TABLES)


def cached_store(options: TableOptions) -> DeltaOffsetStore:
    """Return this process's store for a table: its handle is brought up to date rather than loaded each batch."""
    key = (options.table.text, options.app_id, tuple(sorted(options.storage_options.items())))
    return _kept_stores.get(key, lambda: DeltaOffsetStore(options.table, options.app_id, options.storage_options))


@dataclass(frozen=True, slots=True)
class ResultSnapshot(DeltaSnapshot):
    """A snapshot of the table that only accepts files written for its schema.

    The comparison uses the snapshot of the commit, so a schema change between the two makes the commit conflict, and is
    found by the retry. Reading, and commits without files, need no schema: so a change never hides whether a commit
    has landed.
    """

    location: Location
    fit: Fit
    """How rows go into the table at this version."""
    written_as: WriteSchema | None = field(repr=False)
    """How the files that are to be committed were written."""
    replace: bool
    """Whether the rows of a commit replace all existing rows."""
    meant: frozenset[str] | None = None
    """Which of `COVERED_TWICE` and `BEGINS_LATE` are intended; None if other applications do not matter."""
    not_beside: re.Pattern[str] | None = None
    """The ids of applications beside which this one must not begin."""

    def others(self, batch: BatchRecord, new: Collection[PartitionKey], *, keeps_offsets: bool) -> OtherApps | None:
        """See `Snapshot.others`.

        Raises:
            OffsetStoreError: if the log cannot be read.
        """
        if self.meant is None:
            return None
        txns, apart = self.state.transactions, self.not_beside
        found = other_apps(txns, batch, new, keeps_offsets=keeps_offsets, not_beside=apart)
        return replace(found, may_cover_twice=COVERED_TWICE in self.meant, may_begin_late=BEGINS_LATE in self.meant)

    def written_by_delta(self, record: BatchRecord) -> int | None:
        """See `Snapshot.written_by_delta`. Rows that a batch replaces are not there twice, nor those taken out."""
        at = self.look_up(record.query_id)  # as Delta's own sink names what it writes
        if self.replace or at is None or at < record.batch_id or self._was_taken_out(record.query_id):
            return None
        return at

    def _was_taken_out(self, query_id: str) -> bool:
        """Whether a RESTORE has taken out the last commit with this transaction identifier; False if it is unknown."""
        kept = [each for each in self.log.reader.listing().commits if each <= self.version][::-1]
        found = zip(kept, self.log.reader.actions_of(kept, ("commitInfo", "txn")), strict=True)
        entries = (
            read_entry(version, (each["commitInfo"] or [{}])[0], (str(txn["appId"]) for txn in each["txn"]))
            for version, each in found
        )
        with suppress(LogFileMissingError):  # cleaned up meanwhile
            its = (gone is not None for entry, gone in with_restores(entries) if query_id in entry.txn_ids)
            return next(its, False)
        return False

    def transactions(self, commit: Commit[FileT]) -> dict[str, int]:
        """See `DeltaSnapshot.transactions`; also what is intended, once, for audits."""
        ids = (meant_txn_id(commit.record.app_id, what) for what in self.meant or ())
        return DeltaSnapshot.transactions(self, commit) | {each: 1 for each in ids if self.look_up(each) is None}

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`. Raises TableError if files are for another schema, FilesGoneError if one is gone."""
        record = commit.record
        what = f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id})"
        lost = commit.is_second and Writes.OFFSETS not in commit.writes
        self.check_files(commit.files, what, _LOST if lost else "Nothing was committed")
        DeltaSnapshot.commit(self, commit)

    def check_files(self, files: Sequence[Any], what: str, ending: str = "Nothing was committed") -> None:
        """Check that files may be committed: written for this schema, and still there.

        ``what`` they are of, and the ``ending``, are for messages.

        Raises:
            TableError: if there are files, and they were written for another schema.
            FilesGoneError: if one of them is gone.
        """
        if not files:
            return
        if self.written_as is not None and (self.fit.grown or not self.written_as.fits(self.fit.write_schema)):
            raise TableError(
                f"the schema of the table {self.location} changed while {what} was written; start the query again"
            )
        check_files_are_there(files, self.location, self.log.storage_options, what, ending)

    def write(self, proposal: Proposal) -> None:
        """See `DeltaSnapshot.write`."""
        removed = list(active_files(self.log.reader, self.version).values()) if self.replace else None
        DeltaSnapshot.write(self, replace(proposal, removed=removed))


class ResultTable(SnapshotSource):
    """The table of one query: every snapshot that it returns has been checked against the query's rows.

    With ``table_id`` only that table is accepted: files written for it are nowhere else. With ``written_as`` only
    files of that schema are committed.
    """

    def __init__(
        self,
        options: TableOptions,
        query: t.StructType,
        table_id: str | None = None,
        written_as: WriteSchema | None = None,
        *,
        replace: bool = False,
        meant: frozenset[str] | None = None,
    ) -> None:
        """Use the table of ``options`` for rows of ``query``, which ``replace`` the existing rows or are appended.

        ``meant``: see `ResultSnapshot`.
        """
        self._options = options
        self._query = query
        self._wanted_id = table_id
        self._written_as = written_as
        self.replaces = replace
        """See `SnapshotSource.replaces`."""
        self._meant = meant
        self._store = cached_store(options)
        self._facts: TableFacts | None = None
        self._fit: Fit | None = None
        self.followed = Followed()
        """How far its log has been read, as of the last snapshot."""

    def snapshot(self) -> ResultSnapshot:
        """Return a snapshot of the table, which is created first if it is missing.

        Raises:
            TableError, SchemaError: if the query's rows must not go into it.
            OffsetStoreError: if it cannot be read, or drops offsets after a while.
        """
        try:
            snapshot = self.snapshot_unchecked()
        except StoreMissingError as error:
            if not self._options.create_table:
                raise TableError(
                    f"the table {self._options.table} is not there, and createTable=false: it was dropped, or never "
                    "created. Create it (with a name: start the query again, which creates it in the catalog)"
                ) from error
            self._create()
            snapshot = self.snapshot_unchecked()
        self._check_offsets_are_here(snapshot.state)
        facts = TableFacts.of(snapshot.state)
        if facts != self._facts:
            self._fit = self._check(facts)
            self._facts = facts
        return ResultSnapshot(
            snapshot.state,
            snapshot.app_id,
            snapshot.log,
            self._options.table,
            self.fit,
            self._written_as,
            self.replaces,
            self._meant,
            self._options.not_beside,
        )

    def snapshot_unchecked(self) -> DeltaSnapshot:
        """Return a snapshot, unchecked, only to read it. Raises TableError for another table, or OffsetStoreError."""
        try:
            snapshot = self._store.snapshot_unchecked()
        except StoreMissingError as error:
            if self._wanted_id is not None:
                raise self._replaced() from error
            raise
        except CatalogManagedError as error:
            raise TableError(f"delta_once cannot write to {error}. Instead, {_INSTEAD_OF_A_CATALOG}") from error
        if self._wanted_id not in (None, snapshot.state.metadata.id):
            raise self._replaced()
        return snapshot

    def entries(self, version: int) -> Iterator[CommitEntry]:
        """Return the commits up to a version, newest first."""
        infos = self._store.log().reader.commit_infos(version)
        return (read_entry(int(info["version"]), info) for info in infos)

    def __str__(self) -> str:
        return f"delta:{self._options.table}"

    @property
    def facts(self) -> TableFacts:
        """The properties of the table, as of the last snapshot."""
        assert self._facts is not None, "known after the first snapshot"
        return self._facts

    @property
    def fit(self) -> Fit:
        """How rows go into the table, as of the last snapshot."""
        assert self._fit is not None, "known after the first snapshot"
        return self._fit

    @property
    def write_schema(self) -> WriteSchema:
        """The shape of the rows in the table, as of the last snapshot."""
        return self.fit.write_schema

    def grow(self) -> None:
        """Add the columns that the query has and the table lacks, if there are any, in a commit of their own.

        Another driver may add the same ones, or others, at the same moment: then both look again, and add the rest.

        Raises:
            TableError, SchemaError: if that is impossible.
            OffsetStoreError: if the table cannot be read.
        """
        last: OffsetStoreError | None = None
        for _ in range(_MERGE_ATTEMPTS):
            snapshot = self.snapshot()
            if not self.fit.grown:
                return
            try:
                snapshot.log.commit(added_columns(snapshot.state, self.fit.grown), snapshot.state)
            except OffsetStoreError as error:  # this commit, or another one, may have landed: read again
                last = error
                if not isinstance(error, CommitConflictError):
                    break
        self.snapshot()
        if self.fit.grown:
            names = ", ".join(column.name for column in self.fit.grown)
            where, why = self._options.table, plain(last) if last else ""
            raise TableError(f"mergeSchema: cannot add {names} to the table {where}: {why}") from last

    def _replaced(self) -> TableError:
        return TableError(
            f"the table {self._options.table} was deleted, or replaced by another, while a batch was written to it. "
            "Start the query again: the batch is then written again, into the current table"
        )

    def _create(self) -> None:
        """Create an empty table, unless another driver creates it at the same moment."""
        schema = table_schema(self._query)
        columns = check_partition_columns(self._options.partition_by, schema)
        try:
            self._store.log().create(NewTable(schema.json(), columns))
        except OSError as error:
            try:
                self._store.snapshot_unchecked()
            except OffsetStoreError:
                why, where = plain(error), self._options.table
                raise TableError(f"cannot create the table {where}: {why}{store_hint(where, why)}") from error

    def _check_offsets_are_here(self, state: TableState) -> None:
        """Check that delta-spark does not write the rows by now; note RESTOREs since the last snapshot."""
        app_id = self._options.app_id
        check_no_numbered_writes(state, self._options.table, app_id)
        followed = _followed.get((self._options.table, state.metadata.id, app_id), Followed)
        if followed.version is None or state.begun_at > followed.version:
            followed.may_be_restored = True
        elif state.restored_at is not None:
            followed.may_be_restored |= state.restored_at > followed.version
        followed.version, self.followed = state.version, followed

    def _check(self, facts: TableFacts) -> Fit:
        where = self._options.table
        check_keeps_transaction_ids(where, dict(facts.configuration))
        check_commits(where, self._options.storage_options)
        problems = refusals(facts, replace=self.replaces, checked=self._options.checked_rules)
        if problems:
            keeps_rows = self.replaces and facts.is_append_only
            instead = "append to it, or write to another table" if keeps_rows else _INSTEAD
            if are_for_spark(facts, problems):
                instead = f"{BY_WRITE_STREAM}; or {instead}"
            raise TableError(f"delta_once cannot write to the table {where}: {'; '.join(problems)}. Instead, {instead}")
        wanted = self._options.partition_by
        if wanted and _lower(wanted) != _lower(facts.partition_columns):
            has = ", ".join(facts.partition_columns) or "no column"
            raise TableError(
                f"partitionBy={','.join(wanted)}, but the table {where} is partitioned by {has}. Leave partitionBy out "
                "to follow the table, or write to another path"
            )
        try:
            found = fit(
                self._query,
                facts.schema,
                facts.partition_columns,
                merge=self._options.merge_schema,
                mapped=facts.is_mapped,
                rules=facts.rules,
            )
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error
        problems = growth_refusals(facts, found.grown)
        if problems:
            raise TableError(f"mergeSchema: {where}: {'; '.join(problems)}")
        if where.is_local and not os.access(where.text, os.W_OK):
            raise TableError(
                f"the folder of the table {where} cannot be written to by this user: change its permissions"
            )
        return replace(found, write_schema=replace(found.write_schema, clustering=facts.clustering_columns))


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]
