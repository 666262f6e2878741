"""The data files that a version of a table has: needed by what replaces or rewrites them, never by an append."""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.checkpoint_rows import FileKey, file_key
from sparkonce.offset_store.log.reader import DeltaLog


def active_files(log: DeltaLog, version: int) -> dict[FileKey, Action]:
    """Return the add actions of the files of a version. Raises OffsetStoreError if the log no longer has it."""
    listing = log.listing()
    checkpoint = listing.newest_checkpoint(version)
    found: dict[FileKey, Action] = {}
    if checkpoint is not None:
        stored = StoredCheckpoint(log, checkpoint, listing.checkpoints[checkpoint])
        for rows in stored.files("add"):
            found |= {file_key(add): add for add in rows.to_pylist(maps_as_pydicts="strict")}
    elif 0 not in listing.commits:
        raise OffsetStoreError(f"{log.folder} has neither version 0 nor a checkpoint before version {version}")
    versions = range(0 if checkpoint is None else checkpoint + 1, version + 1)
    for actions in log.actions_of(versions, ("add", "remove")):
        for remove in actions["remove"]:
            found.pop(file_key(remove), None)
        found |= {file_key(add): add for add in actions["add"]}
    return found


def active_paths(log: DeltaLog, version: int) -> Iterator[str]:
    """Yield the paths of the files of a version, as the log has them. Raises as `active_files`."""
    return (str(add["path"]) for add in active_files(log, version).values())
