"""The `.txnindex` of one segment: the aborted transactions whose abort markers lie in it, in Kafka's format.

A fetch of a read_committed consumer gets, with the records, the aborted transactions that overlap them. Each entry has
34 bytes (Kafka's AbortedTxn, version 0): the producer, the transaction's first offset, the offset of its marker, and
the last stable offset after that marker. The last field bounds the search: a transaction that began before offset `n`
has ended once the last stable offset is `n` or more.

A segment without aborted transactions has no such file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from sparkonce.broker_lite.log.offset_index import CorruptIndexError
from sparkonce.kafka.protocol.primitives import Buffer

SUFFIX = ".txnindex"
ENTRY_BYTES = 34
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")

assert _ENTRY.size == ENTRY_BYTES


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, in the order of their markers."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._entries = list(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All entries."""
        return tuple(self._entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Note a transaction that a marker has just aborted."""
        assert not self._entries or aborted.last_offset > self._entries[-1].last_offset
        self._entries.append(aborted)

    def collect(self, from_offset: int, upto_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add the transactions with records from `from_offset` to below `upto_offset`; True if no later one has any."""
        for entry in self._entries:
            if entry.last_offset >= from_offset and entry.first_offset < upto_offset:
                found.append(entry)
            if entry.last_stable_offset >= upto_offset:
                return True
        return False

    def encode(self) -> bytes:
        """Return the file's content."""
        return b"".join([_ENTRY.pack(_VERSION, *entry) for entry in self._entries])

    @classmethod
    def decode(cls, base_offset: int, data: Buffer) -> TransactionIndex:
        """Read a file. Raises CorruptIndexError for unknown versions, and markers out of order or of the segment."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndexError(f"transaction index of {len(data)} bytes, no multiple of {ENTRY_BYTES}")
        entries = []
        before = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != _VERSION or entry.last_offset <= before or entry.first_offset > entry.last_offset:
                raise CorruptIndexError(f"transaction index has version {version} with {entry} after offset {before}")
            entries.append(entry)
            before = entry.last_offset
        return cls(entries)
