"""Compaction of one batch: it is kept unchanged, loses records, loses all of them, or is removed.

A record is kept if it is the latest of its key. A record without a value, a tombstone, is kept until its batch's
delete horizon, which the first compaction of the batch writes into it: the current time plus `delete.retention.ms`
(KIP-534). The same holds for markers of empty transactions. A batch that has lost all its records is kept as a header
if it holds the last sequence number of an active producer, or the last offset of the compacted range, so that neither
is lost. Offsets never change. The rules are those of Kafka's Cleaner and MemoryRecords.filterTo.

`OffsetMap` has the latest offset of each key of the log's dirty part. `log.cleaner.dedupe.buffer.size` bounds its
keys; when it is full, the rest of the dirty part waits for the next round. Short keys are stored as they are, long ones
as a SHA-256, so unlike with Kafka's 16 bytes of MD5 two keys are never confused.

`CleanedTransactions` tracks the transactions that are open at the cleaner's position. Data of an aborted transaction
is removed at once. A marker, and its entry in the transaction index, is kept while data of its transaction is left,
because readers need it to interpret that. Only a marker whose transaction is empty may be removed, after another
`delete.retention.ms`. These rules are those of Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparkonce.broker_lite.log.transaction_index import AbortedTransaction
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.legacy_records import decode_any, encode_message_set
from sparkonce.kafka.protocol.record_scan import FoundRecord, empty, find_records, inflate, rebuild
from sparkonce.kafka.protocol.records import MAGIC, BatchHeader, ControlType

RECORDS_PER_STEP = 256
"""How many records are checked before other work gets a turn."""

ENTRY_BYTES: Final = 200
"""The memory of one key, measured with keys of 32 bytes: the key, the offset, its share of a growing dict."""
LONGEST_PLAIN_KEY_BYTES: Final = 32


class LastRecord(NamedTuple):
    """An active producer's last record: the offset of its last data, or else the epoch of its last marker."""

    data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningRound:
    """The parameters of one round of cleaning."""

    offset_map: OffsetMap
    now_ms: int
    delete_retention_ms: int
    upper_bound_offset: int
    """The end of the compacted range; the batch that ends there is kept, if only as a header."""
    last_records: Mapping[int, LastRecord]
    """By producer id, for active producers."""


def filter_batch(
    cleaning: CleaningRound, batch: bytes, header: BatchHeader, discardable: bool, keep_old_tombstones: bool
) -> Generator[None, None, bytes | bytearray | None]:
    """Yield what is left of a batch, None for nothing; yields now and then, as the work may be long.

    `discardable`: the batch is data of an aborted transaction, or a marker whose transaction is empty.
    `keep_old_tombstones`: tombstones of formats v0 and v1, which have no horizon, are kept.

    Raises:
        CorruptBatchError: if the batch cannot be read.
    """
    if header.magic < MAGIC:
        return _filter_messages(cleaning, batch, header, keep_old_tombstones)
    horizon = header.delete_horizon_ms
    expired = horizon is not None and horizon <= cleaning.now_ms
    discarded = discardable and (not header.is_control or expired)
    stays_empty = _is_last_of_producer(cleaning, header) or header.next_offset == cleaning.upper_bound_offset
    if discarded and not stays_empty:
        return None
    if discarded or not header.record_count:
        return empty(header) if stays_empty else None
    body = inflate(batch, header)
    kept: list[FoundRecord] = []
    tombstones = False
    for found in find_records(header, body, RECORDS_PER_STEP):
        for record in found:
            if header.is_control or _stays(cleaning, record.offset, record.key, record.has_value or not expired):
                kept.append(record)
                tombstones = tombstones or not record.has_value
        yield None
    if not kept:
        return empty(header) if stays_empty else None
    if horizon is None and (tombstones or (header.is_control and discardable)):
        horizon = cleaning.now_ms + cleaning.delete_retention_ms
    elif len(kept) == header.record_count:
        return batch
    return (yield from rebuild(header, body, kept, horizon, RECORDS_PER_STEP))


def _is_last_of_producer(cleaning: CleaningRound, header: BatchHeader) -> bool:
    if not header.has_producer_id:
        return False
    last = cleaning.last_records.get(header.producer_id)
    if last is None:
        return False
    if last.data_offset is not None:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.producer_epoch


def _stays(cleaning: CleaningRound, offset: int, key: bytes | None, living: bool) -> bool:
    """Whether a record is kept; `living`: it has a value, or is a tombstone before its delete horizon."""
    offset_map = cleaning.offset_map
    if offset > offset_map.latest_offset:
        return True
    return living and key is not None and offset >= offset_map.get(key)


def _filter_messages(
    cleaning: CleaningRound, batch: bytes, header: BatchHeader, keep_tombstones: bool
) -> bytes | bytearray | None:
    """Filter a message or a compressed message set of format v0 or v1; the format is unchanged."""
    messages = decode_any(batch)
    kept = [
        message
        for message in messages
        if _stays(cleaning, message.offset, message.key, message.value is not None or keep_tombstones)
    ]
    if len(kept) == len(messages):
        return batch
    if not kept:
        return None
    return encode_message_set(
        kept,
        magic=header.magic,
        compression=Compression(header.compression),
        log_append_time_ms=header.max_timestamp if header.magic and header.is_log_append_time else None,
    )


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    seen_data: bool = False


class CleanedTransactions:
    """The transactions open at the cleaner's position in the log."""

    __slots__ = ("_aborted", "_ahead", "_committed", "keep")

    def __init__(self) -> None:
        self._committed: set[int] = set()
        self._aborted: dict[int, _Aborted] = {}
        self._ahead: list[tuple[int, AbortedTransaction]] = []
        self.keep: Callable[[AbortedTransaction], None] | None = None
        """Called with each aborted transaction that is kept."""

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions of the part of the log that comes next."""
        for each in aborted:
            heapq.heappush(self._ahead, (each.first_offset, each))

    def on_batch(self, header: BatchHeader) -> bool:
        """Note a batch of data; True if it may be removed, as part of an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None:
            aborted.seen_data = True
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, kind: ControlType | None, empty: bool) -> bool:
        """Note a control batch; True if it may be removed, as its transaction has no data left."""
        self._reach(header.last_offset)
        if empty:
            return True  # already cleaned
        if kind is ControlType.COMMIT:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is None or not aborted.seen_data:
                return True
            if self.keep is not None:
                self.keep(aborted.transaction)
        return False

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, transaction = heapq.heappop(self._ahead)
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))


class OffsetMap:
    """Offsets by key, up to a limit. `latest_offset` is the last offset covered by the map."""

    __slots__ = ("_offsets", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 1.0) -> None:
        self._offsets: dict[bytes, int] = {}
        self.capacity = max(int(memory_bytes / ENTRY_BYTES * load_factor), 1)
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Note a record; False if there is no room for another key."""
        if len(self._offsets) >= self.capacity:
            return False
        self._offsets[_short(key)] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the latest offset of a key, -1 if it is not in the dirty part."""
        return self._offsets.get(_short(key), -1)

    def advance(self, offset: int) -> None:
        """Note that the map covers all keys up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)


def _short(key: bytes) -> bytes:
    # A hashed key is longer than any plain key, so the two cannot be confused.
    if len(key) <= LONGEST_PLAIN_KEY_BYTES:
        return key
    from hashlib import sha256  # imported lazily, for a faster start

    return b"#" + sha256(key).digest()
