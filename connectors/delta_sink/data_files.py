"""Checks that a commit's data files still exist.

Right before a commit each of its data files is checked to be there still. The log does not name them until then, so
VACUUM treats them as orphans once they are older than its retention, and they can be deleted manually; a commit of a
deleted file leaves an unreadable table. A VACUUM that listed the folder before and deletes afterwards is not detected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkonce.exactly_once.errors import FilesGoneError
from sparkonce.offset_store.data_files import sizes_of
from sparkonce.offset_store.locations import Location
from sparkonce.words import some_of


def check_files_are_there(
    files: Sequence[Any], location: Location, storage_options: Mapping[str, str], what: str, ending: str
) -> None:
    """Reject files unless all are in the table's folder, with the size with which they were written.

    Raises:
        FilesGoneError: if one is not; ``what`` they are of and the ``ending`` are for its message.
        OSError: if the object store does not answer.
    """
    sizes = sizes_of([file.path for file in files], location, storage_options)
    gone = [
        f"{file.path} ({'gone' if size is None else f'of another size: {size} bytes, written were {file.size}'})"
        for file in files
        if (size := sizes[file.path]) != file.size
    ]
    if not gone:
        return
    elsewhere = (
        f"; or a task wrote them on another machine, and {location} is a folder of each machine's own: driver and "
        "executors need storage that they share"
    )
    raise FilesGoneError(
        f"{what}: {len(gone)} of its {len(files)} data files are gone from {location} before their commit: "
        f"{some_of(gone)}. A VACUUM that retains less than a batch takes removes them, as it does all files "
        f"that no commit names yet; or they were deleted manually{elsewhere if location.is_local else ''}. {ending}. "
        "Start the query again, and let VACUUM retain more than the longest batch takes (Delta's default is 7 days)"
    )
