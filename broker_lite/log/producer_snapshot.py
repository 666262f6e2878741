"""The `.snapshot` file: the state of a partition's idempotent producers at one offset, in Kafka's format.

Version 1 (the only one of Kafka 4.3, ProducerSnapshot.json): version, CRC-32C of all that follows it, then 46 bytes
for each producer with its last batch. So of the last five batches only the last survives a restart, as in Kafka.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable

from crc32c import crc32c

from sparkonce.broker_lite.log.producer_state import BATCHES_KEPT, AppendedBatch, ProducerEntry
from sparkonce.kafka.protocol.records import NO_SEQUENCE

VERSION = 1
SUFFIX = ".snapshot"

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """A snapshot that cannot be read; the state is rebuilt from an older one and the log."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the file's content."""
    packed = [_pack(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Read a file's content. Raises CorruptSnapshotError if version, checksum or length is wrong."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != VERSION:
        raise CorruptSnapshotError(f"version {version}; only {VERSION} is read")
    if crc32c(body) != crc:
        raise CorruptSnapshotError("the checksum is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} producers in {len(body)} bytes")
    return [_unpack(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _pack(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else AppendedBatch(NO_SEQUENCE, -1, 0, entry.last_timestamp_ms)
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )


def _unpack(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, transaction_start = fields
    batches: deque[AppendedBatch] = deque(maxlen=BATCHES_KEPT)
    if last_offset >= 0:  # a group coordinator's batch for the producer has an offset, but no sequence
        batches.append(AppendedBatch(last_sequence, last_offset, delta, timestamp_ms))
    return ProducerEntry(producer_id, epoch, batches, timestamp_ms, coordinator_epoch, transaction_start)
