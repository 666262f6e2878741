"""Record batches of format v2: the unit that producers send, the log stores and consumers get.

To the broker a batch is opaque. It reads the 61-byte header, checks the CRC-32C, and writes the base offset and the
partition leader epoch into the bytes in place; both lie outside the checksum, which begins at the attributes. Records
are decoded only where their content is needed: tools, tests, group metadata, lookups by timestamp.

The layout is that of Kafka's DefaultRecordBatch and DefaultRecord.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from sparkonce.kafka.protocol.compression import compress, decompress
from sparkonce.kafka.protocol.errors import CorruptBatchError, ProtocolError
from sparkonce.kafka.protocol.limits import MAX_INFLATED_BYTES, MAX_RECORD_HEADERS
from sparkonce.kafka.protocol.primitives import Buffer, Reader, put_varint

MAGIC = 2
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""The size of base offset and length, which the length does not include."""
LEGACY_HEADER_BYTES = 26
"""The size of the smallest message of format v0; v1 adds a timestamp of eight bytes."""
ATTRIBUTES_POSITION = 21
"""The position at which the checksum begins."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1

LOG_APPEND_TIME = 0x08
"""The attribute bit for LogAppendTime: `max_timestamp` is the broker's time for all records."""
_COMPRESSION_MASK = 0x07
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LEGACY_HEADER = struct.Struct(">qiIbb")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_CONTROL_KEY = struct.Struct(">hh")
_CRC_POSITION = 17
_MAGIC_POSITION = 16
_LEADER_EPOCH_POSITION = 12
_MAX_TIMESTAMP_POSITION = 35

