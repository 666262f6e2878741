"""What can go wrong where offsets live."""

from __future__ import annotations


class OffsetStoreError(RuntimeError):
    """The store cannot be opened, read or written; the message names it and the way out."""


class CommitConflictError(OffsetStoreError):
    """Somebody committed after the snapshot that this commit was decided from: look again, and decide again."""


class LogFileMissingError(OffsetStoreError):
    """A file of a Delta table's log is not there: it was cleaned up, or it never was."""


class StoreMissingError(OffsetStoreError):
    """There is nothing at the store's address yet."""
