"""Addresses of tables and checkpoints, in the forms of Spark, delta-rs and pyarrow.

Spark accepts plain paths, ``file:/x``, ``file:///x`` and ``s3a://``; delta-rs and pyarrow need ``s3://`` and no
``file:/x``. Here all are normalized: an absolute path for local files, a URI for the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from pyarrow import fs

from sparkonce.offset_store.errors import OffsetStoreError

_OBJECT_STORES = ("s3", "gs", "abfss", "az")
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss", "gcs": "gs"}
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class Location:
    """One location: an absolute local path, or a URI of another scheme without a trailing slash."""

    text: str
    is_local: bool

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse a path, relative to the working directory, or a URI in Spark's form. Raises ValueError for none."""
        if not text.strip():
            raise ValueError("an empty path")
        scheme, colon, rest = text.partition(":")
        if not colon or "/" in scheme or not scheme.isascii():
            return cls(os.path.abspath(text), is_local=True)
        if scheme.lower() == "file":
            path = re.sub("^//localhost(?=/)", "", rest)  # RFC 8089
            return cls(os.path.abspath("/" + unquote(path).lstrip("/")), is_local=True)
        name = _SAME_STORE.get(scheme.lower(), scheme.lower())
        return cls(f"{name}:{rest.rstrip('/')}", is_local=False)

    @property
    def in_object_store(self) -> bool:
        """Whether delta-rs and its options can reach this location."""
        return not self.is_local and self.text.partition(":")[0] in _OBJECT_STORES

    @property
    def is_file(self) -> bool:
        """Whether this is a local file, where a table or a checkpoint would be a folder."""
        return self.is_local and os.path.isfile(self.text)

    def is_same(self, other: Location) -> bool:
        """Whether both are the same location, also through symbolic links."""
        both_local = self.is_local and other.is_local
        return self == other or (both_local and os.path.realpath(self.text) == os.path.realpath(other.text))

    def filesystem(self, storage_options: Mapping[str, str] | None = None) -> tuple[fs.FileSystem, str]:
        """Return a file system for this location, and the path within it.

        Args:
            storage_options: options for delta-rs, which then reads an object store. Without any, pyarrow reads it, with
                endpoint and credentials from its environment.

        Raises:
            ValueError: if the scheme is not supported; the message names those that are.
            OSError: if the store cannot be reached.
        """
        if self.is_local:
            return fs.LocalFileSystem(), self.text
        if storage_options and self.in_object_store:
            from deltalake.fs import DeltaStorageHandler

            return fs.PyFileSystem(DeltaStorageHandler(self.text, dict(storage_options))), ""
        try:
            filesystem, path = fs.FileSystem.from_uri(self.text)
        except (ValueError, NotImplementedError) as error:
            raise ValueError(
                f"cannot read {self.text}: {error}. Readable are local paths, file:, s3://, gs://, abfss:// and hdfs://"
            ) from error
        return filesystem, path

    def __str__(self) -> str:
        return self.text


def check_table_path(location: Location) -> None:
    """Reject a file, and local paths that delta-rs (1.6) interprets as other folders. Raises OffsetStoreError."""
    if location.is_file:
        raise OffsetStoreError(f"{location} is a file, not a Delta table: name the folder that holds _delta_log")
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
