"""The storage of the laboratory's tables and checkpoints: local folders, or a store with S3's interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lab.store.s3 import open_s3

LOCAL_KIND = "local"
KINDS = (LOCAL_KIND, "s3", "moto")


class Store(Protocol):
    """The interface of a store."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options with which delta-rs reaches it."""

    @property
    def session(self) -> Mapping[str, str]:
        """Settings of a Spark session whose checkpoints are there."""

    @property
    def jars(self) -> Sequence[str]:
        """The jars of such a session."""

    def location(self, folder: Path) -> str:
        """Return the URI for a local folder; "" for that folder itself."""


@dataclass(frozen=True, slots=True)
class LocalFolders:
    """No store: tables and checkpoints are in local folders."""

    storage_options: Mapping[str, str]
    session: Mapping[str, str]
    jars: Sequence[str]

    def location(self, _folder: Path) -> str:
        """See `Store`."""
        return ""


LOCAL: Store = LocalFolders({}, {}, ())


@contextmanager
def open_store(kind: str) -> Iterator[Store]:
    """Start the store that one of `KINDS` names.

    Raises:
        PeerMissingError: if it is not available, or does not start.
    """
    if kind == LOCAL_KIND:
        yield LOCAL
    else:
        with open_s3(real=kind == "s3") as store:
            yield store
