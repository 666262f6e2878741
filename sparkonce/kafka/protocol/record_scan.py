"""Iterating over the records of a v2 batch without decoding them, and building a batch from some of them.

Compaction and validation need only a record's offset, its timestamp and its key, and whether it has a value. So a
record is not decoded here but located, and if it is kept, its bytes are copied. Only its timestamp may have to be
rewritten, because it is relative to the batch's base timestamp, which may change.

The result is that of Kafka's MemoryRecords.filterTo and MemoryRecordsBuilder: base offset and last offset of the batch
are kept, as are producer, sequence and leader epoch, and the records' offsets within it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from sparkonce.kafka.protocol.compression import Compression, compress, decompress, inflated_pieces
from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.limits import MAX_INFLATED_BYTES
from sparkonce.kafka.protocol.primitives import Buffer, put_varint
from sparkonce.kafka.protocol.records import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    pack_header,
    write_crc,
)

_DELETE_HORIZON = 0x40
_COMPRESSION_MASK = 0x07
_MAX_VARINT_BITS = 70
_MAX_HEAD_BYTES = 32
"""More than the size of a record's length, attributes, timestamp and offset."""
BYTES_PER_UNIT = 4096
RECORDS_PER_UNIT = 10
"""How many bytes are decompressed, or records skipped, for one unit of work (see `node.turns`)."""


class FoundRecord(NamedTuple):
    """One record of a batch: the fields that decide about it, and its position in the decompressed records.

    It is from `start` to `end`, without its length; `rest` is the position after its timestamp.
    """

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    start: int
    rest: int
    end: int


def inflate(batch: Buffer, header: BatchHeader, limit: int = MAX_INFLATED_BYTES) -> bytes:
    """Return the records of the batch, decompressed. Raises CorruptBatchError if impossible, or beyond `limit`."""
    return bytes(decompress(header.compression, memoryview(batch)[HEADER_BYTES : header.size], limit))


def find_records(header: BatchHeader, body: bytes, chunk: int) -> Iterator[list[FoundRecord]]:
    """Find the records in a batch's decompressed bytes, `chunk` at a time. Raises CorruptBatchError at a mismatch."""
    position = 0
    left = header.record_count
    if left < 0:
        raise CorruptBatchError(f"batch at offset {header.base_offset} claims {left} records")
    while left > 0:
        found = []
        for _ in range(min(left, chunk)):
            record = _find(header, body, position)
            found.append(record)
            position = record.end
        left -= len(found)
        yield found
    if position != len(body):
        raise CorruptBatchError(f"batch at offset {header.base_offset}: {len(body) - position} bytes after its records")


def first_since(
    batch: Buffer, header: BatchHeader, timestamp: int, start_offset: int
) -> Generator[int, None, tuple[int, int] | None]:
    """Find the first record from an offset on with a late enough timestamp; returns its timestamp and offset.

    The batch is decompressed piece by piece, no further than to that record; of the records before it only the first
    fields are read. Yields units of work.

    Raises:
        CorruptBatchError: if the bytes do not match the header, or decompress to more than the limit.
    """
    if header.record_count < 0:
        raise CorruptBatchError(f"batch at offset {header.base_offset} claims {header.record_count} records")
    pieces = inflated_pieces(header.compression, memoryview(batch)[HEADER_BYTES : header.size])
    body, position = b"", 0
    for index in range(header.record_count):
        if index % (100 * RECORDS_PER_UNIT) == 100 * RECORDS_PER_UNIT - 1:
            yield 100
        while len(body) - position < _MAX_HEAD_BYTES:
            piece = next(pieces, None)
            if piece is None:
                break
            # A piece within a record's value is not kept.
            body, position = body[position:] + bytes(piece), max(position - len(body), 0)
            yield 1 + len(piece) // BYTES_PER_UNIT
        size, start = _varint(body, position)
        delta, rest = _varint(body, start + 1)
        offset_delta, rest = _varint(body, rest)
        if rest > start + size:
            raise CorruptBatchError(f"batch at offset {header.base_offset}: record of {size} bytes ends in its head")
        found = header.max_timestamp if header.is_log_append_time else header.base_timestamp + delta
        if found >= timestamp and header.base_offset + offset_delta >= start_offset:
            return found, header.base_offset + offset_delta
        position = start + size
    return None


def _find(header: BatchHeader, body: bytes, position: int) -> FoundRecord:
    size, start = _varint(body, position)
    end = start + size
    if size < 0 or end > len(body):
        raise CorruptBatchError(f"batch at offset {header.base_offset}: record of {size} bytes reaches beyond its end")
    timestamp_delta, rest = _varint(body, start + 1)
    offset_delta, position = _varint(body, rest)
    key_size, position = _varint(body, position)
    key = None
    if key_size >= 0:
        key = body[position : position + key_size]
        position += key_size
    value_size, position = _varint(body, position)
    if position + max(value_size, 0) > end or key_size < -1 or value_size < -1:
        raise CorruptBatchError(f"batch at offset {header.base_offset}: key or value reaches beyond its record")
    timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp + timestamp_delta
    return FoundRecord(header.base_offset + offset_delta, timestamp, key, value_size >= 0, start, rest, end)


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint; returns it and its end."""
    try:
        byte = body[position]
        if byte < 0x80:  # nearly all of them
            return (byte >> 1) ^ -(byte & 1), position + 1
        value, shift = byte & 0x7F, 7
        while True:
            position += 1
            byte = body[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position + 1
            shift += 7
            if shift >= _MAX_VARINT_BITS:
                raise CorruptBatchError("a number in a record does not end")
    except IndexError:
        raise CorruptBatchError("a record ends in the middle of a number") from None


def rebuild(
    header: BatchHeader, body: bytes, kept: Sequence[FoundRecord], delete_horizon_ms: int | None, chunk: int
) -> Generator[None, None, bytearray]:
    """Rebuild the batch with only the records `kept` (at least one), in its own compression.

    A delete horizon (KIP-534) replaces the base timestamp. Yields after every `chunk` records.
    """
    base_timestamp = kept[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    latest = header.max_timestamp if header.is_log_append_time else max(record.timestamp for record in kept)
    records = bytearray()
    for index, record in enumerate(kept):
        head = bytearray(body[record.start : record.start + 1])
        put_varint(head, record.timestamp - base_timestamp)
        put_varint(records, len(head) + record.end - record.rest)
        records += head
        records += body[record.rest : record.end]
        if index % chunk == 0:
            yield None
    attributes = header.attributes & ~_DELETE_HORIZON | (0 if delete_horizon_ms is None else _DELETE_HORIZON)
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=latest, record_count=len(kept)
    )
    return with_records(changed, compress(header.compression, records))


def empty(header: BatchHeader) -> bytearray:
    """Rebuild the batch without records: only its offsets, producer and sequence are kept.

    As in Kafka's DefaultRecordBatch.writeEmptyHeader, compression, base timestamp and delete horizon are removed.
    """
    attributes = header.attributes & ~(_COMPRESSION_MASK | _DELETE_HORIZON)
    return with_records(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def recompress(header: BatchHeader, body: bytes, codec: Compression, level: int | None) -> bytearray:
    """Rebuild the batch with another compression."""
    attributes = header.attributes & ~_COMPRESSION_MASK | codec
    return with_records(header._replace(attributes=attributes), compress(codec, body, level))


def with_records(header: BatchHeader, packed: Buffer) -> bytearray:
    """Return a batch with this header and these records; length and checksum are computed."""
    assert header.magic == MAGIC
    batch = pack_header(header, HEADER_BYTES + len(packed))
    batch += packed
    write_crc(batch)
    return batch
