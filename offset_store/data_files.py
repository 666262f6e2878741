"""Whether the data files that a table's newest version names are there, and as long as its log says.

The log alone proves nothing about rows: files are lost by hand, by a vacuum of another table that shares them, or by a
copy that was not complete.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from sparkonce.offset_store.clones import is_outside_table
from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options
from sparkonce.offset_store.tables import join, load_table, table_filesystem

ASKED_AT_ONCE = 32
_CODED_UUID = 20
"""Characters."""
_FROM_Z85 = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""From the digits of ZeroMQ's base 85 (RFC 32) to those of Python's."""


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
    found = [*_lost(location, storage_options, table), *_lost_vectors(location, storage_options, table)]
    # Files that were merged, and removed by a vacuum, while this looked are not missed by anybody.
    if not found:
        return []
    newest = load_table(location, storage_options)
    return [*_lost(location, storage_options, newest), *_lost_vectors(location, storage_options, newest)]


def gone_files(location: Location, storage_options: Mapping[str, str], adds: Sequence[Action]) -> list[str]:
    """Return which files of these add actions, and of their deletion vectors, are not there.

    Raises:
        OSError, ValueError: if they cannot be looked for.
    """
    vectors = (add.get("deletionVector") for add in adds)
    paths = sorted({str(add["path"]) for add in adds} | {path for each in vectors if (path := _vector_file(each))})
    if not paths:
        return []
    filesystem, root = table_filesystem(location, storage_options)

    def is_there(path: str) -> bool:
        for form in (unquote(path), path):
            below = _below(form, location)
            place = (filesystem, join(root, below)) if below else Location.parse(form).filesystem(storage_options)
            if place[0].get_file_info(place[1]).type is fs.FileType.File:
                return True
        return False

    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(paths)), "data-files") as pool:
        return [path for path, found in zip(paths, pool.map(is_there, paths), strict=True) if not found]


def _vector_file(vector: Action | None) -> str | None:
    """Return the path of a deletion vector's file (PROTOCOL.md, "Deletion Vector Descriptor Schema"), if it has one."""
    if vector is None or vector["storageType"] == "i":
        return None
    text = str(vector["pathOrInlineDv"])
    if vector["storageType"] == "p":
        return text
    folder, coded = text[:-_CODED_UUID], text[-_CODED_UUID:]
    name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(coded.translate(_FROM_Z85)))}.bin"
    return join(folder, name)


def _lost(location: Location, storage_options: Mapping[str, str], table: DeltaTable) -> list[LostFile]:
    adds = pa.table(table.get_add_actions())
    named = dict(zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True))
    try:
        sizes = _sizes(location, storage_options)
        found = {path: _size(path, location, sizes, storage_options) for path in named}
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


def _sizes(location: Location, storage_options: Mapping[str, str]) -> dict[str, int | None]:
    """Return the sizes of all files below a table's folder."""
    filesystem, root = table_filesystem(location, storage_options)
    infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    prefix = f"{root}/" if root else ""
    return {info.path.removeprefix(prefix): info.size for info in infos if info.type is fs.FileType.File}


def _size(
    path: str, location: Location, sizes: Mapping[str, int | None], storage_options: Mapping[str, str]
) -> int | None:
    """Return the size of a file that the log names, as a URI or, by some writers, as it is; None if it is not there."""
    forms = (unquote(path), path)
    below = [_below(form, location) for form in forms]
    if None not in below:
        return next((sizes[name] for name in below if name is not None and name in sizes), None)
    for form in forms:
        filesystem, place = Location.parse(form).filesystem(storage_options)  # it decodes a file's URI itself
        info = filesystem.get_file_info(place)
        if info.type is fs.FileType.File:
            return int(info.size)
    return None


def _below(path: str, location: Location) -> str | None:
    """Return a path below the table's folder; None for one elsewhere, as shallow clones have them."""
    prefixes = [f"{scheme}{location}/" for scheme in (("", "file:", "file://") if location.is_local else ("",))]
    prefix = next((each for each in prefixes if path.startswith(each)), "")
    below = path.removeprefix(prefix)
    return None if is_outside_table(below) else below
