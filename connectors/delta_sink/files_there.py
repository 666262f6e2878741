"""See whether a batch's data files are still there when the driver is about to name them in the log.

Nothing names them between the task that wrote them and the commit, so VACUUM takes them for orphans once they are older
than what it retains, and a hand may do anything. A commit that names a file which is gone leaves a table that nobody
can read. So each file is looked at right before the commit: a few microseconds on a local disk, one request each on an
object store, `ASKED_AT_ONCE` at a time. A VACUUM that listed the folder before and deletes afterwards is not seen.
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
