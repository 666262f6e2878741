"""Expired files of a log are deleted (PROTOCOL.md, "Metadata Cleanup"), as Delta's other writers do.

1. A commit expires after `delta.logRetentionDuration`, 30 days unless the table says otherwise, at midnight UTC.
2. The newest checkpoint at or before the newest expired commit stays, with the commit of its version and all later
   files: what is deleted is older. It is read before, and every commit from it on must be there.
3. In tables with the feature ``checkpointProtection``, nothing is deleted unless all protected versions can be.
4. Sidecars go if no checkpoint names them and they are a day old; so do temporary files of ours.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.checkpoint_files import SIDECARS, StoredCheckpoint
from sparkonce.offset_store.log.intervals import DAY_MS, retention_ms
from sparkonce.offset_store.log.reader import DeltaLog, complete_checkpoints
from sparkonce.offset_store.log.state import IN_COMMIT_TIMESTAMPS, TIMESTAMPS_SINCE, TableState
from sparkonce.offset_store.log.storage import TEMPORARY

ENABLED = "delta.enableExpiredLogCleanup"
RETENTION = "delta.logRetentionDuration"
PROTECTION = "checkpointProtection"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
MOST_DELETED = 2_000
"""Files a call deletes, so that a commit does not wait for a backlog; the next call goes on."""
_VERSIONED = re.compile(
    r"(\d{20})\.(?:json|crc|checkpoint(?:\.[0-9a-fA-F.-]+)?\.(?:parquet|json)|(\d{20})\.compacted\.json)"
)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was deleted."""

    deleted: int = 0
    all: bool = True
    """Whether nothing is left that has expired."""


def clean_up(log: DeltaLog, state: TableState, *, now_ms: int, most: int = MOST_DELETED) -> Cleaned:
    """Delete expired files, after a checkpoint of ``state`` has been written and compared with it.

    Raises:
        OffsetStoreError: if the log cannot be read, or what would stay is damaged; nothing is deleted then.
        OSError: if a file cannot be deleted.
    """
    properties = state.metadata.configuration
    if properties.get(ENABLED, "true").strip().lower() != "true":
        return Cleaned()
    kept_ms = retention_ms(properties, RETENTION, "interval 30 days")
    if kept_ms is None:
        return Cleaned()
    cutoff_ms = (now_ms - kept_ms) // DAY_MS * DAY_MS
    deleted = _delete_temporaries(log, now_ms)
    names = log.names()
    newest_expired = _newest_expired(log, state, names, cutoff_ms)
    base = _base(names, state, newest_expired)
    if base is None:
        return Cleaned(deleted)
    doomed = sorted((name for name in names if _is_before(name, base)), key=_delete_order)
    if doomed and not _is_protected(state, base):
        _check(log, state, names, base)
        if not _limit_applies(state):
            most = len(doomed)
        for name in doomed[:most]:
            _delete(log, name)
        deleted += len(doomed[:most])
    if len(doomed) > most:
        return Cleaned(deleted, all=False)
    return Cleaned(deleted + _delete_sidecars(log, now_ms))


def _newest_expired(log: DeltaLog, state: TableState, names: list[str], cutoff_ms: int) -> int:
    """Return the newest version whose commit is no newer than the cut-off; -1 if there is none.

    Times in commits rise, so a search is enough; times of files may not, so the first that has not expired ends it.
    """
    since = state.version + 1
    if state.metadata.is_on(IN_COMMIT_TIMESTAMPS):
        since = int(state.metadata.configuration.get(TIMESTAMPS_SINCE, 0))
        commits = [version for version in _commits(names) if version >= since]
        expired = bisect.bisect_right(commits, cutoff_ms, key=lambda version: _in_commit_ms(log, version))
        if expired or not since:
            return commits[expired - 1] if expired else -1
    newest = -1
    for name, modified_ms in log.storage.modified():
        version = _commit_version(name)
        if version is None:
            continue
        if modified_ms > cutoff_ms or version >= since:
            break
        newest = version
    return newest


def _in_commit_ms(log: DeltaLog, version: int) -> int:
    infos = log.actions(version, ("commitInfo",))["commitInfo"]
    if not infos or not isinstance(infos[0].get("inCommitTimestamp"), int):
        raise OffsetStoreError(f"{log.folder}: version {version} has no in-commit timestamp, though the table has them")
    return int(infos[0]["inCommitTimestamp"])


