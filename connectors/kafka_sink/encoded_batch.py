"""A record batch that is complete except for its producer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from sparkonce.kafka.protocol.records import MAX_SEQUENCE, decode_records, encode_batch, read_header

_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_CRC_POSITION, _ATTRIBUTES_POSITION, _PRODUCER_POSITION = 17, 21, 43
_TRANSACTIONAL = 0x10


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch, complete except for the producer and the checksum; it owns ``data``."""

    topic: str
    partition: int
    record_count: int
    data: bytearray

    def stamp(self, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool) -> None:
        """Write the producer of the batch, and its checksum; -1 three times is a producer without idempotence."""
        (attributes,) = _ATTRIBUTES.unpack_from(self.data, _ATTRIBUTES_POSITION)
        attributes = attributes | _TRANSACTIONAL if transactional else attributes & ~_TRANSACTIONAL
        _ATTRIBUTES.pack_into(self.data, _ATTRIBUTES_POSITION, attributes)
        _PRODUCER.pack_into(self.data, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
        _CRC.pack_into(self.data, _CRC_POSITION, crc32c(memoryview(self.data)[_ATTRIBUTES_POSITION:]))

    def sequence_after(self, base_sequence: int) -> int:
        """Return the sequence number of the batch that comes next in its partition."""
        return (base_sequence + self.record_count) & MAX_SEQUENCE


def split_batch(batch: EncodedBatch) -> tuple[tuple[EncodedBatch, EncodedBatch], int]:
    """Split a batch of several records into two; also returns the uncompressed size of the larger one.

    Slow, record by record: only for a topic that accepts less than expected.
    """
    records = decode_records(batch.data)
    middle = len(records) // 2
    codec = read_header(batch.data).compression
    parts = records[:middle], records[middle:]
    first, second = (
        EncodedBatch(batch.topic, batch.partition, len(part), encode_batch(part, compression=codec)) for part in parts
    )
    return (first, second), max(len(encode_batch(part)) for part in parts)
