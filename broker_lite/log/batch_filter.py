"""What compaction makes of one batch: it stays as it is, loses records, loses all of them, or goes.

A record stays if it is the latest of its key; a record without a value, a tombstone, stays until its batch's delete
horizon, which the first compaction that meets it writes into the batch: the time then, and `delete.retention.ms` more
(KIP-534). The same holds for markers of empty transactions. A batch that has lost all its records stays as a header if
it holds the last sequence number of an active producer, or the last offset of what is compacted: neither must be
forgotten. Offsets never change. The rules are those of Kafka's Cleaner and MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparkonce.broker_lite.log.offset_map import OffsetMap
from sparkonce.broker_lite.protocol.compression import Compression
from sparkonce.broker_lite.protocol.legacy_records import decode_any, encode_message_set
from sparkonce.broker_lite.protocol.record_scan import FoundRecord, empty, find_records, inflate, rebuild
from sparkonce.broker_lite.protocol.records import MAGIC, BatchHeader

RECORDS_PER_STEP = 256
"""How many records are looked at before others get their turn."""


class LastRecord(NamedTuple):
    """What is known last of an active producer: the offset of its last data, or else the epoch of its last marker."""

    data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningRound:
    """What decides about every batch of one round of cleaning."""

    offset_map: OffsetMap
    now_ms: int
    delete_retention_ms: int
    upper_bound_offset: int
    """The end of what is cleaned; the batch that ends there stays, if only as a header."""
    last_records: Mapping[int, LastRecord]
    """By producer id, for the active ones."""


def filter_batch(
    cleaning: CleaningRound, batch: bytes, header: BatchHeader, discardable: bool, keep_old_tombstones: bool
) -> Generator[None, None, bytes | bytearray | None]:
    """Yield what stays of a batch, None for nothing; yields now and then, for the work may be long.

    `discardable`: the batch is data of an aborted transaction, or a marker whose transaction is empty.
    `keep_old_tombstones`: tombstones of the formats before v2, which have no horizon, stay.

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
    """Whether a record stays; `living`: it has a value, or is a tombstone whose time has not come."""
    offset_map = cleaning.offset_map
    if offset > offset_map.latest_offset:
        return True
    return living and key is not None and offset >= offset_map.get(key)


def _filter_messages(
    cleaning: CleaningRound, batch: bytes, header: BatchHeader, keep_tombstones: bool
) -> bytes | bytearray | None:
    """Filter a message or a compressed message set of format v0 or v1, which stays in its format."""
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