assert _HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The header of one batch, in the order of its fields in the file; times in milliseconds since 1970."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch, in bytes."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record (kept even when compaction has removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the broker's time for all records, not the producer's for each."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a control batch (a transaction's marker), which consumers never show."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones or its marker (KIP-534); None if not set yet.

        It replaces the base timestamp in the header.
        """
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, which wraps from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


class ControlType(IntEnum):
    """The type of a control record."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `timestamp` in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at `position`; only its presence is checked.

    For a message of format v0 or v1 missing fields have defaults; its base offset is its last offset, since the first
    offset of a compressed message set is inside it.

    Raises:
        CorruptBatchError: if fewer than `HEADER_BYTES` bytes are there (`LEGACY_HEADER_BYTES` of a message).
    """
    try:
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
        return header if header.magic >= MAGIC else _legacy_header(buffer, position)
    except struct.error:
        if len(buffer) - position >= LEGACY_HEADER_BYTES and buffer[position + _MAGIC_POSITION] < MAGIC:
            return _legacy_header(buffer, position)
        raise CorruptBatchError(f"{len(buffer) - position} bytes are too few for a batch's header") from None


def _legacy_header(buffer: Buffer, position: int) -> BatchHeader:
    offset, length, crc, magic, attributes = _LEGACY_HEADER.unpack_from(buffer, position)
    timestamp = NO_TIMESTAMP
    if magic == 1 and len(buffer) - position >= LEGACY_HEADER_BYTES:
        (timestamp,) = _MAX_TIMESTAMP.unpack_from(buffer, position + _LEGACY_HEADER.size)
    return BatchHeader(
        offset, length, NO_LEADER_EPOCH, magic, crc, attributes, 0, timestamp, timestamp,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, -1,
    )  # fmt: skip


def scan(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over whole batches of `buffer`: positions and headers. Raises CorruptBatchError if one is bad."""
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
        _check_shape(header)
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if size > end - position:
            return
        yield position, header
        position += size


def validate(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Check length, magic and CRC-32C of the batch at `position`; return its header. Raises CorruptBatchError."""
    header = read_header(buffer, position)
    check_whole(buffer, position, header)
    return header


def check_whole(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check the whole batch at `position`, whose header is known, as `validate` does."""
    _check_shape(header)
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    if end > len(buffer):
        raise CorruptBatchError(f"batch of {header.size} bytes, but only {len(buffer) - position} are there")
    found = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if found != header.crc:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset}: checksum is {found:#010x}, its header says {header.crc:#010x}"
        )


def _check_shape(header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptBatchError(f"batch at offset {header.base_offset} has magic {header.magic}; only {MAGIC} is read")
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise CorruptBatchError(f"batch at offset {header.base_offset} claims a length of {header.batch_length}")


def set_base_offset(buffer: bytearray | memoryview, offset: int, position: int = 0) -> None:
    """Write the offset of the first record into the batch at `position`."""
    _BASE_OFFSET.pack_into(buffer, position, offset)


def set_partition_leader_epoch(buffer: bytearray | memoryview, leader_epoch: int, position: int = 0) -> None:
    """Write the leader epoch into the batch at `position`."""
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """Build a batch of records, whose offsets become `base_offset` and up. Raises ValueError if there is none."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    body = bytearray()
    for delta, record in enumerate(records):
        _put_record(body, record, delta, record.timestamp - base_timestamp)
    packed = compress(compression, body)
    attributes = compression | (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
    header = _HEADER.pack(
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch = bytearray(header) + packed
    write_crc(batch)
    return batch


def pack_header(header: BatchHeader, size: int) -> bytearray:
    """Return the bytes of a header, for a batch of `size` bytes in all; `write_crc` adds the checksum."""
    return bytearray(_HEADER.pack(*header._replace(batch_length=size - LOG_OVERHEAD_BYTES, crc=0)))


def write_crc(batch: bytearray | memoryview) -> None:
    """Compute the checksum of the one batch in `batch` and write it into its header."""
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))


def set_log_append_time(batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Set the timestamp of all records of the one batch in `batch` to `now_ms`, in place; returns the new header."""
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    write_crc(batch)
    return header._replace(attributes=attributes, max_timestamp=now_ms)


def clear_log_append_time(batch: bytearray | memoryview, header: BatchHeader) -> BatchHeader:
    """Clear the LogAppendTime bit of the one batch in `batch`, in place; return the new header."""
    attributes = header.attributes & ~LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    write_crc(batch)
    return header._replace(attributes=attributes)


def decode_records(batch: Buffer, inflated_limit: int = MAX_INFLATED_BYTES) -> list[Record]:
    """Decode the one batch in `batch`, decompressing it if needed; the checksum is not checked (see `validate`).

    Raises:
        CorruptBatchError: if the records do not match the header, or decompress to more than the limit in bytes.
    """
    header = read_header(batch)
    _check_shape(header)
    if header.size > len(batch):
        raise CorruptBatchError(f"batch of {header.size} bytes, but only {len(batch)} are there")
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    reader = Reader(decompress(header.compression, packed, inflated_limit))
    if not 0 <= header.record_count <= reader.remaining:
        raise CorruptBatchError(f"{header.record_count} records in {reader.remaining} bytes")
    try:
        records = [_read_record(reader, header) for _ in range(header.record_count)]
        reader.finish()
    except ProtocolError as error:
        raise CorruptBatchError(f"batch at offset {header.base_offset}: {error}") from error
    return records


def decode_all(buffer: Buffer) -> Iterable[Record]:
    """Decode the records of all whole batches in `buffer`, without control batches."""
    view = memoryview(buffer)
    for position, header in scan(buffer):
        if not header.is_control:
            yield from decode_records(view[position : position + header.size])


def control_type(record: Record) -> ControlType | None:
    """Return a control record's type, None if clients skip it. Raises CorruptBatchError if its key is too short."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptBatchError(f"control record at offset {record.offset} has no type in its key")
    kind = _CONTROL_KEY.unpack_from(record.key)[1]
    return ControlType(kind) if kind in (ControlType.ABORT, ControlType.COMMIT) else None


def _put_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(b"\0")
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    for data in (record.key, record.value):
        _put_nullable(body, data)
    put_varint(body, len(record.headers))
    for name, value in record.headers:
        _put_nullable(body, name.encode())
        _put_nullable(body, value)
    put_varint(out, len(body))
    out += body


def _put_nullable(out: bytearray, data: bytes | None) -> None:
    put_varint(out, -1 if data is None else len(data))
    if data:
        out += data


def _read_record(reader: Reader, header: BatchHeader) -> Record:
    size = reader.varint()
    body = Reader(reader.take(size))
    body.int8()  # attributes, unused
    timestamp_delta = body.varlong()
    offset_delta = body.varint()
    key = _read_nullable(body)
    value = _read_nullable(body)
    count = body.varint()
    if not 0 <= count <= min(body.remaining, MAX_RECORD_HEADERS):
        raise ProtocolError(f"record claims {count} headers")
    headers = tuple([_read_record_header(body) for _ in range(count)])
    body.finish()
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(key, value, timestamp, headers, header.base_offset + offset_delta)


def _read_record_header(reader: Reader) -> tuple[str, bytes | None]:
    name = _read_nullable(reader)
    if name is None:
        raise ProtocolError("record header without a name")
    try:
        return name.decode(), _read_nullable(reader)
    except UnicodeDecodeError as error:
        raise ProtocolError(f"record header's name is not UTF-8: {error.reason}") from None


def _read_nullable(reader: Reader) -> bytes | None:
    size = reader.varint()
    return None if size == -1 else bytes(reader.take(size))
