"""Data files in a table's folder that no commit names: what killed drivers and lost task attempts leave behind.

An orphan is a Parquet file that is named neither by an ``add``, ``remove`` or ``cdc`` action of any kept commit, nor by
any checkpoint up to the newest version. An intermediate checkpoint may be all that is left of a version: commits
before it can be cleaned up while it is kept, and later checkpoints omit what was removed long before. So no version
that can still be read loses a file, however young its tombstones are: removing former files of the table is the task of
vacuum. (delta-rs's vacuum does both with one age, so it cannot remove last hour's orphans without last
hour's tombstones.)

A file of a running batch does not differ from an orphan until it is committed; only its age
shows it. The folder is listed before the log is read, so that a file committed in between counts as named; before
anything is deleted, later commits are checked too.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from sparkonce.offset_store.clones import is_outside_table
from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.checkpoint_rows import FILE_KINDS
from sparkonce.offset_store.log.protocol import unwritable
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.storage import LOG_FOLDER
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.tables import join, load_table, table_filesystem

DATA_SUFFIX = ".parquet"
_NAMING = ("add", "remove", "cdc")


@dataclass(frozen=True, slots=True, order=True)
class FolderFile:
    """One file, by its path below the table's folder."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one search of a table's folder."""

    version: int
    orphans: tuple[FolderFile, ...]
    young: tuple[FolderFile, ...]
    """Also named by no commit, but younger than the given age: they may belong to a running batch."""
    named: int
    """Data files that some kept commit names."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of deleting orphans."""

    files: tuple[FolderFile, ...]
    committed_meanwhile: tuple[FolderFile, ...]
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of one Delta table."""

    location: Location
    storage_options: Mapping[str, str] = field(repr=False)
    filesystem: fs.FileSystem
    root: str
    log: DeltaLog

    @classmethod
    def open(cls, location: Location, storage_options: Mapping[str, str]) -> TableFolder:
        """Open the folder of a table, which may be missing. Raises OffsetStoreError for an invalid ``location``."""
        try:
            filesystem, root = table_filesystem(location, storage_options)
            return cls(location, storage_options, filesystem, root, DeltaLog.open(location, storage_options))
        except (DeltaError, OSError, ValueError) as error:
            raise OffsetStoreError(
                f"cannot open the folder {location}: {without_secrets(plain(error), storage_options)}"
            ) from error

    def find(self, older_than_ms: int, now_ms: int) -> Found:
        """Find the orphans last written more than ``older_than_ms`` before ``now_ms``.

        Raises:
            StoreMissingError: if there is no table.
            OffsetStoreError: if folder or log cannot be read to the end, or the table has a feature that is unknown
                here ("vacuumProtocolCheck" in PROTOCOL.md): then no file is known to be an orphan.
        """
        infos = self._list()
        unknown = unwritable(TableLog(self.location, self.storage_options).state().protocol)
        if unknown is not None:
            raise OffsetStoreError(
                f"the table {self.location} has the {unknown}: which of its files are used is unknown"
            )
        table = load_table(self.location, self.storage_options)
        files = _data_files(infos, table.metadata().partition_columns)
        named = self._named(table)
        unnamed = [file for file in files if file.path not in named]
        limit_ms = now_ms - older_than_ms
        return Found(
            table.version(),
            tuple(file for file in unnamed if file.modified_ms < limit_ms),
            tuple(file for file in unnamed if file.modified_ms >= limit_ms),
            len(files) - len(unnamed),
        )

    def delete(self, found: Found) -> Deleted:
        """Delete orphans, except those that a commit has named since.

        Raises:
            OffsetStoreError: if the log cannot be read again; then nothing is deleted.
        """
        since = [version for version in self.log.listing().commits if version > found.version]
        named = _Named.of(path for version in since for path in self._paths_of(version))
        deleted, failed = [], {}
        for file in found.orphans:
            if file.path in named:
                continue
            try:
                self.filesystem.delete_file(join(self.root, file.path))
                deleted.append(file)
            except FileNotFoundError:  # its own driver was faster
                continue
            except OSError as error:
                failed[file.path] = self._told(error)
        meanwhile = tuple(file for file in found.orphans if file.path in named)
        return Deleted(tuple(deleted), meanwhile, failed)

    def _told(self, error: Exception) -> str:
        return without_secrets(plain(error), self.storage_options)

    def _list(self) -> list[FolderFile]:
        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(self.root, recursive=True, allow_not_found=True))
        except OSError as error:
            raise OffsetStoreError(f"cannot list {self.location}: {self._told(error)}") from error
        linked = _linked(infos, self.root) if self.location.is_local else set[str]()
        return [
            # Without a time from the store the file counts as young, so it is kept.
            FolderFile(
                info.path.removeprefix(f"{self.root}/" if self.root else ""),
                info.size or 0,
                info.mtime_ns // 1_000_000 if info.mtime_ns is not None else 1 << 62,
            )
            for info in infos
            if info.type is fs.FileType.File and info.path not in linked
        ]

    def _named(self, table: DeltaTable) -> _Named:
        listing = self.log.listing()
        paths = {path for version in listing.commits for path in self._paths_of(version)}
        for version in (each for each in listing.checkpoints if each <= table.version()):
            stored = StoredCheckpoint(self.log, version, listing.checkpoints[version])
            paths.update(path for kind in FILE_KINDS for path in stored.paths(kind))
        active = pa.table(table.get_add_actions())["path"].to_pylist()
        missing = set(active) - paths
        if missing:
            raise OffsetStoreError(
                f"{self.location}: the log at version {table.version()} holds files that reading it did not find "
                f"({min(missing)}, and {len(missing) - 1} more); nothing is taken for an orphan"
            )
        return _Named.of(paths)

    def _paths_of(self, version: int) -> list[str]:
        found = self.log.actions(version, _NAMING)
        return [action["path"] for kind in _NAMING for action in found[kind]]


@dataclass(frozen=True, slots=True)
class _Named:
    """The files that a log names."""

    paths: Set[str]
    """Relative to the table's folder."""
    files: Set[str]
    """The last parts of absolute paths, as clones have them. A folder has many addresses (``file:/x``, ``s3a://``, an
    alias, a link), so a file of that name is kept wherever it is."""

    @classmethod
    def of(cls, paths: Iterable[str]) -> _Named:
        """Read paths of actions: they are URIs, or, by some writers, not encoded."""
        forms = {form for path in paths for form in (path, unquote(path))}
        absolute = {form for form in forms if is_outside_table(form)}
        relative = forms - absolute
        return cls(
            relative | {posixpath.normpath(form) for form in relative}, {form.rpartition("/")[2] for form in absolute}
        )

    def __contains__(self, path: str) -> bool:
        return path in self.paths or path.rpartition("/")[2] in self.files


def _linked(infos: Iterable[fs.FileInfo], root: str) -> set[str]:
    """Return the paths below ``root`` that are symbolic links or below one: listings follow links."""
    linked: set[str] = set()
    for path in sorted(info.path for info in infos):  # a folder comes before its contents
        if os.path.dirname(path) in linked or os.path.islink(path):
            linked.add(path)
    linked.discard(root)
    return linked


def _data_files(files: Iterable[FolderFile], partition_columns: Iterable[str]) -> list[FolderFile]:
    """Yield data files: not hidden ones (``_x``, ``.x``), nor those of another table below this folder."""
    allowed = tuple(f"{column}=" for column in partition_columns)
    everything = list(files)
    inner = {file.path.partition(f"/{LOG_FOLDER}/")[0] + "/" for file in everything if f"/{LOG_FOLDER}/" in file.path}
    return sorted(
        file
        for file in everything
        if file.path.endswith(DATA_SUFFIX)
        and not any(part.startswith(("_", ".")) and not part.startswith(allowed) for part in file.path.split("/"))
        and not any(file.path.startswith(folder) for folder in inner)
    )
