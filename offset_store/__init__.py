"""Where offsets are stored: in the transaction identifiers of a Delta table, in a Kafka consumer group, or in memory.

`open_store` opens the store that the option ``offsetStore`` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError, StoreMissingError
from sparkonce.offset_store.group import GroupOffsets, GroupOffsetStore
from sparkonce.offset_store.memory import MemoryOffsetStore
from sparkonce.offset_store.store import OffsetStore

if TYPE_CHECKING:
    from sparkonce.offset_store.delta import DeltaOffsetStore

__all__ = [
    "DELTA",
    "GROUP",
    "CommitConflictError",
    "DeltaOffsetStore",
    "GroupOffsetStore",
    "MemoryOffsetStore",
    "OffsetStore",
    "OffsetStoreError",
    "StoreMissingError",
    "check_spec",
    "open_store",
]

DELTA, GROUP = "delta:", "group:"
"""Prefixes of the option ``offsetStore``."""


def __getattr__(name: str) -> Any:
    """Import `DeltaOffsetStore` on first use: a query without a table needs nothing of a table's log."""
    if name != "DeltaOffsetStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sparkonce.offset_store.delta import DeltaOffsetStore

    return DeltaOffsetStore


def check_spec(spec: str) -> str:
    """Return ``spec`` if it has the form of a store's name.

    Raises:
        ValueError: if it does not.
    """
    if not any(spec.startswith(kind) and spec.removeprefix(kind).strip() for kind in (DELTA, GROUP)):
        raise ValueError("this is not a store; write delta:<path of a table> or group:<id>")
    return spec


def open_store(
    spec: str,
    app_id: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    groups: Callable[[str], GroupOffsets] | None = None,
    create_missing: bool = False,
) -> OffsetStore:
    """Open the store that ``spec`` names: ``delta:<path of a table>`` or ``group:<id of a Kafka consumer group>``.

    The table need not exist yet: until it does, no offsets are stored; ``create_missing`` creates it with the
    first snapshot. ``groups`` returns the consumer group of an id, since only the caller knows the cluster.

    Raises:
        ValueError: if ``spec`` names no store, or a group without ``groups``, or ``app_id`` is empty.
    """
    if not app_id:
        raise ValueError("offsetStore needs appId: offsets are kept for each application")
    try:
        check_spec(spec)
    except ValueError as error:
        raise ValueError(f"offsetStore={spec!r}: {error}") from None
    if spec.startswith(DELTA):
        from sparkonce.offset_store.delta import DeltaOffsetStore
        from sparkonce.offset_store.locations import Location

        location = Location.parse(spec.removeprefix(DELTA))
        return DeltaOffsetStore(location, app_id, dict(storage_options or {}), create_missing)
    if groups is None:
        raise ValueError(f"offsetStore={spec!r}: a consumer group needs the settings of its Kafka cluster")
    return GroupOffsetStore(groups(spec.removeprefix(GROUP)), app_id)