def _base(names: list[str], state: TableState, newest_expired: int) -> int | None:
    """Return the version of the checkpoint that stays."""
    limit = min(newest_expired, state.version)
    return max((version for version in complete_checkpoints(names) if version <= limit), default=None)


def _is_before(name: str, base: int) -> bool:
    found = _VERSIONED.fullmatch(name)
    return found is not None and int(found[1]) < base + (found[2] is not None)


def _delete_order(name: str) -> tuple[int, bool, str]:
    """Oldest version first, and of each the commit last: where a commit is gone, so is every checkpoint up to it.

    So whoever puts a commit there, late, finds no checkpoint from which it could be read (`TableLog._check_in_force`).
    """
    return int(name[:20]), _commit_version(name) is not None, name


def _is_protected(state: TableState, base: int) -> bool:
    return not _limit_applies(state) and base < int(state.metadata.configuration.get(PROTECTED_BEFORE, 0))


def _limit_applies(state: TableState) -> bool:
    """Whether a part of what has expired may be deleted: protected versions go in one call, or not at all."""
    return PROTECTION not in state.protocol.writer_features


def _check(log: DeltaLog, state: TableState, names: list[str], base: int) -> None:
    """Read the checkpoint that stays. Raises OffsetStoreError if the table could not be read from it on."""
    kept = [version for version in _commits(names) if base < version <= state.version]
    missing = next((each for each, found in enumerate([*kept, -1], base + 1) if each != found), None)
    if missing is not None and missing <= state.version:
        raise OffsetStoreError(f"{log.folder} has no version {missing}, after the checkpoint of version {base}")
    stored = StoredCheckpoint(log, base, complete_checkpoints(names)[base])
    found = stored.state()
    where = f"{log.folder}: the checkpoint of version {base}"
    if found.metadata.id != state.metadata.id:
        raise OffsetStoreError(f"{where} is of another table, {found.metadata.id}")
    lost = sorted(set(found.transactions) - set(state.transactions))
    if lost:
        raise OffsetStoreError(f"{where} has transaction identifiers that are missing at {state.version}: {lost[:5]}")
    if found.next_row_id > state.next_row_id:
        raise OffsetStoreError(f"{where} has row ids up to {found.next_row_id}, beyond those of {state.version}")
    for rows in stored.files("add"):
        if pc.any(rows.field("path").is_null()).as_py():
            raise OffsetStoreError(f"{where} has files without a path")


def _delete_sidecars(log: DeltaLog, now_ms: int) -> int:
    old = list(_older(log, now_ms, SIDECARS))
    if not old:
        return 0
    names = [name for name in log.names() if ".checkpoint." in name and _VERSIONED.fullmatch(name)]
    used = {each for name in names for each in StoredCheckpoint(log, int(name[:20]), (name,)).sidecars()}
    doomed = [name for name in old if name.endswith(".parquet") and name not in used]
    for name in doomed:
        _delete(log, name, f"{SIDECARS}/")
    return len(doomed)


def _delete_temporaries(log: DeltaLog, now_ms: int) -> int:
    doomed = [name for name in _older(log, now_ms, before="0") if name.startswith(TEMPORARY)]
    for name in doomed:
        log.storage.delete(name)
    return len(doomed)


def _older(log: DeltaLog, now_ms: int, folder: str = "", before: str = "~") -> Iterator[str]:
    """Yield the names of files that were a day old at midnight UTC."""
    limit_ms = (now_ms - DAY_MS) // DAY_MS * DAY_MS
    for name, modified_ms in log.storage.modified(folder):
        if name >= before:
            break
        if modified_ms < limit_ms:
            yield name


def _delete(log: DeltaLog, name: str, folder: str = "") -> None:
    log.storage.delete(f"{folder}{name}")
    if log.storage.is_local:
        log.storage.delete(f"{folder}.{name}.crc")  # Hadoop's checksum


def _commits(names: list[str]) -> list[int]:
    return [version for version in map(_commit_version, names) if version is not None]


def _commit_version(name: str) -> int | None:
    return int(name[:20]) if len(name) == 25 and name.endswith(".json") and name[:20].isdecimal() else None
