"""Check that a batch's data files still exist when the driver is about to add them to the log.

The log does not name them until the commit, so VACUUM treats them as orphans once they are older than its retention,
and they can be deleted manually. A commit of a deleted file leaves an unreadable table. So each file is checked right
before the commit: a few microseconds on a local disk, one request each on an object store, `ASKED_AT_ONCE` at a time. A
VACUUM that listed the folder before and deletes afterwards is not detected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyarrow import fs

from sparkonce.exactly_once.errors import FilesGoneError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.store import Commit
from sparkonce.offset_store.tables import join, table_filesystem

ASKED_AT_ONCE = 32
NAMED = 3
"""Files that an error names."""


def check_files_are_there(commit: Commit[Any], location: Location, storage_options: Mapping[str, str]) -> None:
    """Refuse a commit whose files are not all in the table's folder, in the size in which they were written.

    Raises:
        FilesGoneError: if one is not.
        OSError: if the object store does not answer.
    """
    sizes = _sizes([file.path for file in commit.files], location, storage_options)
    gone = [
        f"{file.path} ({'gone' if size is None else f'of another size: {size} bytes, written were {file.size}'})"
        for file, size in zip(commit.files, sizes, strict=True)
        if size != file.size
    ]
    if not gone:
        return
    named = ", ".join(gone[:NAMED]) + (", …" if len(gone) > NAMED else "")
    record = commit.record
    if commit.is_second and Writes.OFFSETS not in commit.writes:
        ending = "Nothing names them; its offsets are stored already, so these rows are lost, as at-most-once allows"
    else:
        ending = "Nothing was committed"
    raise FilesGoneError(
        f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}): {len(gone)} of its "
        f"{len(commit.files)} data files are gone from {location} before their commit: {named}. A VACUUM that retains "
        "less than a batch takes removes them, as it does all files that no commit names yet; or somebody deleted "
        f"them. {ending}. Start the query again, and let VACUUM retain more than the longest batch takes (Delta's "
        "default is 7 days)"
    )


def _sizes(paths: Sequence[str], location: Location, storage_options: Mapping[str, str]) -> list[int | None]:
    if location.is_local:
        return [_local_size(Path(location.text, path)) for path in paths]
    filesystem, root = table_filesystem(location, storage_options)
    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(paths)), "data-files") as pool:
        return list(pool.map(lambda path: _size(filesystem, join(root, path)), paths))


def _local_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _size(filesystem: fs.FileSystem, path: str) -> int | None:
    (info,) = filesystem.get_file_info([path])
    return int(info.size) if info.type == fs.FileType.File else None
