"""Errors of offset stores, and how messages are written."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BACKTRACE = re.compile(r"\s*(?:stack )?backtrace:\s*", re.IGNORECASE)
_FIRST_FRAME = re.compile(r"\s*0: ")
_CHAIN = re.compile(r"\s*\n\s*↳ ")
"""How delta-rs (1.6) breaks the colons of a chain of causes into lines."""
_ANSWER = re.compile(r"<\?xml.*?<Code>(.*?)</Code>.*?(?:<Message>(.*?)</Message>.*?)?</Error>", re.DOTALL)
"""The body of an object store's error."""
_CAUSES = "caused by:"
"""Opens a numbered list too, but one of reasons."""


def plain(error: BaseException) -> str:
    """Return the message of an error of delta-rs, without terminal colours and without Rust's backtrace.

    With ``RUST_BACKTRACE`` set, delta-rs puts the frames of its own stack after its message. A chain of causes becomes
    one line, and an object store's answer its code and message.
    """
    kept: list[str] = []
    text = _CHAIN.sub(": ", _ESCAPES.sub("", str(error)))
    text = _ANSWER.sub(lambda found: f"{found[1]}: {found[2].rstrip('.')}" if found[2] else found[1], text)
    for line in text.strip().splitlines():
        if _BACKTRACE.fullmatch(line):
            break
        if _FIRST_FRAME.match(line) and kept and not kept[-1].strip().lower().endswith(_CAUSES):
            break
        kept.append(line.rstrip())
    return "\n".join(kept).rstrip()


class OffsetStoreError(RuntimeError):
    """The store cannot be opened, read or written; the message names it and what to do."""


class CommitConflictError(OffsetStoreError):
    """Another writer committed after the snapshot that this commit was decided from: read again and decide again."""


class CatalogManagedError(OffsetStoreError):
    """A catalog makes the table's commits: its log alone does not show the newest version."""


class LogFileMissingError(OffsetStoreError):
    """A file of a Delta table's log is not there: it was cleaned up, or it never was."""


class RowsWithoutOffsetsError(OffsetStoreError):
    """A table holds rows of ours without their offsets: a query that starts from the beginning would duplicate them."""


class StoreMissingError(OffsetStoreError):
    """There is no store at this address yet."""


class StoreOutageError(OffsetStoreError):
    """No table of a batch could be reached, since their store does not answer now."""
