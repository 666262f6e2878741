"""The data files of a table: number, sizes, those that could be merged, and those that no commit names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sparkonce.connectors.delta_sink.compaction import small_files
from sparkonce.jobs.cli.housekeeping.orphans import FolderFile, TableFolder
from sparkonce.jobs.ui.delta.paced import PAUSE
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.locations import Location

BOUNDS = (1 << 10, 16 << 10, 256 << 10, 4 << 20, 32 << 20, 128 << 20)
"""The upper bounds of the size classes."""
ORPHAN_AGE_MS = 7 * 24 * 3600 * 1000
"""The age at which `sparkonce clean` removes a file by default."""


@dataclass(frozen=True, slots=True)
class FilesState:
    """The files of one version."""

    version: int
    files: int
    size: int
    rows: int | None
    """None if some file does not record its rows, or rows may be deleted from files."""
    classes: tuple[tuple[int | None, int], ...]
    """Upper bound (None for the last) and number of files of each class of sizes."""
    to_merge: int
    """Files that `sparkonce compact` would merge."""
    to_merge_bytes: int
    partitions: int
    """The partitions of the table with such files."""

    @property
    def largest_class(self) -> int:
        """The number of files in the largest class."""
        return max((count for _, count in self.classes), default=0)


@dataclass(frozen=True, slots=True)
class UnnamedFiles:
    """Data files in the folder that no commit names, at one time."""

    version: int
    looked_at_ms: int
    named: int
    old: tuple[FolderFile, ...]
    """Older than `ORPHAN_AGE_MS`."""
    young: tuple[FolderFile, ...]
    """They may belong to a running batch."""


def files_of(table: DeltaTable) -> FilesState:
    """Return the files of a table's version."""
    adds = pa.table(table.get_add_actions(flatten=True))
    sizes, counts = adds["size_bytes"], adds["num_records"]
    small = small_files(table)
    lower, classes = 0, []
    for bound in (*BOUNDS, None):
        above = pc.greater_equal(sizes, lower)
        within = above if bound is None else pc.and_(above, pc.less(sizes, bound))
        classes.append((bound, int(pc.sum(within).as_py() or 0)))
        lower = bound or 0
    return FilesState(
        table.version(),
        len(adds),
        int(pc.sum(sizes).as_py() or 0),
        None if counts.null_count or _may_have_deleted(table) else int(pc.sum(counts).as_py() or 0),
        tuple(classes),
        sum(each.files for each in small),
        sum(each.size for each in small),
        len(small),
    )


def _may_have_deleted(table: DeltaTable) -> bool:
    return "deletionVectors" in (table.protocol().reader_features or ())


def unnamed_of(location: Location, storage_options: Mapping[str, str]) -> UnnamedFiles:
    """List the folder and read all kept commits, slowly if large. Raises OffsetStoreError if that is impossible."""
    now = now_ms()
    found = TableFolder.open(location, storage_options).find(ORPHAN_AGE_MS, now)
    return UnnamedFiles(found.version, now, found.named, found.orphans, found.young)


class FilesWatch:
    """The files of one table, read again when its version has changed, and not too often; for one thread."""

    def __init__(self) -> None:
        self._state: FilesState | None = None
        self._not_before_s = 0.0

    def look(self, table: DeltaTable) -> FilesState:
        """Return the known state, perhaps of a slightly older version."""
        began_s = time.monotonic()
        if self._state is None or (self._state.version != table.version() and began_s >= self._not_before_s):
            self._state = files_of(table)
            ended_s = time.monotonic()
            self._not_before_s = ended_s + PAUSE * (ended_s - began_s)
        return self._state
