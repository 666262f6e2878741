"""Storage options, which are delta-rs's, as obstore takes them: of the store, its HTTP client, and its retries.

1. Names have any case; most have aliases. obstore is asked which names there are: both libraries rest on the same
   crate, ``object_store``. What it does not know is ignored, as delta-rs does.
2. Environment variables with such names count where no option is given, with or without the prefix ``AWS_``,
   ``AZURE_`` or ``GOOGLE_``, as with delta-rs.
3. Bucket, container and account are those of the address.
4. Options of delta-rs itself: ``certificate_path``, retries and their pauses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.aws_credentials import boto3_provider, found_by_sdk

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_S3 = ("s3", "s3a")
_CLASSES: dict[str, type[S3Store | GCSStore | AzureStore]] = {
    **dict.fromkeys(_S3, S3Store),
    "gs": GCSStore,
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), AzureStore),
}
SCHEMES = tuple(_CLASSES)
"""Those of addresses in object stores."""
_PREFIX = re.compile(r"^(?:aws|azure|google)_")
_OF_ADDRESS = {S3Store: ("bucket",), GCSStore: ("bucket",), AzureStore: ("azure_container_name",)}
_ACCOUNT = "azure_storage_account_name"
_BULK_DELETE = "aws_disable_bulk_delete"
_CONDITIONAL_PUT = ("aws_conditional_put", "conditional_put")
ETAG = "etag"
"""Conditional writes by ``If-None-Match``."""
_CERTIFICATE = "certificate_path"
_RETRY_NAMES = {
    "max_retries": "max_retries",
    "retry_timeout": "retry_timeout",
    **{
        f"{prefix}{name}": name
        for prefix in ("", "backoff.", "backoff_config.")
        for name in ("init_backoff", "max_backoff", "base")
    },
}
_BACKOFF = ("init_backoff", "max_backoff", "base")
_SPAN = re.compile(r"\s*(\d+)\s*([A-Za-z]+)")
_SECONDS = {
    **dict.fromkeys(("ns", "nsec"), 1e-9),
    **dict.fromkeys(("us", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """All that makes the client of one store; two stores of equal options may be one."""

    url: str
    config: tuple[tuple[str, str], ...] = field(repr=False)
    client: tuple[tuple[str, str], ...] = field(repr=False)
    retries: tuple[tuple[str, str], ...]
    conditional_put: str = ETAG
    """How S3 writes if absent, as the user set it; obstore itself is always told `ETAG`."""
    found_by_boto3: tuple[str, str] | None = None
    """Of credentials that obstore does not find: the arguments of `boto3_provider`."""

    @classmethod
    def read(cls, location: Location, storage_options: Mapping[str, str]) -> StoreOptions:
        """Read options, and the environment.

        Raises:
            OSError: if the address of an endpoint or a proxy is invalid: obstore panics.
        """
        _check_ports(storage_options)
        kind: Any = _CLASSES[location.text.partition(":")[0]]
        config: dict[str, str] = {}
        client: dict[str, str] = {}
        taken = dict.fromkeys(_OF_ADDRESS[kind], "")
        if kind is AzureStore and "@" in location.text:
            taken[_ACCOUNT] = ""
        for name, value in (*_lower(storage_options.items()), *_lower(sorted(os.environ.items()))):
            if name in taken or not _is_known(kind, name) or _is_doubled(kind, (*taken, name)):
                continue
            taken[name] = value
            if (of_client := _client_name(name)) is not None:
                client[of_client] = value
            else:
                config[name] = value
        given = dict(_lower(storage_options.items()))
        conditional_put, by_boto3 = ETAG, None
        if kind is S3Store:
            keys, by_boto3 = found_by_sdk(config, given)
            config |= keys
            conditional_put = next((config.pop(name) for name in _CONDITIONAL_PUT if name in config), ETAG)
            config[_CONDITIONAL_PUT[0]] = ETAG
            if not _is_doubled(kind, (*config, _BULK_DELETE)):
                config[_BULK_DELETE] = "true"  # one file at a time: plain DELETE, which every store has
        if _CERTIFICATE in given:
            client[_CERTIFICATE] = given[_CERTIFICATE]
        retries = {_RETRY_NAMES[name]: value for name, value in given.items() if name in _RETRY_NAMES}
        pairs = (tuple(config.items()), tuple(client.items()), tuple(retries.items()))
        return cls(location.text, *pairs, conditional_put, by_boto3)

    @property
    def in_s3(self) -> bool:
        """Whether the store has S3's interface."""
        return self.url.partition(":")[0] in _S3

    def open(self) -> ObjectStore:
        """Make a client.

        Raises:
            OSError: if an option has no such value.
            ValueError, obstore's errors: the same, found by obstore.
        """
        kind: Any = _CLASSES[self.url.partition(":")[0]]
        client: dict[str, Any] = dict(self.client)
        if _CERTIFICATE in client:
            client["root_certificate"] = Path(client.pop(_CERTIFICATE)).read_bytes()
        options: dict[str, Any] = {
            "config": dict(self.config),
            "client_options": client,
            "retry_config": self._retry_config(),
        }
        store: ObjectStore
        if self.in_s3:  # obstore (0.12) does not find AWS_ENDPOINT_URL_S3 again in `from_url`
            if self.found_by_boto3:
                options["credential_provider"] = boto3_provider(*self.found_by_boto3)
            at = kind.from_url(self.url)
            store = kind(at.config["bucket"], prefix=at.prefix, **options)
        else:
            store = kind.from_url(self.url, **options)
        return store

    def _retry_config(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in self.retries:
            try:
                values[name] = {"max_retries": int, "base": float}.get(name, duration)(value)
            except ValueError:
                raise OSError(f"storage.{name}={value} is no {_expected(name)}") from None
        backoff = {name: values.pop(name) for name in _BACKOFF if name in values}
        return {**values, "backoff": backoff} if backoff else values


def _check_ports(storage_options: Mapping[str, str]) -> None:
    for name, value in storage_options.items():
        if "://" in value:
            try:
                _ = urlsplit(value).port
            except ValueError:  # its text may contain a part of a password
                raise OSError(f"storage.{name} is not an address: its port is not a number up to 65535") from None


def duration(text: str) -> timedelta:
    """Parse a span of time such as ``1m 30s`` or ``50ms``. Raises ValueError."""
    seconds, end = 0.0, 0
    while end < len(text.rstrip()):
        found = _SPAN.match(text, end)
        if found is None or found[2] not in _SECONDS:
            raise ValueError(text)
        seconds += int(found[1]) * _SECONDS[found[2]]
        end = found.end()
    if not end:
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _expected(name: str) -> str:
    return {"max_retries": "whole number", "base": "number"}.get(name, "span of time, such as 30s")


def _lower(items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((name.lower(), value) for name, value in items)


@cache
def _is_known(kind: Any, name: str) -> bool:
    """Whether obstore knows a name: it refuses all others before it looks at values."""
    try:
        kind(config={name: ""})
    except UnknownConfigurationKeyError:
        return False
    except Exception:  # noqa: S110 - no bucket
        pass
    return True


def _is_doubled(kind: Any, names: Iterable[str]) -> bool:
    """Whether two of these names, which obstore knows, mean the same: it refuses that, in their order."""
    try:
        kind(config={**dict.fromkeys(names, ""), "?": ""})
    except UnknownConfigurationKeyError:
        return False
    except Exception:
        return True
    raise AssertionError("obstore took an option named ?")


@cache
def _client_name(name: str) -> str | None:
    """Return the name of an option of the HTTP client, as obstore has it; None for one of the store."""
    bare = _PREFIX.sub("", name)
    try:
        S3Store("bucket", client_options=cast(Any, {bare: ""}))
    except ValueError:
        return None
    except Exception:  # noqa: S110 - "" is no such value
        pass
    return bare
