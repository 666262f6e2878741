"""Checks that a commit's data files still exist.

Right before a commit each of its data files is checked to be there still. The log does not name them until then, so
VACUUM treats them as orphans once they are older than its retention, and they can be deleted manually; a commit of a
deleted file leaves an unreadable table. The check takes a few microseconds on a local disk, and one request for each
file on an object store, `ASKED_AT_ONCE` at a time. A VACUUM that listed the folder before and deletes afterwards is not
detected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyarrow import fs

from sparkonce.exactly_once.errors import FilesGoneError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.tables import join, table_filesystem

ASKED_AT_ONCE = 32
NAMED = 3
"""Files that an error names."""


def check_files_are_there(
    files: Sequence[Any], location: Location, storage_options: Mapping[str, str], what: str, ending: str
) -> None:
    """Reject files unless all are in the table's folder, with the size with which they were written.

    Raises:
        FilesGoneError: if one is not; ``what`` they are of and the ``ending`` are for its message.
        OSError: if the object store does not answer.
    """
    sizes = _sizes([file.path for file in files], location, storage_options)
    gone = [
        f"{file.path} ({'gone' if size is None else f'of another size: {size} bytes, written were {file.size}'})"
        for file, size in zip(files, sizes, strict=True)
        if size != file.size
    ]
    if not gone:
        return
    named = ", ".join(gone[:NAMED]) + (", …" if len(gone) > NAMED else "")
    elsewhere = (
        f"; or a task wrote them on another machine, and {location} is a folder of each machine's own: driver and "
        "executors need storage that they share"
    )
    raise FilesGoneError(
        f"{what}: {len(gone)} of its {len(files)} data files are gone from {location} before their commit: {named}. A "
        "VACUUM that retains less than a batch takes removes them, as it does all files that no commit names yet; or "
        f"they were deleted manually{elsewhere if location.is_local else ''}. {ending}. Start the query again, and let "
        "VACUUM retain more than the longest batch takes (Delta's default is 7 days)"
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
