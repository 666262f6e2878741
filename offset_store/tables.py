"""A Delta table at a location: loading it with delta-rs, and reaching the files of its folder.

Every such load goes through `load_table`, so that missing and unreadable tables are always reported in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyarrow import fs

from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError, plain
from sparkonce.offset_store.locations import Location, check_table_path
from sparkonce.offset_store.log.first_contact import check_store_answers
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options

if TYPE_CHECKING:
    from deltalake import DeltaTable

RETENTION_PROPERTY = "delta.setTransactionRetentionDuration"
"""The table property with which delta-spark drops transaction ids when it writes a checkpoint."""


def load_table(location: Location, storage_options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    """Load a table's version, the newest by default. Raises StoreMissingError, or OffsetStoreError if unreadable."""
    from deltalake import DeltaTable  # slow to import, and commits do without
    from deltalake.exceptions import DeltaError, TableNotFoundError

    check_table_path(location)
    with hidden_secrets(storage_options):
        try:
            check_store_answers(location, storage_options)
            return DeltaTable(location.text, version=version, storage_options=dict(storage_options) or None)
        except TableNotFoundError as error:
            raise StoreMissingError(f"there is no Delta table at {location}") from error
        except (DeltaError, OSError, ValueError) as error:
            why = plain(error)
            hint = store_hint_or_options(location, why)
            raise OffsetStoreError(f"cannot load the Delta table at {location}: {why}{hint}") from error


def check_keeps_transaction_ids(location: Location, configuration: Mapping[str, str | None]) -> None:
    """Reject a table that expires transaction ids, and so offsets (`RETENTION_PROPERTY`). Raises OffsetStoreError."""
    set_to = next((value for key, value in configuration.items() if key.lower() == RETENTION_PROPERTY.lower()), None)
    if set_to is not None:
        raise OffsetStoreError(
            f"the table {location} has the property {RETENTION_PROPERTY}={set_to}: with it the next checkpoint that "
            "delta-spark writes drops all stored offsets and batch numbers. Remove it: ALTER TABLE "
            f"delta.`{location}` UNSET TBLPROPERTIES ('{RETENTION_PROPERTY}'). If delta-spark has written to the "
            "table since it was set, check whether they are still there before you continue: sparkonce audit "
            f"{location}. What is missing there can be set again with sparkonce offsets set"
        )


def table_filesystem(location: Location, storage_options: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """Return a table's file system, and its path there ("" for object stores). Raises OffsetStoreError for a file."""
    if location.is_local:
        check_table_path(location)
        return fs.LocalFileSystem(), location.text
    from deltalake.fs import DeltaStorageHandler

    with hidden_secrets(storage_options):
        return fs.PyFileSystem(DeltaStorageHandler(location.text, dict(storage_options) or None)), ""


def join(root: str, path: str) -> str:
    """Return a path below ``root``, which may be empty."""
    return f"{root}/{path}" if root else path
