"""Whether written rows are still in the table: a RESTORE may have removed them.

Delta's own RESTORE restores the files of an older version and leaves all transaction ids unchanged. So a batch can
count as written although its rows are gone. A running query never replays such batches, but one whose checkpoint was
restored together with the table plans them again, and skipping them would lose data.

The log is read backward from its newest commit, along the versions that are in force, to the commit of the batch: for
a batch that Spark replays after a crash that is one commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparkonce.offset_store.administration import ChangeKind, CommitEntry
from sparkonce.offset_store.log.state import RESTORE
from sparkonce.offset_store.record import BatchRecord, Writes


def restore_that_took_out(record: BatchRecord, entries: Iterable[CommitEntry], *, stateful: bool) -> CommitEntry | None:
    """Return the RESTORE after which the rows of a batch are not in the table; None if they are, or never were.

    ``entries`` are the kept commits of the table with the rows, newest first. If the commit of the batch is no longer
    kept, and the table was restored to an older version than all kept ones, this is unknown: then that
    RESTORE is returned.
    """
    removed_by: CommitEntry | None = None
    taken_out_by: CommitEntry | None = None
    for entry, removed_by in with_restores(entries):
        batch = entry.batch
        if batch is None or batch.record.query_id != record.query_id or Writes.ROWS not in batch.writes:
            continue
        if _is_same(batch.record, record, stateful):
            if removed_by is None:
                return None
            taken_out_by = taken_out_by or removed_by
        elif batch.record.batch_id < record.batch_id and removed_by is None:
            return taken_out_by
    return taken_out_by or removed_by


def restore_since(app_id: str, entries: Iterable[CommitEntry]) -> tuple[CommitEntry, int] | None:
    """Return Delta's own RESTORE that removed an application's last batch, and that batch's version; None if none did.

    ``entries`` are the newest commits of the table with the rows, newest first; they are read up to that batch.
    """
    for entry, removed_by in with_restores(entries):
        if entry.change is not None and app_id in entry.change.app_ids:
            return None  # a manual change has followed it since
        if entry.batch is not None and entry.batch.record.app_id == app_id:
            return None if removed_by is None else (removed_by, entry.version)
    return None


def with_restores(entries: Iterable[CommitEntry]) -> Iterator[tuple[CommitEntry, CommitEntry | None]]:
    """Yield commits, newest first, each with the RESTORE after which its rows are not in the table, if there is one.

    A RESTORE to a version before itself counts as removed too: the RESTORE of the last kept commit shows whether
    earlier commits count.
    """
    kept_to: int | None = None
    restore: CommitEntry | None = None
    for entry in entries:
        if kept_to is None or entry.version <= kept_to:
            by_us = entry.change is not None and entry.change.kind is ChangeKind.RESTORE
            if by_us or (entry.operation == RESTORE and entry.change is None):
                target = entry.change.to_version if entry.change is not None else entry.restored_to
                kept_to, restore = -1 if target is None else target, entry
        yield entry, restore if kept_to is not None and entry.version > kept_to else None


def _is_same(written: BatchRecord, record: BatchRecord, stateful: bool) -> bool:
    """Whether a written batch is the replayed one, and not only one of the same number."""
    if written.batch_id != record.batch_id:
        return False
    if written.fingerprint is None or record.fingerprint is None:
        return True
    return written.fingerprint.matches(record.fingerprint, stateful=stateful)
