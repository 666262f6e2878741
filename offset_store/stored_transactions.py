"""The versions of a Delta table's transaction identifiers, for a handle that is updated with the table.

delta-rs returns one identifier at a time and reads the log back for each, up to the newest checkpoint if it was not
written for long: half a millisecond to ten. For a few that does not matter. For the partitions of a large
topic the log is read once instead, and after that only the new commits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from deltalake import DeltaTable

from sparkonce.offset_store.delta_log import DeltaLog
from sparkonce.offset_store.errors import OffsetStoreError

FEW = 16
"""Up to this many identifiers are looked up one by one with delta-rs."""

_UNREADABLE = (OffsetStoreError, KeyError, TypeError, ValueError)
"""Errors of a log that was cleaned up, or in which another writer put unexpected content."""


@dataclass(slots=True)
class StoredTransactions:
    """The transaction identifiers of one table, at the version that the handle is at; for one thread."""

    table: DeltaTable
    open_log: Callable[[], DeltaLog] = field(repr=False)
    _found: dict[str, int | None] = field(default_factory=dict, repr=False)
    _version: int = -1
    """The version of `_found`."""
    _is_whole: bool = False
    """Whether `_found` is complete: identifiers not in it are not stored."""

    def look_up(self, txn_id: str) -> int | None:
        """Return the stored version of an identifier, or None."""
        self._follow()
        if txn_id not in self._found:
            self._found[txn_id] = None if self._is_whole else self.table.transaction_version(txn_id)
        return self._found[txn_id]

    def expect(self, count: int) -> None:
        """Announce that this many identifiers will be looked up. A log that cannot be read is left to delta-rs."""
        self._follow()
        if count <= FEW or self._is_whole:
            return
        with suppress(*_UNREADABLE):
            self._found.update(self.open_log().transactions(self._version))
            self._is_whole = True

    def _follow(self) -> None:
        """Follow the handle to its current version."""
        version = self.table.version()
        if version == self._version:
            return
        known, since, is_whole = dict(self._found), self._version, self._is_whole
        self._found.clear()  # no stale entries, even if the rest fails
        self._version, self._is_whole = version, False
        if is_whole and since < version:
            with suppress(*_UNREADABLE):
                self._found.update(known | self.open_log().transactions(version, since))
                self._is_whole = True
