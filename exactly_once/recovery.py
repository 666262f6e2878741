"""Plans a manual change of stored offsets: pure functions of the stored offsets and the kept log.

Moving offsets back reads their records again; moving them forward skips records for good. The version that a rewind
goes to is found by walking the log backward, along the commits that are in force: an earlier manual rewind or restore
leads directly to the version that it went back to, since the commits in between are already undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sparkonce.offset_store.administration import (
    NOTHING_KEPT,
    BatchMove,
    ChangeKind,
    CommitEntry,
    ManualChange,
    Move,
    Stored,
)
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.txn_ids import PREFIX, OffsetTxn, offset_txn_id
from sparkonce.words import counted


class RecoveryError(ValueError):
    """A change cannot be made as requested; the message says why, and what can be done."""


def plan_set(stored: Stored, wanted: Mapping[OffsetTxn, int]) -> ManualChange:
    """Plan to set offsets to given values; those that already have them are omitted.

    Compared by transaction id: the table may have forgotten a topic's name that the user knows.
    """
    before = {_txn_id(key): offset for key, offset in stored.offsets.items()}
    moves = (Move(key, before.get(_txn_id(key)), offset) for key, offset in sorted(wanted.items()))
    return ManualChange(ChangeKind.SET, tuple(move for move in moves if move.before != move.after))


def _txn_id(key: OffsetTxn) -> str:
    return offset_txn_id(key.app_id, key.source, key.partition)


def plan_rewind(
    now: Stored, then: Stored, entries: Sequence[CommitEntry], *, app_id: str | None, restore: bool
) -> ManualChange:
    """Plan to revert offsets to those in ``then``; with ``restore``, batch numbers too, of every application.

    Without ``restore`` rows and batch numbers are kept, so that a query which does not know of the rewind does not
    write a batch twice.

    Raises:
        RecoveryError: if a current offset did not exist then and the log no longer has its start, or if rows would be
            taken back whose offsets are kept elsewhere.
    """
    if restore:
        _check_offsets_are_here(entries, then.version, now.app_ids)
    starts = first_starts(entries, then.version)
    moves = []
    for key, offset in sorted(now.offsets.items()):
        if not restore and key.app_id != app_id:
            continue
        by_name = OffsetTxn(key.app_id, key.source, key.partition.by_name)
        target = then.offsets.get(key, then.offsets.get(by_name, starts.get(key)))
        if target is None:
            raise RecoveryError(
                f"{describe(key)} was not stored at version {then.version}, and the log no longer shows where it "
                "began: set it by hand with `sparkonce offsets set`"
            )
        if restore and not {key, by_name} & then.offsets.keys():
            _check_nothing_between(entries, then.version, key)
        if target != offset:
            moves.append(Move(key, offset, target))
    if not restore:
        return ManualChange(ChangeKind.REWIND, tuple(moves), (), then.version)
    batches = (BatchMove(key, at, then.batches.get(key, NOTHING_KEPT)) for key, at in sorted(now.batches.items()))
    moved = tuple(move for move in batches if move.before != move.after)
    return ManualChange(ChangeKind.RESTORE, tuple(moves), moved, then.version)


def _check_offsets_are_here(entries: Sequence[CommitEntry], version: int, app_ids: Collection[str]) -> None:
    """Check that each application that wrote rows after a version has its offsets in this table.

    Raises:
        RecoveryError: if one has not: its rows would leave the table, and it does not read their records again.
    """
    by_version = {each.version: each for each in entries}
    at = max(by_version, default=version)
    while at > version:  # along the commits that are in force
        each = by_version.get(at)
        at -= 1
        if each is None:
            continue
        if (restored := _restored_to(each)) is not None:
            at = min(at, restored)  # a log that lies has no end otherwise
        batch = each.batch
        if batch is not None and Writes.ROWS in batch.writes and batch.record.app_id not in app_ids:
            raise RecoveryError(
                f"version {each.version} has rows of appId {batch.record.app_id}, no offsets of which are in this "
                "table. If they are in another one, the rows would be taken back, and their records not be read again; "
                "if its first batch was not finished, start that query once before. Otherwise restore version "
                f"{each.version} or a later one; or stop all queries, use Delta's RESTORE, and set the offsets of "
                "every application by hand with `sparkonce offsets set`"
            )


def _restored_to(entry: CommitEntry) -> int | None:
    """Return the version that a commit restored, or -1 for an empty table; None for any other commit."""
    change = entry.change
    if change is not None and change.kind is ChangeKind.RESTORE:
        return -1 if change.to_version is None else change.to_version
    return entry.restored_to


def _check_nothing_between(entries: Sequence[CommitEntry], version: int, key: OffsetTxn) -> None:
    """Check that no other sink, from which the query came, wrote between a version and an application's first batch.

    Raises:
        RecoveryError: if one did: its rows would leave the table, and the application does not read them again.
    """
    first = min((each.version for each in entries if _is_of(each, key.app_id)), default=0)
    for each in entries:
        others = [txn_id for txn_id in each.txn_ids if not txn_id.startswith(f"{PREFIX}/")]
        if others and version < each.version < first:
            raise RecoveryError(
                f"version {each.version} has rows of another sink, such as Delta's own (transaction identifier "
                f"{others[0]}). Before it nothing of {describe(key)} is stored, so the records of these rows would not "
                f"be read again. Restore version {first - 1} or a later one; or use Delta's RESTORE, and set the "
                "offsets at which the rows end with `sparkonce offsets set`"
            )


def _is_of(entry: CommitEntry, app_id: str) -> bool:
    if entry.batch is not None:
        return entry.batch.record.app_id == app_id
    return entry.change is not None and app_id in entry.change.app_ids


def plan_copy(now: Stored, then: Stored, copied_from: str) -> ManualChange:
    """Plan to copy offsets and batch numbers from the table that this one is a clone of: ``then``, as it was cloned.

    Raises:
        RecoveryError: if there are none, if this table has some of the same applications already, or if delta-spark
            writes the rows.
    """
    apps = then.app_ids
    if not apps:
        raise RecoveryError(f"{copied_from} holds no offsets of sparkonce: there is nothing to copy")
    numbered = sorted(apps & then.recorded.keys())
    if numbered:
        raise RecoveryError(
            f"{copied_from} is the table of offsets of writes by delta-spark (appId {numbered[0]}), whose numbers are "
            "in their result too. Start from scratch, with a new result and a new table of offsets"
        )
    there = sorted(apps & now.app_ids)
    if there:
        raise RecoveryError(
            f"the table holds offsets of appId {there[0]} already. If they were stored by a query that started from "
            "scratch, its rows are there twice: clone again, and copy the offsets before you start a query. "
            "Otherwise move single offsets with `sparkonce offsets set`"
        )
    moves = tuple(Move(key, None, offset) for key, offset in sorted(then.offsets.items()))
    batches = tuple(BatchMove(key, NOTHING_KEPT, at) for key, at in sorted(then.batches.items()))
    return ManualChange(ChangeKind.COPY, moves, batches, copied_from=copied_from)


def check_not_outdated(stored: Stored, table: str, change: ManualChange | None = None) -> None:
    """Reject outdated offsets: delta-spark writes the application's rows by now; all, or those of a change.

    Raises:
        RecoveryError: if there are any.
    """
    concerned = None if change is None or change.kind is ChangeKind.RESTORE else change.app_ids
    for app_id, sequence in sorted(stored.outdated.items()):
        if concerned is None or app_id in concerned:
            raise RecoveryError(f"{table}: {describe_outdated(app_id, sequence)}")


def describe_outdated(app_id: str, sequence: int) -> str:
    """Return the message that an application's offsets are in another table, and which to use."""
    return (
        f"AppendWriter or MergeWriter writes the rows of appId {app_id} (write {sequence}), so these offsets are old. "
        "Name the writer's table of offsets: its offset_store, by default the folder _sparkonce in the table's"
    )


