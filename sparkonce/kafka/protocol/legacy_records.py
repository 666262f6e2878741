"""Messages of formats v0 and v1, from brokers before 0.11: read wherever a log has them.

A message is a batch of its own: offset, length, CRC-32, magic, attributes, in v1 a timestamp, then key and value. A
compressed message set is one message whose value is the compressed messages. Its offset is that of its last message;
inside, v0 has absolute offsets, v1 those relative to the first (KIP-31). In v1 the wrapper's timestamp is the latest
of those inside or, with the attribute for it, the broker's time for all of them (KIP-32).

No client that Kafka 4 serves writes these formats (KIP-724): Produce begins with version 3, which is format v2 only.
But a log from an older broker may have them, in front of newer batches, and so they are read, recovered, compacted
and served unchanged. The layout is that of Kafka's LegacyRecord and AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Sequence

from sparkonce.kafka.protocol import record_scan, records
from sparkonce.kafka.protocol.compression import Compression, compress, decompress, with_lz4_header_checksum
from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.limits import MAX_INFLATED_BYTES
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import (
    LEGACY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    Record,
    read_header,
)

CRC_POSITION = 12
_CHECKED_FROM = 16
"""The position of the magic, at which the checksum begins."""
_HEAD = struct.Struct(">qiI")
_CRC = struct.Struct(">I")
_SIZE = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_COMPRESSION_MASK = 0x07
_V1_EXTRA_BYTES = 8
_FIRST_FIELD = 18


def check_any(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check length, magic and checksum of the batch at `position`, of any format. Raises CorruptBatchError."""
    if header.magic == MAGIC or header.magic not in (0, 1):
        records.check_whole(buffer, position, header)
        return
    _check_length(header)
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatchError(f"message of {header.size} bytes, but only {len(buffer) - position} are there")
    found = zlib.crc32(memoryview(buffer)[position + _CHECKED_FROM : end])
    if found != header.crc:
        raise CorruptBatchError(
            f"message at offset {header.base_offset}: checksum is {found:#010x}, its header says {header.crc:#010x}"
        )


def decode_any(batch: Buffer, inflated_limit: int = MAX_INFLATED_BYTES) -> list[Record]:
    """Decode one batch of any format. Raises CorruptBatchError if it is damaged, or decompresses to too many bytes."""
    header = read_header(batch)
    if header.magic >= MAGIC or header.magic < 0:
        return records.decode_records(batch, inflated_limit)
    message = _decode_message(batch, header)
    if not header.compression:
        return [message]
    return _decode_wrapped(header, message, inflated_limit)


def first_since(batch: Buffer, timestamp: int, start_offset: int) -> Generator[int, None, tuple[int, int] | None]:
    """Find the first record, of any format, from an offset on with a late enough timestamp: see `record_scan`.

    All messages of an old format are decoded: their offsets follow from the last one. No client writes them any more.
    """
    header = read_header(batch)
    if header.magic >= MAGIC or header.magic < 0:
        return (yield from record_scan.first_since(batch, header, timestamp, start_offset))
    messages = decode_any(batch)
    yield 1 + len(messages) // record_scan.RECORDS_PER_UNIT
    late = (each for each in messages if each.timestamp >= timestamp and each.offset >= start_offset)
    return next(((each.timestamp, each.offset) for each in late), None)


