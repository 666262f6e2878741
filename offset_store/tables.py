"""A Delta table at a location: loading it with delta-rs, committing to it, and reaching the files of its folder.

Every load goes through `load_table`, so that missing and unreadable tables are always reported in the same words. Every
commit with transaction ids is made by `append` (or is a restore with the same `commit_properties`), so that no commit
lets a table expire them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import fs

from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError, StoreMissingError, plain
from sparkonce.offset_store.first_contact import check_store_answers
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.offset_store.store_hints import full_disk, store_hint_or_options

COMMIT_ATTEMPTS = 100
"""How often delta-rs tries the next version after losing to other commits that do not conflict."""
LOG_CLEANUP_EVERY = 97
"""Versions: after this many commits delta-rs cleans up expired files of the log. By default it does so after each
commit, and checks every file: 14 ms for 2,000 versions. A prime, so that with alternating writers each of them does
it."""
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
RETENTION_PROPERTY = "delta.setTransactionRetentionDuration"
"""The table property with which delta-spark drops transaction ids when it writes a checkpoint."""


def load_table(location: Location, storage_options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    """Load a table's version, the newest by default. Raises StoreMissingError, or OffsetStoreError if unreadable."""
    _check_folder(location)
    _check_path(location)
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


def commit_properties(
    transactions: Mapping[str, int], info: Mapping[str, Any], retries: int = COMMIT_ATTEMPTS
) -> CommitProperties:
    """Return the properties of a commit: the versions of transaction ids, and fields of its ``commitInfo``."""
    return CommitProperties(
        custom_metadata=dict(info),
        # No lastUpdated, which is only used to expire ids by age. In a table that does so
        # (`check_keeps_transaction_ids`), neither choice keeps them: delta-spark's checkpoints then drop old ids and
        # those without a date.
        app_transactions=[Transaction(txn_id, version) for txn_id, version in transactions.items()],
        max_commit_retries=retries,
    )


def after_commit(version: int) -> PostCommitHookProperties:
    """Return delta-rs's steps after a commit of this version: a checkpoint when one is due, clean-up periodically."""
    # None leaves it to the table: delta.enableExpiredLogCleanup.
    return PostCommitHookProperties(cleanup_expired_logs=None if version % LOG_CLEANUP_EVERY == 0 else False)


def append(
    table: DeltaTable,
    transactions: Mapping[str, int],
    info: Mapping[str, Any],
    files: Sequence[AddAction] = (),
    *,
    replace: bool = False,
) -> None:
    """Commit transaction ids, fields of the ``commitInfo``, and files if there are any, through the handle ``table``.

    With ``replace`` the files that the table had at the handle's version are removed in the same commit, which then
    conflicts with any other. The handle stays at its version: load the table again to see the result.

    Raises:
        CommitConflictError: if a commit after that version moved one of these ids, or delta-rs gave up.
        DeltaError, OSError: if the commit failed otherwise. It may still have landed: read the store again.
        OffsetStoreError: instead of these, if they show a secret, or the disk is full.
    """
    where = Location.parse(table.table_uri)
    with hidden_secrets(table._storage_options or {}), full_disk(where):  # the handle keeps what it was loaded with
        try:
            table.create_write_transaction(
                list(files),
                "overwrite" if replace else "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                # delta-rs (1.6) would commit after an OPTIMIZE that has put the same rows into other files.
                commit_properties=commit_properties(transactions, info, 0 if replace else COMMIT_ATTEMPTS),
                post_commithook_properties=after_commit(table.version() + 1),
            )
        except CommitFailedError as error:
            raise CommitConflictError(plain(error)) from error


def table_filesystem(location: Location, storage_options: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """Return a table's file system, and its path there ("" for object stores). Raises OffsetStoreError for a file."""
    if location.is_local:
        _check_folder(location)
        return fs.LocalFileSystem(), location.text
    with hidden_secrets(storage_options):
        return fs.PyFileSystem(DeltaStorageHandler(location.text, dict(storage_options) or None)), ""


def _check_folder(location: Location) -> None:
    if location.is_file:
        raise OffsetStoreError(f"{location} is a file, not a Delta table: name the folder that holds _delta_log")


def _check_path(location: Location) -> None:
    """Reject local paths that delta-rs (1.6) interprets as other folders."""
    if location.is_local and os.sep == "/" and "\\" in location.text:
        raise OffsetStoreError(
            f"the path {location} has a backslash in it, which delta-rs reads as / where it loads a log, and not where "
            "it writes: it would mix two folders. Use a path without one"
        )
    if location.is_local and (escape := _ESCAPE.search(location.text)):
        name = unquote(escape[0])
        raise OffsetStoreError(
            f"the path {location} has {escape[0]} in it, which delta-rs decodes to the character {name!r}: it would "
            "use another folder. Use a path without a percent sign before two digits"
        )


def join(root: str, path: str) -> str:
    """Return a path below ``root``, which may be empty."""
    return f"{root}/{path}" if root else path