def check_settled(now: Stored, change: ManualChange) -> None:
    """Reject a change of offsets that a write, begun and not confirmed, is about to move as well.

    Raises:
        RecoveryError: if an application concerned has one.
    """
    for app_id, sequence in sorted(now.unconfirmed.items()):
        if app_id in change.app_ids:
            raise RecoveryError(
                f"{describe_unconfirmed(app_id, sequence)} If that is not possible, because this write fails each "
                "time, repeat with --despite-unconfirmed: if it is in the result anyway, the offsets that you "
                "set stay, and those of its other partitions move to its end"
            )


def describe_unconfirmed(app_id: str, sequence: int) -> str:
    """Describe a write that was recorded and not confirmed, and how to resolve it."""
    return (
        f"appId {app_id}: write {sequence} is recorded and not confirmed: it may be in the result. Stop the driver, "
        "start the pipeline once, which resolves it, then repeat."
    )


def first_starts(entries: Sequence[CommitEntry], after_version: int) -> dict[OffsetTxn, int]:
    """Return where each partition began in its oldest kept batch after a version; ``entries`` come newest first."""
    starts: dict[OffsetTxn, int] = {}
    for entry in entries:
        if entry.version > after_version and entry.batch is not None:
            record = entry.batch.record
            starts |= {OffsetTxn(record.app_id, source, tp): at.start for (source, tp), at in record.stored.items()}
    return starts


def version_at(entries: Sequence[CommitEntry], timestamp_ms: int) -> int:
    """Return the newest version committed at or before a time. Commits without a time are skipped.

    Raises:
        RecoveryError: if all other kept ones are younger.
    """
    found = next((entry.version for entry in entries if 0 < entry.timestamp_ms <= timestamp_ms), None)
    if found is None:
        raise RecoveryError("every commit that the log still keeps is younger than that: specify a version instead")
    return found


