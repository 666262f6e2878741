"""What object stores say when something is wrong, told so that it helps and shows no secret.

delta-rs's errors quote the request, and some stores take their keys in the address: a shared access signature of Azure,
a presigned address of S3. And where no credentials are given, delta-rs asks the cloud's metadata service, whose failure
says nothing of what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

from connectors.options import STORAGE_PREFIX
from offset_store.errors import OffsetStoreError
from offset_store.locations import Location

HIDDEN = "***"
_SECRET_OPTION = re.compile(r"(?i)secret|key|token|password|sas|credential")
_SIGNED = re.compile(r"(?i)\b(sig|x-amz-signature|x-amz-security-token|x-goog-signature)=[^&\s\"']+")
_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_CREDENTIALS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT",),
    "abfss": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
}


@contextmanager
def store_errors(location: Location, storage_options: Mapping[str, str]) -> Iterator[None]:
    """Let errors out as they are, unless they show a secret, or come from missing credentials.

    Raises:
        OffsetStoreError: in place of those.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        told = without_secrets(text, storage_options)
        hint = credentials_hint(location, text)
        if any(without_secrets(each, storage_options) != each for each in _texts(error)):
            raise OffsetStoreError(told + hint) from None
        if hint:
            raise OffsetStoreError(told + hint) from error
        raise


def without_secrets(text: str, storage_options: Mapping[str, str]) -> str:
    """Put `HIDDEN` where a secret option's value, or a signature in an address, stands in ``text``."""
    for name, value in storage_options.items():
        if _SECRET_OPTION.search(name) and value:
            for form in {value, quote(value, safe=""), quote_plus(value), value.lstrip("?")}:
                text = text.replace(form, HIDDEN)
    return _SIGNED.sub(lambda found: f"{found[1]}={HIDDEN}", text)


def credentials_hint(location: Location, text: str) -> str:
    """Say which credentials a store wants, if an error shows that none were found; else ""."""
    if location.is_local or not any(service in text for service in _METADATA_SERVICES):
        return ""
    names = _CREDENTIALS.get(location.text.partition(":")[0], ())
    options = " and ".join(STORAGE_PREFIX + name for name in names) or f"options {STORAGE_PREFIX}*"
    return (
        f". No credentials for {location} were found: set {options}, or the environment variables of these names "
        "for the driver and the executors, or give the machine a role"
    )


def _texts(error: BaseException | None) -> Iterator[str]:
    """Give the texts of an error and of all that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield str(error)
        error = error.__cause__ or error.__context__
