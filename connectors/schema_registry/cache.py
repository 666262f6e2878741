"""Schemas that a registry has returned, on this machine's disk.

A task can read what others have fetched while the registry is down. A file is used only if its digest, which
includes its name, is correct. `client` decides when the registry is asked first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkonce.private_folder import private_folder

_log = logging.getLogger(__name__)
_FOLDER = "sparkonce-schemas"
VARIABLE = "SPARKONCE_SCHEMA_CACHE"
"""The environment variable that names another folder; empty for none."""


class DiskCache:
    """The documents of one registry, by name."""

    def __init__(self, urls: Sequence[str]) -> None:
        chosen = os.environ.get(VARIABLE)
        above = private_folder(_FOLDER) if chosen is None else Path(chosen) if chosen else None
        named = hashlib.sha256("\n".join(urls).encode()).hexdigest()[:16]
        self._folder = above / named if above is not None else None

    def get(self, name: str) -> Any:
        """Return a document; None if there is no valid one."""
        if self._folder is None:
            return None
        path = self._folder / f"{name}.json"
        try:
            digest, _, text = path.read_text().partition("\n")
        except (OSError, UnicodeDecodeError):
            return None
        if _digest(name, text) != digest:
            _log.warning("%s is damaged and is ignored", path)
            return None
        return json.loads(text)

    def put(self, name: str, document: Any) -> None:
        """Store a document; no effect where nothing can be written."""
        if self._folder is None:
            return
        text = json.dumps(document)
        path = self._folder / f"{name}.json"
        written = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written.write_text(f"{_digest(name, text)}\n{text}")
            written.replace(path)
        except OSError as error:
            _log.info("%s is not kept: %s", path, error)


def _digest(name: str, text: str) -> str:
    return hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()
