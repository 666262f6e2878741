"""Whether the rows that a log proves are there: the data files that it names.

The log alone proves nothing about rows: files are lost by hand, by a vacuum of another table that shares them, or by a
copy that was not complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from sparkonce.exactly_once.audit_active import ActiveFiles
from sparkonce.exactly_once.audit_findings import Finding, Problem
from sparkonce.offset_store.clones import is_outside_table
from sparkonce.offset_store.data_files import names_of, sizes_of
from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options
from sparkonce.offset_store.tables import load_table, table_filesystem


@dataclass(frozen=True, slots=True)
class LostFile:
    """A data file that cannot be read as the log has it."""

    path: str
    """As the log has it."""
    size: int
    found: int | None
    """How many bytes it has; None if it is not there."""

    def __str__(self) -> str:
        if self.found is None:
            return f"the data file {self.path} is missing"
        return f"the data file {self.path} has {self.found:,} bytes, and the log says {self.size:,}"


def lost_files(location: Location, storage_options: Mapping[str, str], table: DeltaTable) -> list[LostFile]:
    """Return a version's lost files, of the newest version if one came. Raises OffsetStoreError if it cannot look."""
    return _all_lost(location, storage_options, table, _named(table))


def look_for_files(
    location: Location, storage_options: Mapping[str, str], table: DeltaTable, active: ActiveFiles
) -> Iterator[Finding]:
    """Find data files of a table that are lost, or say why they cannot be looked for; and compare them with its log.

    ``active`` is what the commits up to the table's version have left.
    """
    named = _named(table)
    for found in active.differences({path: names_of(path, location) for path in named}):
        yield replace(found, message=f"{location}: {found.message}")
    try:
        lost = _all_lost(location, storage_options, table, named)
    except OffsetStoreError as error:
        yield Finding(Problem.FILES_NOT_EXAMINED, str(error))
        return
    for each in lost:
        message = f"{location}: {each}, so its rows cannot be read. Bring it back from a backup, or write them again "
        yield Finding(Problem.FILE_LOST, message + "from a version before it: sparkonce offsets rewind --restore")


def _all_lost(
    location: Location, storage_options: Mapping[str, str], table: DeltaTable, named: Mapping[str, int | None]
) -> list[LostFile]:
    found = [*_lost(location, storage_options, named), *_lost_vectors(location, storage_options, table)]
    # Files that were merged, and removed by a vacuum, while this looked are not missed by anybody.
    if not found:
        return []
    newest = load_table(location, storage_options)
    return [*_lost(location, storage_options, _named(newest)), *_lost_vectors(location, storage_options, newest)]


def _named(table: DeltaTable) -> dict[str, int | None]:
    """Return the data files of a version, with the sizes that the log says."""
    adds = pa.table(table.get_add_actions())
    return dict(zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True))


def _lost(location: Location, storage_options: Mapping[str, str], named: Mapping[str, int | None]) -> list[LostFile]:
    try:
        found = _sizes(named, location, storage_options)
    except (OSError, ValueError) as error:
        why = without_secrets(plain(error), storage_options)
        hint = store_hint_or_options(location, why)
        raise OffsetStoreError(f"the data files of {location} cannot be looked for: {why}{hint}") from None
    return [LostFile(path, size or 0, found[path]) for path, size in sorted(named.items()) if found[path] != size]


def _lost_vectors(location: Location, storage_options: Mapping[str, str], table: DeltaTable) -> list[LostFile]:
    """Return the file of deletion vectors that is not there, if one is: without it no reader knows the deleted rows."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return []
    try:
        for _ in table.deletion_vectors():
            pass
    except (DeltaError, OSError, ValueError) as error:
        why = without_secrets(plain(error), storage_options)
        missing = re.search(r"not found: *(\S+\.bin)", why)
        if missing is not None:
            return [LostFile(missing[1], 0, None)]
        raise OffsetStoreError(f"the deletion vectors of {location} cannot be read: {why}") from None
    return []


def _sizes(paths: Iterable[str], location: Location, storage_options: Mapping[str, str]) -> dict[str, int | None]:
    """Return the sizes of files that the log names; one listing shows all that are below the table's folder."""
    filesystem, root = table_filesystem(location, storage_options)
    infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    prefix = f"{root}/" if root else ""
    sizes = {info.path.removeprefix(prefix): info.size for info in infos if info.type is fs.FileType.File}
    names = {path: names_of(path, location) for path in paths}
    elsewhere = [name for each in names.values() for name in each if is_outside_table(name)]
    sizes |= sizes_of(elsewhere, location, storage_options)
    return {
        path: next((size for name in each if (size := sizes.get(name)) is not None), None)
        for path, each in names.items()
    }