def encode_message_set(
    messages: Sequence[Record],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Build messages, in one wrapper if compressed. Raises ValueError without records or for a newer codec."""
    if not messages:
        raise ValueError("a message set needs at least one message")
    if compression == Compression.ZSTD:
        raise ValueError("zstd came after these formats")
    timed = LOG_APPEND_TIME if magic == 1 and log_append_time_ms is not None else 0
    base = messages[0].offset if magic == 1 and compression else 0
    inside = bytearray()
    for message in messages:
        timestamp = message.timestamp if log_append_time_ms is None else log_append_time_ms
        _put_message(inside, magic, timed, message.offset - base, timestamp, message.key, message.value)
    if not compression:
        return inside
    latest = max(message.timestamp for message in messages) if log_append_time_ms is None else log_append_time_ms
    wrapper = bytearray()
    packed = bytes(compress(compression, inside))
    if compression == Compression.LZ4 and magic == 0:
        packed = with_lz4_header_checksum(packed, over_magic=True)
    _put_message(wrapper, magic, compression | timed, messages[-1].offset, latest, None, packed)
    return wrapper


def _put_message(
    out: bytearray, magic: int, attributes: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None
) -> None:
    checked = bytearray((magic, attributes))
    if magic == 1:
        checked += _TIMESTAMP.pack(timestamp)
    for field in (key, value):
        checked += _SIZE.pack(-1 if field is None else len(field))
        checked += field or b""
    out += _HEAD.pack(offset, _CRC.size + len(checked), zlib.crc32(checked))
    out += checked


def _check_length(header: BatchHeader) -> None:
    least = LEGACY_HEADER_BYTES + header.magic * _V1_EXTRA_BYTES
    if header.size < least:
        raise CorruptBatchError(f"message at offset {header.base_offset} of {header.size} bytes; {least} is the least")


def _decode_message(buffer: Buffer, header: BatchHeader) -> Record:
    _check_length(header)
    if header.size > len(buffer):
        raise CorruptBatchError(f"message of {header.size} bytes, but only {len(buffer)} are there")
    position = _FIRST_FIELD + header.magic * _V1_EXTRA_BYTES
    key, position = _field(buffer, position, header.size)
    value, position = _field(buffer, position, header.size)
    if position != header.size:
        raise CorruptBatchError(f"message at offset {header.base_offset}: {header.size - position} bytes after it")
    return Record(key, value, header.max_timestamp, (), header.base_offset)


def _field(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    start = position + _SIZE.size
    if start > end:
        raise CorruptBatchError("message ends before its key or value")
    (size,) = _SIZE.unpack_from(buffer, position)
    if size == -1:
        return None, start
    if not 0 <= size <= end - start:
        raise CorruptBatchError(f"message claims a key or value of {size} bytes; {end - start} are left")
    return bytes(buffer[start : start + size]), start + size


def _decode_wrapped(header: BatchHeader, wrapper: Record, limit: int) -> list[Record]:
    if wrapper.value is None:
        raise CorruptBatchError(f"compressed message set at offset {header.base_offset} without a value")
    if header.compression == Compression.ZSTD:
        raise CorruptBatchError(f"message set at offset {header.base_offset}: zstd is not of these formats")
    packed = wrapper.value
    if header.compression == Compression.LZ4 and header.magic == 0:
        packed = with_lz4_header_checksum(packed, over_magic=False)
    inflated = memoryview(decompress(header.compression, packed, limit))
    inside = []
    position = 0
    while len(inflated) - position >= LEGACY_HEADER_BYTES:
        inner = read_header(inflated, position)
        if inner.magic != header.magic or inner.attributes & _COMPRESSION_MASK:
            raise CorruptBatchError(f"message of magic {inner.magic} inside a set of magic {header.magic}, or a set")
        if inner.size > len(inflated) - position:
            break  # old brokers could cut the last message of a set; clients drop it
        inside.append(_decode_message(inflated[position : position + inner.size], inner))
        position += inner.size
    if not inside:
        raise CorruptBatchError(f"compressed message set at offset {header.base_offset} holds no message")
    base = 0
    if header.magic == 1 and header.base_offset != 0:  # 0: some old clients sent it, and it was never corrected
        base = header.base_offset - inside[-1].offset
        if base < 0:
            raise CorruptBatchError(f"message set at offset {header.base_offset} ends at {inside[-1].offset}")
    timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME and header.magic == 1 else None
    return [
        Record(each.key, each.value, each.timestamp if timestamp is None else timestamp, (), base + each.offset)
        for each in inside
    ]
