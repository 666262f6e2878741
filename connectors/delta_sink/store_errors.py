"""Errors of object stores, reported with a hint and without secrets.

`offset_store.secrets` knows the secrets in them. Without credentials delta-rs asks the cloud's metadata service, whose
error does not mention the missing credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sparkonce.connectors.settings.options import STORAGE_PREFIX
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.secrets import retold, shows_secret, without_secrets

_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_CREDENTIALS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT",),
    "abfss": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
}


@contextmanager
def store_errors(location: Location, storage_options: Mapping[str, str]) -> Iterator[None]:
    """Pass errors on unchanged, unless they show a secret, or come from missing credentials.

    Raises:
        OffsetStoreError: in place of those; but an error of our own that shows a secret keeps its class.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        told = without_secrets(text, storage_options)
        hint = credentials_hint(location, text)
        if shows_secret(error, storage_options):
            raise retold(error, told + hint) from None
        if hint:
            raise OffsetStoreError(told + hint) from error
        raise


def credentials_hint(location: Location, text: str) -> str:
    """Return which credentials a store needs, if an error shows that none were found; else ""."""
    if location.is_local or not any(service in text for service in _METADATA_SERVICES):
        return ""
    names = _CREDENTIALS.get(location.text.partition(":")[0], ())
    options = " and ".join(STORAGE_PREFIX + name for name in names) or f"options {STORAGE_PREFIX}*"
    return (
        f". No credentials for {location} were found: set {options}, or the environment variables of these names "
        "for the driver and the executors, or give the machine a role"
    )
