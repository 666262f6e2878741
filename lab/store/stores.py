"""Where the laboratory's tables and checkpoints are: local folders, or a store with S3's interface."""

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
    """What the laboratory needs to know of a store."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What delta-rs needs."""

    @property
    def session(self) -> Mapping[str, str]:
        """Settings of a Spark session that keeps checkpoints there."""

    @property
    def jars(self) -> Sequence[str]:
        """Jars that such a session needs."""

    def location(self, folder: Path) -> str:
        """Return the URI of the folder that stands for a local one; "" for that folder itself."""


@dataclass(frozen=True, slots=True)
class LocalFolders:
    """No store: table and checkpoint are in the local folder."""

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
