"""What other applications have written into a result: offsets in its own commits, and in the table in its folder.

A table of offsets elsewhere may be that of several results, so it is not read.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import StoreMissingError
from sparkonce.offset_store.other_apps import OtherApps, other_apps
from sparkonce.offset_store.record import BatchRecord, PartitionKey


@dataclass(frozen=True, slots=True)
class OtherRows:
    """Reads them, with handles of its own: what is read must not move the handle that commits."""

    stores: tuple[DeltaOffsetStore, ...]
    may_cover_twice: bool

    def written_by_delta(self, record: BatchRecord) -> int | None:
        """See `Snapshot.written_by_delta`. Raises OffsetStoreError if a log cannot be read."""
        with suppress(StoreMissingError):
            at = self.stores[0].snapshot_unchecked().look_up(record.query_id)
            return at if at is not None and at >= record.batch_id else None
        return None

    def look(self, batch: BatchRecord, new: Collection[PartitionKey]) -> OtherApps:
        """Return what others have of partitions of which the batch's application has stored nothing.

        Raises:
            OffsetStoreError: if a log cannot be read.
        """
        found = other_apps(self._transactions(), batch, new)
        return replace(found, may_cover_twice=self.may_cover_twice, may_begin_late=True)

    def _transactions(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for store in self.stores:
            with suppress(StoreMissingError):
                for txn_id, at in store.snapshot_unchecked().state.transactions.items():
                    found[txn_id] = max(at, found.get(txn_id, at))
        return found
