"""ListOffsets v1 to v11, the client's side, hand-written: every micro-batch requests it for every partition.

The generated codecs create an object for each partition in the request and another in the response, which for a topic
of a thousand partitions is a good part of planning a batch. Absent: v0, of Kafka 0.10.

Source: ListOffsetsRequest.json and ListOffsetsResponse.json of Apache Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import Buffer, Reader, put_array_length, put_string, put_tagged_fields

ISOLATION_FROM, EPOCH_FROM, FLEXIBLE_FROM, TIMEOUT_FROM = 2, 4, 6, 10
_CONSUMER = -1
"""The replica id of a consumer."""

Asked = tuple[int, int, int]
"""A partition, its leader's epoch, and a timestamp."""

_ASKED, _ASKED_WITH_EPOCH = struct.Struct(">iq"), struct.Struct(">iiq")
_FOUND, _FOUND_WITH_EPOCH = struct.Struct(">ihqq"), struct.Struct(">ihqqi")


def encode_request(
    version: int, topics: Mapping[str, Sequence[Asked]], *, read_committed: bool, timeout_ms: int
) -> bytearray:
    """Encode a request's body."""
    flexible, with_epoch = version >= FLEXIBLE_FROM, version >= EPOCH_FROM
    out = bytearray(struct.pack(">i", _CONSUMER))
    if version >= ISOLATION_FROM:
        out.append(read_committed)
    put_array_length(out, len(topics), flexible)
    end = b"\0" if flexible else b""
    for name, partitions in topics.items():
        put_string(out, name, flexible)
        put_array_length(out, len(partitions), flexible)
        for partition, epoch, timestamp in partitions:
            if with_epoch:
                out += _ASKED_WITH_EPOCH.pack(partition, epoch, timestamp)
            else:
                out += _ASKED.pack(partition, timestamp)
            out += end
        out += end
    if version >= TIMEOUT_FROM:
        out += struct.pack(">i", timeout_ms)
    if flexible:
        put_tagged_fields(out, {})
    return out


def decode_response(version: int, body: Buffer, *, skip_errors: bool = False) -> dict[tuple[str, int], int]:
    """Return the offset of each topic and partition in a response's body, -1 if none has the timestamp.

    Raises:
        KafkaError: the error of the first partition that has one; with ``skip_errors`` such partitions are omitted.
        ProtocolError: if the body is not exactly one such response.
    """
    flexible = version >= FLEXIBLE_FROM
    layout = _FOUND_WITH_EPOCH if version >= EPOCH_FROM else _FOUND
    reader = Reader(body)
    if version >= ISOLATION_FROM:
        reader.int32()  # throttle time
    found: dict[tuple[str, int], int] = {}
    for _ in range(reader.array_length(flexible)):
        name = reader.string(flexible)
        for _ in range(reader.array_length(flexible)):
            partition, code, _, offset, *_ = reader.unpack(layout)
            if not code:
                found[name, partition] = offset
            elif not skip_errors:
                raise KafkaError(ErrorCode.of(code), f"offsets of {name}-{partition}")
            if flexible:
                reader.tagged_fields()
        if flexible:
            reader.tagged_fields()
    if flexible:
        reader.tagged_fields()
    reader.finish()
    return found
