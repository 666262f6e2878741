"""Whether a RESTORE took rows out of the table that the query goes by.

Delta's own RESTORE puts the files of an older version back and leaves all transaction ids as they are. So a batch can
count as written whose rows are gone. A running query never looks back at those, but one whose checkpoint was restored
together with the table plans them again, and passing over them would lose them.

``sparkonce offsets rewind --restore`` takes the offsets back with the rows. A checkpoint that stays ahead of it is then
seen by the gap in the offsets; but a query that reads no offsets of ours, or writes rows of its state without moving
any, goes on behind batches that are gone.

The log is read from its newest commit back, along the line of versions that made the table what it is, as far as to the
batch: for a batch that a crash made Spark run again, and for a new one, that is one commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offset_store.administration import ChangeKind, CommitEntry
from offset_store.record import BatchRecord, CommittedBatch, Writes

RESTORE = "RESTORE"


def restore_that_took_out(record: BatchRecord, entries: Iterable[CommitEntry]) -> CommitEntry | None:
    """Return the RESTORE after which the rows of a batch are not in the table; None if they are, or never were.

    ``entries`` are the kept commits of the table that holds the rows, newest first.
    """
    for batch, restore in _batches_of(record, entries):
        if Writes.ROWS not in batch.writes:
            continue
        if batch.record.batch_id == record.batch_id:
            return restore
        if batch.record.batch_id < record.batch_id and restore is None:
            return None
    return None


def restore_before(record: BatchRecord, entries: Iterable[CommitEntry]) -> CommitEntry | None:
    """Return the RESTORE of ours that took out the last batch of this query before this one; None if it is there."""
    for batch, restore in _batches_of(record, entries):
        if batch.record.batch_id < record.batch_id:
            return restore if restore is not None and restore.change is not None else None
    return None


def _batches_of(
    record: BatchRecord, entries: Iterable[CommitEntry]
) -> Iterator[tuple[CommittedBatch, CommitEntry | None]]:
    """Return the batches of the query of ``record``, newest first, each with the RESTORE that took it out."""
    kept_to: int | None = None
    restore: CommitEntry | None = None
    for entry in entries:
        if kept_to is None or entry.version <= kept_to:
            by_us = entry.change is not None and entry.change.kind is ChangeKind.RESTORE
            if by_us or (entry.operation == RESTORE and entry.change is None):
                target = entry.change.to_version if entry.change is not None else entry.restored_to
                kept_to, restore = -1 if target is None else target, entry
        batch = entry.batch
        if batch is not None and (batch.record.app_id, batch.record.query_id) == (record.app_id, record.query_id):
            yield batch, restore if kept_to is not None and entry.version > kept_to else None
