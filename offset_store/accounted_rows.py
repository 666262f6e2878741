"""Rows that we wrote, whose offsets are stored elsewhere: no query may start from such a table as if it were new.

A query without a checkpoint begins at the offsets in a table. If there are none it begins at ``startingOffsets``,
and writes every existing row again. So before "none" is accepted, the table's log is searched for the origin of its
rows. They are ours, with their offsets elsewhere, if

1. the table is a clone (`offset_store.clones`) of one that had offsets, or that cannot be read;
2. a kept commit has rows of a batch of the application after the first, which is only written once the offsets of the
   first are stored: they are in a separate store, unless the commit says that they were to follow in the same table;
3. its history does not show it (the commits were cleaned up, or files were converted to a table), and a file has a name
   as our sink writes it, or lies in another table's folder.

Rows whose offsets moved elsewhere are the fourth case: once delta-spark writes an application's rows
(`connectors.delta_spark`), its offsets are in a separate table, and those in the result are outdated.

Not detected: rows that a query copied (``CREATE TABLE … AS SELECT``), and those of a clone whose log was cleaned
up after its files were rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.offset_store.administration import CommitEntry, OffsetsTable, Stored, read_entry
from sparkonce.offset_store.clones import CloneSource, is_outside_table
from sparkonce.offset_store.errors import OffsetStoreError, RowsWithoutOffsetsError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.files import active_paths
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.txn_ids import intent_txn_id, merge_txn_id, parse_txn_id

_OWN_FILE = re.compile(r"part-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\w+\.parquet")
"""As `connectors.delta_sink.parquet` names files. Those of delta-spark and delta-rs have a number after ``part-``."""
_KINDS = ("commitInfo",)
_CONVERTED = "CONVERT"
_BY_HAND = (
    "To write other records beside these rows on purpose, first set where they begin: sparkonce offsets set {} "
    "--app-id A --topic T --partition P --offset N --apply"
)


def check_rows_have_offsets(state: TableState, log: DeltaLog, location: Location, app_id: str) -> None:
    """Reject a table with our rows but without our offsets. Raises RowsWithoutOffsetsError or OffsetStoreError."""
    found = _look(state, log)
    if found is None:
        return
    reason = _foreign_offsets(found, location, app_id, log.storage_options) or _unaccounted(found, state, log, location)
    if reason is not None:
        raise RowsWithoutOffsetsError(
            f"the table {location} holds rows that sparkonce wrote, and no offsets: {reason}. "
            + _BY_HAND.format(location)
        )


def check_no_numbered_writes(state: TableState, location: Location, app_id: str) -> None:
    """Reject outdated offsets: delta-spark writes the application's rows by now. Raises RowsWithoutOffsetsError."""
    sequence = state.transactions.get(merge_txn_id(app_id))
    if sequence is not None and state.transactions.get(intent_txn_id(app_id)) is None:
        raise RowsWithoutOffsetsError(
            f"AppendWriter or MergeWriter writes to the table {location} with the appId {app_id} (write {sequence}), "
            "so offsets in the table itself are old. Continue with that writer, and on the source set offsetStore to "
            "its offset_store. Another pipeline needs another appId"
        )


def stored_in(source: CloneSource, storage_options: Mapping[str, str]) -> Stored | None:
    """Return what a clone's (first) source had stored at the cloned version; None if it cannot be read."""
    if source.location is None or source.version is None:
        return None
    try:
        opened = OffsetsTable.open(source.location, storage_options)
        stored = opened.stored(source.version)
        if stored.app_ids:
            return stored
        before = (entry.clone for entry in opened.entries() if entry.version <= source.version and entry.clone)
        earlier = next(before, None)
        return stored if earlier is None else stored_in(earlier, storage_options)
    except OffsetStoreError:
        return None


def is_own_or_elsewhere(path: str) -> bool:
    """Whether, by its path, a data file was written by our sink or lies in another table's folder."""
    return is_outside_table(path) or _OWN_FILE.fullmatch(path.rpartition("/")[2]) is not None


@dataclass(slots=True)
class _Found:
    """The findings in the log of a table without offsets."""

    oldest_version: int
    clones: list[CommitEntry] = field(default_factory=list)
    rows_only: list[CommitEntry] = field(default_factory=list)
    converted: bool = False


def _look(state: TableState, log: DeltaLog) -> _Found | None:
    """Read the log, newest first; return None if offsets of ours are stored."""
    if any(parse_txn_id(txn_id) is not None for txn_id in state.transactions):
        return None
    kept = set(log.listing().commits)
    oldest = state.version
    while oldest - 1 in kept:
        oldest -= 1
    found = _Found(oldest)
    versions = range(state.version, oldest - 1, -1)
    for version, actions in zip(versions, log.actions_of(versions, _KINDS), strict=True):
        info = actions["commitInfo"][0] if actions["commitInfo"] else {}
        entry = read_entry(version, info)
        if entry.clone is not None:
            found.clones.append(entry)
        elif entry.batch is not None and entry.batch.writes == Writes.ROWS:
            found.rows_only.append(entry)
        found.converted = found.converted or entry.operation == _CONVERTED
    return found


def _foreign_offsets(found: _Found, location: Location, app_id: str, storage_options: Mapping[str, str]) -> str | None:
    for entry in found.clones:
        assert entry.clone is not None
        stored = stored_in(entry.clone, storage_options)
        if stored is not None and not stored.app_ids:
            continue
        unknown = "" if stored is not None else ", which cannot be read here"
        return (
            f"version {entry.version} is a CLONE of {entry.clone}{unknown}, which copies rows without their "
            f"offsets. A query that started here would write every row again. Copy the offsets first: sparkonce "
            f"offsets copy {location}{' --from <its path>' if unknown else ''}"
        )
    for entry in found.rows_only:
        batch = entry.batch
        if batch is None or batch.follows:
            continue  # with at-least-once, a crash in between: the rows are written again
        if batch.record.app_id == app_id and batch.record.batch_id > 0:
            return (
                f"version {entry.version} holds rows of batch {batch.record.batch_id} of query "
                f"{batch.record.query_id} (appId {batch.record.app_id}), whose offsets are stored elsewhere: set on "
                "source and sink the offsetStore (AppendWriter, MergeWriter: offsets) that it was written with"
            )
    return None


def _unaccounted(found: _Found, state: TableState, log: DeltaLog, location: Location) -> str | None:
    if found.oldest_version == 0 and not found.converted:
        return None
    adds = log.actions_of((entry.version for entry in found.rows_only), ("add",))
    known = {add["path"] for actions in adds for add in actions["add"]}
    paths = active_paths(log, state.version)
    first = next((path for path in paths if is_own_or_elsewhere(path) and path not in known), None)
    if first is None:
        return None
    return (
        f"the file {first} was written by another table's query, or its commit is no longer kept. Its offsets are "
        f"elsewhere: if this is a clone, copy them: sparkonce offsets copy {location} --from <the table "
        "that it was cloned from> --from-version <the version>"
    )
