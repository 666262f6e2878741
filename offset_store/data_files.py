"""Whether data files that a log names, or is about to name, are there, and how long they are.

On a local disk that costs a few microseconds a file; on an object store a request, `ASKED_AT_ONCE` at a time.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from pyarrow import fs

from sparkonce.offset_store.clones import is_outside_table
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.tables import join, table_filesystem

ASKED_AT_ONCE = 32
_CODED_UUID = 20
"""Characters."""
_FROM_Z85 = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""From the digits of ZeroMQ's base 85 (RFC 32) to those of Python's."""


def sizes_of(names: Collection[str], location: Location, storage_options: Mapping[str, str]) -> dict[str, int | None]:
    """Return how many bytes each file has; None if it is not there.

    The ``names`` are paths below the table's folder, or, as shallow clones have them, addresses elsewhere.

    Raises:
        OSError, ValueError: if they cannot be looked for.
    """
    place_of = places(location, storage_options)

    def size(name: str) -> int | None:
        filesystem, path = place_of(name)
        info = filesystem.get_file_info(path)
        return int(info.size) if info.type is fs.FileType.File else None

    if location.is_local:
        return {name: size(name) for name in names}
    with ThreadPoolExecutor(ASKED_AT_ONCE, "data-files") as pool:
        return dict(zip(names, pool.map(size, names), strict=True))


def places(location: Location, storage_options: Mapping[str, str]) -> Callable[[str], tuple[fs.FileSystem, str]]:
    """Return a function from a file's name, as `sizes_of` takes it, to its file system and the path there.

    Raises:
        OSError, ValueError: if the table's file system cannot be reached; from the function: if another store cannot.
    """
    filesystem, root = table_filesystem(location, storage_options)

    def place(name: str) -> tuple[fs.FileSystem, str]:
        if is_outside_table(name):
            return Location.parse(name).filesystem(storage_options)
        return filesystem, join(root, name)

    return place


def names_of(path: str, location: Location) -> list[str]:
    """Return what the path of an action may mean, for `sizes_of`: it is a URI, or, by some writers, as it is."""
    if "%" not in path and not is_outside_table(path):
        return [path]
    is_decoded_later = path.lower().startswith("file:")  # by `Location.parse`
    forms = [path] if is_decoded_later else [unquote(path), path]
    return [*dict.fromkeys(_name(form, location) for form in forms)]


def _name(form: str, location: Location) -> str:
    """Return a path below the table's folder, or an address elsewhere in the one spelling that `Location` has."""
    return str(Location.parse(form)).removeprefix(f"{location}/") if is_outside_table(form) else form


def gone_files(location: Location, storage_options: Mapping[str, str], adds: Sequence[Action]) -> list[str]:
    """Return which files of these add actions, and of their deletion vectors, are not there. Raises as `sizes_of`."""
    vectors = (add.get("deletionVector") for add in adds)
    paths = sorted({str(add["path"]) for add in adds} | {path for each in vectors if (path := _vector_file(each))})
    names = {path: names_of(path, location) for path in paths}
    sizes = sizes_of({name for each in names.values() for name in each}, location, storage_options)
    return [path for path in paths if all(sizes[name] is None for name in names[path])]


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