def version_before_batches(entries: Sequence[CommitEntry], app_id: str, count: int) -> int:
    """Return the version just before the last ``count`` batches of an application that are in force.

    Raises:
        RecoveryError: if fewer are kept, or offsets were set manually among them.
    """
    by_version = {entry.version: entry for entry in entries}
    undone: list[CommitEntry] = []
    version = max(by_version, default=-1)
    while version in by_version and len(undone) < count:
        entry = by_version[version]
        change = entry.change
        if change is not None and app_id in change.app_ids:
            if change.to_version is None:
                raise RecoveryError(
                    f"offsets of appId {app_id} were set by hand in version {version}, among its last "
                    f"{counted(count, 'batch')}: specify the version with --to-version"
                )
            version = change.to_version
            continue
        batch = entry.batch
        if batch is not None and batch.record.app_id == app_id and Writes.OFFSETS in batch.writes:
            undone.append(entry)
        version -= 1
    if len(undone) < count:
        raise RecoveryError(
            f"the log keeps {counted(len(undone), 'batch')} of appId {app_id} that are in force, not {count}"
        )
    assert undone[-1].batch is not None
    attempt = undone[-1].batch.record.attempt_id
    # Rows first, then offsets: the commit of the rows belongs to the batch too.
    commits = [each.version for each in entries if each.batch and each.batch.record.attempt_id == attempt]
    if min(commits) == 0:
        raise RecoveryError("the oldest of these batches is the first commit of the table: nothing lies before it")
    return min(commits) - 1


@dataclass(frozen=True, slots=True)
class Missed:
    """Records covered by the stored offsets but no longer in the rows, since a RESTORE left the offsets unchanged."""

    restore_version: int
    restored_to: int
    key: OffsetTxn
    start: int
    end: int


def plain_restores(entries: Sequence[CommitEntry], app_id: str) -> list[CommitEntry]:
    """Return foreign RESTORE commits that no manual change of this application's offsets followed, newest first."""
    found = []
    for entry in entries:
        if entry.change is not None and app_id in entry.change.app_ids:
            break
        if entry.restored_to is not None:
            found.append(entry)
    return found


def missed_by_restore(
    restore: CommitEntry, before: Stored, then: Stored, entries: Sequence[CommitEntry]
) -> list[Missed]:
    """Compare the offsets that a RESTORE left with those of the version that the rows went back to."""
    assert restore.restored_to is not None
    starts = first_starts(entries, then.version)
    reached = {key: then.offsets.get(key, starts.get(key, 0)) for key in before.offsets}
    return [
        Missed(restore.version, restore.restored_to, key, reached[key], offset)
        for key, offset in sorted(before.offsets.items())
        if offset > reached[key]
    ]


def describe(key: OffsetTxn) -> str:
    """Return a stored offset's name for messages."""
    tp = key.partition
    name = f"{tp.topic or 'topic id ' + tp.topic_id}-{tp.partition}"
    return f"{name} (appId {key.app_id}, source {key.source}{', topic id ' + tp.topic_id if tp.topic_id else ''})"


def consequence(move: Move, *, restored: bool, written_by_others: bool = False) -> str:
    """Describe the effect of one move.

    ``restored``: whether the rows are restored with it. ``written_by_others``: whether the rows up to there are in the
    table, from another query.
    """
    where = f"{move.key.partition.topic or move.key.partition.topic_id}-{move.key.partition.partition}"
    if move.before is None:
        return f"{where} was not stored; a query without a checkpoint begins at offset {move.after}"
    if move.after > move.before:
        skipped = f"records [{move.before}, {move.after}) of {where} are"
        return f"{skipped} {'in the table already' if written_by_others else 'never read: lost on purpose'}"
    records = f"records [{move.after}, {move.before}) of {where} are read again"
    if restored:
        return f"{records}; their rows leave the table in this very commit"
    return f"{records}: duplicates, unless their rows leave the table (rewind --restore does both in one commit)"


def resolve(
    stored: Stored, app_id: str, source: str | None, topic: str, topic_id: str | None, partition: int
) -> OffsetTxn:
    """Return the offset that a user selects by a topic's name, if the table knows it.

    Raises:
        RecoveryError: if it knows several, or none and no topic id was given.
    """
    known = [key for key in stored.offsets if key.app_id == app_id]
    sources = sorted({key.source for key in known})
    if source is None:
        if len(sources) != 1:
            if sources:
                told = f"has the sources {', '.join(sources)}: name one with --source (the option source of the reader)"
            else:
                apps = ", ".join(sorted({key.app_id for key in stored.offsets})) or "none"
                told = f"has no offsets here (appIds here: {apps}): correct --app-id, or, for a new one, add --source"
            raise RecoveryError(f"appId {app_id} {told}")
        source = sources[0]
    if topic_id is None:
        ids = sorted({key.partition.topic_id for key in known if key.partition.topic == topic})
        if len(ids) != 1:
            found = f"several topics of that name were read: {', '.join(ids)}" if ids else "the table does not know it"
            raise RecoveryError(f"topic {topic}: {found}. Specify --topic-id, or --bootstrap-servers to ask the broker")
        topic_id = ids[0]
    return OffsetTxn(app_id, source, TopicPartition(topic, topic_id, partition))
