"""Which `LogStorage` a location has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.storage import LOG_FOLDER, LocalStorage, LogStorage


def log_storage(location: Location, storage_options: Mapping[str, str]) -> LogStorage:
    """Return the folder ``_delta_log`` of the table at ``location``."""
    if location.is_local:
        return LocalStorage(Path(location.text) / LOG_FOLDER)
    raise NotImplementedError(f"object stores: {location} {sorted(storage_options)}")
