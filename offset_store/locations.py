"""Addresses of tables and checkpoints: what Spark, delta-rs and pyarrow each call the same place.

Spark takes plain paths, ``file:/x``, ``file:///x`` and ``s3a://``; delta-rs and pyarrow want ``s3://`` and no
``file:/x``. Everything is brought to one form here: an absolute path for local files, a URI for the rest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyarrow import fs

_SAME_STORE = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss", "gcs": "gs"}


@dataclass(frozen=True, slots=True)
class Location:
    """One place: an absolute local path, or a URI of another scheme without its last slash."""

    text: str
    is_local: bool

    @classmethod
    def parse(cls, text: str) -> Location:
        """Read a path or a URI as Spark's users write it; a relative path counts from the working directory.

        Raises:
            ValueError: if the text is empty.
        """
        if not text.strip():
            raise ValueError("an empty path")
        scheme, colon, rest = text.partition(":")
        if not colon or "/" in scheme or not scheme.isascii():
            return cls(os.path.abspath(text), is_local=True)
        if scheme.lower() == "file":
            path = unquote(urlsplit(text).path) if "%" in text else "/" + rest.lstrip("/")
            return cls(os.path.abspath(path), is_local=True)
        name = _SAME_STORE.get(scheme.lower(), scheme.lower())
        return cls(f"{name}:{rest.rstrip('/')}", is_local=False)

    def filesystem(self) -> tuple[fs.FileSystem, str]:
        """Give pyarrow's file system for this place, and the path within it.

        Raises:
            ValueError: if pyarrow cannot read this scheme; the message names the schemes it can.
        """
        if self.is_local:
            return fs.LocalFileSystem(), self.text
        try:
            filesystem, path = fs.FileSystem.from_uri(self.text)
        except (ValueError, OSError, NotImplementedError) as error:
            raise ValueError(
                f"cannot read {self.text}: {error}. Readable are local paths, file:, s3://, gs://, abfss:// and hdfs://"
            ) from error
        return filesystem, path

    def __str__(self) -> str:
        return self.text
