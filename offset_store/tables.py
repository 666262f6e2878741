"""A Delta table at a location: loading it with delta-rs, and reaching the files of its folder.

Every load goes through `load_table`, so that a table that is not there, and one that cannot be read, is told in the
same words by all that look at tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from offset_store.errors import OffsetStoreError, StoreMissingError
from offset_store.locations import Location


def load_table(location: Location, storage_options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    """Load a version of the table at ``location``; the newest if none is given.

    Raises:
        StoreMissingError: if there is no table.
        OffsetStoreError: if it cannot be read, or not at that version.
    """
    try:
        return DeltaTable(location.text, version=version, storage_options=dict(storage_options) or None)
    except TableNotFoundError as error:
        raise StoreMissingError(f"there is no Delta table at {location}") from error
    except (DeltaError, OSError, ValueError) as error:
        raise OffsetStoreError(f"cannot load the Delta table at {location}: {error}") from error


def table_filesystem(location: Location, storage_options: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """Give the file system of a table's folder, and the folder's path in it ("" for object stores)."""
    if location.is_local:
        return fs.LocalFileSystem(), location.text
    return fs.PyFileSystem(DeltaStorageHandler(location.text, dict(storage_options) or None)), ""


def join(root: str, path: str) -> str:
    """Give a path below ``root``, which may be empty."""
    return f"{root}/{path}" if root else path
