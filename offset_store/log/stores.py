"""Which `LogStorage` a location has, and whether commits can be made there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.storage import LOG_FOLDER, LocalStorage, LogStorage
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options

if TYPE_CHECKING:
    from sparkonce.offset_store.log.object_options import StoreOptions
    from sparkonce.offset_store.log.object_storage import ObjectStorage

_TRUE = ("1", "true", "on", "yes", "y")
_LOCKS = ("AWS_S3_LOCKING_PROVIDER", "DELTA_DYNAMO_TABLE_NAME")
_DISABLED = "disabled"
_ETAG = "etag"
_ONE_WRITER = "AWS_S3_ALLOW_UNSAFE_RENAME"


def log_storage(location: Location, storage_options: Mapping[str, str]) -> LogStorage:
    """Return the folder ``_delta_log`` of the table at ``location``.

    Raises:
        OffsetStoreError: if there can be no table, or an option has no such value.
    """
    if location.is_local:
        return LocalStorage(Path(location.text) / LOG_FOLDER)
    with hidden_secrets(storage_options):
        try:
            return object_storage(location, storage_options)
        except OSError as error:
            why = plain(error)
            raise OffsetStoreError(f"cannot reach {location}: {why}{store_hint_or_options(location, why)}") from error


def object_storage(location: Location, storage_options: Mapping[str, str]) -> ObjectStorage:
    """Return that of an object store.

    Raises:
        OSError: as `log_storage`; the message may show a secret.
    """
    from sparkonce.offset_store.log.object_storage import ObjectStorage  # slow to import

    options, refusal, one_writer = _read(location, storage_options)
    return ObjectStorage.of(options, one_writer=one_writer, refusal=refusal)


def check_commits(location: Location, storage_options: Mapping[str, str]) -> None:
    """Reject a location at which options say that no commit can be made safely, before a row is written.

    Raises:
        OffsetStoreError: with what to do.
    """
    if location.is_local:
        return
    with hidden_secrets(storage_options):
        try:
            _, refusal, _ = _read(location, storage_options)
        except OSError as error:
            refusal = plain(error)
        if refusal:
            raise OffsetStoreError(f"cannot commit to {location}: {refusal}")


def _read(location: Location, storage_options: Mapping[str, str]) -> tuple[StoreOptions, str, bool]:
    """Return a store's options, and what `_writers` says. Raises OSError."""
    from sparkonce.offset_store.log.object_options import SCHEMES, StoreOptions

    if location.text.partition(":")[0] not in SCHEMES:
        raise OSError(
            "no table can be there: tables are on local or mounted file systems, or in object stores (s3://, s3a://, "
            "gs://, abfss:// or az://)"
        )
    options = StoreOptions.read(location, storage_options)
    refusal, one_writer = _writers(options.conditional_put, storage_options) if options.in_s3 else ("", False)
    return options, refusal, one_writer


def _writers(conditional_put: str, storage_options: Mapping[str, str]) -> tuple[str, bool]:
    """Return why no commit may be made in a store with S3's interface, or "", and whether there is one writer.

    delta-rs (1.6) always writes conditionally, whatever `_ONE_WRITER` is, fails at the commit if that is disabled, and
    has given up locks in DynamoDB.
    """
    for name in _LOCKS:
        value = _value(name, storage_options)
        if value and (name != _LOCKS[0] or value.lower() == "dynamodb"):
            return (
                f"{name}={value} says that the writers of this table lock it in DynamoDB, which sparkonce does not do, "
                "nor delta-rs any more (1.6): both write conditionally (If-None-Match), and would overlook the locks. "
                "Let all writers of the table write conditionally, and remove this option, or environment variable",
                False,
            )
    if conditional_put.lower() == _ETAG:
        return "", False
    if conditional_put.lower() == _DISABLED and _value(_ONE_WRITER, storage_options).lower() in _TRUE:
        return "", True
    return (
        f"AWS_CONDITIONAL_PUT={conditional_put} leaves no way to write a commit only if it is absent, and two writers "
        "could replace each other's commits. Remove it, so that If-None-Match is used; only if the store has no "
        f"conditional writes, and this table has one writer, ever, set disabled, and storage.{_ONE_WRITER}=true too",
        False,
    )


def _value(name: str, storage_options: Mapping[str, str]) -> str:
    given = (value for option, value in storage_options.items() if option.lower() == name.lower())
    return next(given, os.environ.get(name, ""))
