"""What a writer does for a table's log after some of its commits: a checkpoint when one is due, then clean-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkonce.offset_store.log.checkpoints import Checkpoint, read_hint, write_checkpoint
from sparkonce.offset_store.log.cleanup import clean_up
from sparkonce.offset_store.log.intervals import DAY_MS, retention_ms
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.state import TableState

INTERVAL = "delta.checkpointInterval"
RETENTION_OF_REMOVED = "delta.deletedFileRetentionDuration"
LEAST_COMMITS, MOST_COMMITS = 100, 1_000
"""Between two checkpoints, where the table does not say how many."""
FILES_PER_COMMIT = 100
"""A checkpoint costs about 5 microseconds a file: half a millisecond for each commit, at this many files."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """What is known of a log's checkpoints; begin with that of the newest checkpoint, and pass it to the next call."""

    checkpoint_version: int | None
    due_at: int = 0
    """No checkpoint is due before this version; 0: not known yet."""
    cleaned_day: int = -1
    """The day, counted from 1970, whose expired files are gone."""
    written: Checkpoint | None = None
    """By this call."""
    deleted: int = 0
    """Files that this call deleted."""
    problem: str | None = None
    """Why this call could not do all of it; the commit is not affected, and a later call tries again."""


def commits_between(properties: Mapping[str, str], files: int) -> int:
    """Return after how many commits a checkpoint is due in a table of so many files."""
    text = properties.get(INTERVAL, "").strip()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    return min(max(LEAST_COMMITS, files // FILES_PER_COMMIT), MOST_COMMITS)


def maintain(log: DeltaLog, state: TableState, *, last: Maintained, now_ms: int) -> Maintained:
    """Write a checkpoint of ``state``, which is of a commit just made, and clean the log up, if they are due.

    Does not raise: `Maintained.problem` says what went wrong. Costs nothing while none is due.
    """
    known = replace(last, written=None, deleted=0, problem=None)
    if (known.checkpoint_version or 0) > state.version:  # of a table that was deleted and made again
        known = Maintained(None)
    properties = state.metadata.configuration
    soonest = (known.checkpoint_version or 0) + commits_between(properties, 0)
    if state.version < max(known.due_at, soonest):
        return known
    try:
        return _maintained(log, state, known, now_ms)
    except Exception as error:  # whatever it is, the commit has landed and must not look as if it had failed
        again = state.version + commits_between(properties, 0)
        return replace(known, due_at=again, problem=f"no checkpoint at version {state.version}: {error}")


def _maintained(log: DeltaLog, state: TableState, known: Maintained, now_ms: int) -> Maintained:
    properties = state.metadata.configuration
    listing = log.listing(known.checkpoint_version or 0)
    newest = listing.newest_checkpoint(state.version)
    newest = known.checkpoint_version if newest is None else newest
    due_at = (newest or 0) + commits_between(properties, _files_at(log, newest))
    known = replace(known, checkpoint_version=newest, due_at=due_at)
    if state.version < due_at:
        return known
    kept_ms = retention_ms(properties, RETENTION_OF_REMOVED, "interval 1 week")
    written = write_checkpoint(log, state, listing, removed_before_ms=None if kept_ms is None else now_ms - kept_ms)
    files = _files_at(log, state.version) if written is None else written.files
    due_at = state.version + commits_between(properties, files)
    known = replace(known, checkpoint_version=state.version, due_at=due_at, written=written)
    if written is None or known.cleaned_day == now_ms // DAY_MS:
        return known
    try:
        cleaned = clean_up(log, state, now_ms=now_ms)
    except Exception as error:  # as above
        return replace(known, problem=f"expired files of the log were not deleted: {error}")
    return replace(known, deleted=cleaned.deleted, cleaned_day=now_ms // DAY_MS if cleaned.all else known.cleaned_day)


def _files_at(log: DeltaLog, version: int | None) -> int:
    """Return how many files the table has by ``_last_checkpoint``; 0 if that is not of this version."""
    hint = read_hint(log)
    files = hint.get("numOfAddFiles") if hint.get("version") == version else None
    return files if isinstance(files, int) else 0
