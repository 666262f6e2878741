"""Where offsets live: in Delta's transaction identifiers, or in memory.

`open_store` turns the text of the option ``offsetStore`` into a store.
"""

from __future__ import annotations

from collections.abc import Mapping

from offset_store.delta import DeltaOffsetStore
from offset_store.errors import CommitConflictError, OffsetStoreError, StoreMissingError
from offset_store.locations import Location
from offset_store.memory import MemoryOffsetStore
from offset_store.store import OffsetStore

__all__ = [
    "CommitConflictError",
    "DeltaOffsetStore",
    "MemoryOffsetStore",
    "OffsetStore",
    "OffsetStoreError",
    "StoreMissingError",
    "open_store",
]


def open_store(spec: str, app_id: str, storage_options: Mapping[str, str] | None = None) -> OffsetStore:
    """Open the store that ``spec`` names: ``delta:<path of a table>``.

    The table need not exist yet: until it does, no offsets are stored.

    Raises:
        ValueError: if ``spec`` names no store, or ``app_id`` is empty.
    """
    if not app_id:
        raise ValueError("offsetStore needs appId: offsets are kept for each application")
    kind, _, address = spec.partition(":")
    if kind == "delta" and address:
        return DeltaOffsetStore(Location.parse(address), app_id, dict(storage_options or {}))
    raise ValueError(f"offsetStore={spec!r} is not a store; write delta:<path of the result table>")
