"""Whether an object store answers at all: checked once per process, with short timeouts.

A client of a store retries a read for three minutes without a message. That is right for a running query, whose store
may be down for a moment, and wrong for one that starts with a wrong endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.stores import log_storage

IMPATIENT = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "1", "retry_timeout": "10s"}
"""Options of the store; the user's own take precedence."""
_NO_ANSWER = re.compile(r"dns error|tcp connect error|client error \(Connect\)|timed out")
_answered: set[tuple[str, tuple[tuple[str, str], ...]]] = set()


def check_store_answers(location: Location, storage_options: Mapping[str, str]) -> None:
    """Request a file of the folder, existing or not; errors other than a missing answer are left to later requests.

    Raises:
        OSError: if nothing answers.
        ValueError: if the address of an endpoint or a proxy is invalid: delta-rs (1.6) panics, with an exception that
            is not an `Exception`.
        OffsetStoreError: if an option has no such value.
    """
    bucket = "/".join(location.text.split("/")[:3])
    key = bucket, tuple(sorted(storage_options.items()))
    if not location.in_object_store or key in _answered:
        return
    _check_ports(storage_options)
    try:
        log_storage(location, {**IMPATIENT, **storage_options}).tag("_last_checkpoint")
    except OSError as error:
        if _NO_ANSWER.search(str(error)):
            raise
    _answered.add(key)


def _check_ports(storage_options: Mapping[str, str]) -> None:
    for name, value in storage_options.items():
        if "://" in value:
            try:
                _ = urlsplit(value).port
            except ValueError:  # its text may contain a part of a password
                raise ValueError(f"storage.{name} is not an address: its port is not a number up to 65535") from None
