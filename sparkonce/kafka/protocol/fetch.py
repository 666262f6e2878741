"""Fetch, versions 4 to 18, both sides.

The response is a list of parts: pieces of header between slices of segment files, so that the server can pass the
slices to `sendfile` without building the response in memory. Version 13 names topics by id (KIP-516), version 15
has the follower's broker epoch (KIP-903). Deliberately absent: versions 0 to 3, with older message formats,
and the snapshot id of KRaft's own log.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.primitives import (
    Buffer,
    Reader,
    put_array_length,
    put_bytes_length,
    put_string,
    put_tagged_fields,
)
from sparkonce.kafka.protocol.produce import (
    LeaderHint,
    NodeEndpoint,
    encode_endpoints,
    leader_tag,
    put_topic,
    read_endpoints,
    read_leader,
    read_topic,
)

FLEXIBLE_FROM = 12
TOPIC_ID_FROM = 13
_ENDPOINTS_FROM = 16
_REPLICA_STATE_FROM = 15
_UNKNOWN_HIGH_WATERMARK = 2**63 - 1

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_REPLICA_STATE = struct.Struct(">iqb")
_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V4 = struct.Struct(">iqi")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESULT_V4 = struct.Struct(">ihqq")
_TOP_V7 = struct.Struct(">ihi")
_EPOCH_END = struct.Struct(">iqb")
_ABORTED = struct.Struct(">qq")


class FileSlice(Protocol):
    """A slice of a file; `size` is in bytes."""

    @property
    def size(self) -> int:
        """The size of the slice, in bytes."""


class FetchPartition(NamedTuple):
    """The request for one partition."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    high_watermark: int = _UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """The partitions of one topic; its name up to version 12, its id from version 13."""

    name: str
    topic_id: uuid.UUID
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to drop from a fetch session (KIP-227)."""

    name: str
    topic_id: uuid.UUID
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A Fetch request; `replica_id` is -1 for a consumer, session id 0 and epoch -1 mean no session."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: Sequence[FetchTopic]
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read_committed consumer must skip."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """The largest epoch after which a follower's log diverges, and where it ends."""

    epoch: int
    end_offset: int


class FetchPartitionResult(NamedTuple):
    """The result of one partition. On encoding, `records` may be a `FileSlice`; decoded, it is a slice of the body."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | FileSlice | None = b""
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderHint | None = None


class FetchTopicResult(NamedTuple):
    """The results of one topic."""

    name: str
    topic_id: uuid.UUID
    partitions: Sequence[FetchPartitionResult]


class FetchResponse(NamedTuple):
    """A Fetch response."""

    topics: Sequence[FetchTopicResult]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


Part = Buffer | FileSlice


def decode_request(version: int, body: Buffer) -> FetchRequest:
    """Decode a request's body. Raises ProtocolError if the body is not exactly one request."""
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(body)
    replica_id = reader.int32() if version < _REPLICA_STATE_FROM else -1
    replica_epoch = -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = reader.unpack(_LIMITS)
    session_id, session_epoch = reader.unpack(_SESSION) if version >= 7 else (0, -1)
    topics = []
    for _ in range(reader.array_length(flexible)):
        name, topic_id = read_topic(reader, version, flexible)
        partitions = [_read_partition(reader, version, flexible) for _ in range(reader.array_length(flexible))]
        if flexible:
            reader.tagged_fields()
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten = _read_forgotten(reader, version, flexible) if version >= 7 else ()
    rack_id = reader.string(flexible) if version >= 11 else ""
    if flexible:
        tags = reader.tagged_fields()
        if 1 in tags and version >= _REPLICA_STATE_FROM:
            state = Reader(tags[1])
            replica_id, replica_epoch = state.int32(), state.int64()
            state.tagged_fields()
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        topics,
        isolation_level,
        session_id,
        session_epoch,
        forgotten,
        rack_id,
        replica_id,
        replica_epoch,
    )


def encode_request(version: int, request: FetchRequest) -> bytearray:
    """Encode a request's body."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray()
    if version < _REPLICA_STATE_FROM:
        out += _INT32.pack(request.replica_id)
    out += _LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= 7:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    put_array_length(out, len(request.topics), flexible)
    for topic in request.topics:
        put_topic(out, version, flexible, topic.name, topic.topic_id)
        put_array_length(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _put_partition(out, version, flexible, partition)
        if flexible:
            out.append(0)
    if version >= 7:
        _put_forgotten(out, version, flexible, request.forgotten)
    if version >= 11:
        put_string(out, request.rack_id, flexible)
    if flexible:
        follower = version >= _REPLICA_STATE_FROM and request.replica_id >= 0
        state = {1: _REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0)} if follower else {}
        put_tagged_fields(out, state)
    return out


def encode_response(version: int, response: FetchResponse) -> list[Part]:
    """Encode a response's body as parts, to be sent one after the other; empty records add no part."""
    flexible = version >= FLEXIBLE_FROM
    parts: list[Part] = []
    out = bytearray(_INT32.pack(response.throttle_time_ms))
    if version >= 7:
        out = bytearray(_TOP_V7.pack(response.throttle_time_ms, response.error_code, response.session_id))
    put_array_length(out, len(response.topics), flexible)
    for topic in response.topics:
        put_topic(out, version, flexible, topic.name, topic.topic_id)
        put_array_length(out, len(topic.partitions), flexible)
        for result in topic.partitions:
            _put_result(out, version, flexible, result)
            records = result.records
            if records is not None:
                size = len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.size
                put_bytes_length(out, size, flexible)
                if size:
                    parts += (out, records)
                    out = bytearray()
            else:
                put_bytes_length(out, -1, flexible)
            if flexible:
                put_tagged_fields(out, _result_tags(result))
        if flexible:
            out.append(0)
    if flexible:
        hints = version >= _ENDPOINTS_FROM and response.node_endpoints
        put_tagged_fields(out, {0: encode_endpoints(response.node_endpoints)} if hints else {})
    if out:
        parts.append(out)
    return parts


def parts_size(parts: Sequence[Part]) -> int:
    """Return the total size of the parts, in bytes."""
    return sum(len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size for part in parts)


def decode_response(version: int, body: Buffer) -> FetchResponse:
    """Decode a response's body; records are slices of `body`. Raises ProtocolError if it is not one response."""
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(body)
    throttle_time_ms, error_code, session_id = reader.unpack(_TOP_V7) if version >= 7 else (reader.int32(), 0, 0)
    topics = []
    for _ in range(reader.array_length(flexible)):
        name, topic_id = read_topic(reader, version, flexible)
        partitions = [_read_result(reader, version, flexible) for _ in range(reader.array_length(flexible))]
        if flexible:
            reader.tagged_fields()
        topics.append(FetchTopicResult(name, topic_id, partitions))
    endpoints: Sequence[NodeEndpoint] = ()
    if flexible:
        tags = reader.tagged_fields()
        if 0 in tags:
            endpoints = read_endpoints(tags[0])
    reader.finish()
    return FetchResponse(topics, error_code, session_id, throttle_time_ms, endpoints)


def _read_partition(reader: Reader, version: int, flexible: bool) -> FetchPartition:
    epoch = fetched_epoch = log_start_offset = -1
    if version >= 12:
        index, epoch, offset, fetched_epoch, log_start_offset, max_bytes = reader.unpack(_PARTITION_V12)
    elif version >= 9:
        index, epoch, offset, log_start_offset, max_bytes = reader.unpack(_PARTITION_V9)
    elif version >= 5:
        index, offset, log_start_offset, max_bytes = reader.unpack(_PARTITION_V5)
    else:
        index, offset, max_bytes = reader.unpack(_PARTITION_V4)
    high_watermark = _UNKNOWN_HIGH_WATERMARK
    if flexible:
        tags = reader.tagged_fields()
        if 1 in tags and version >= 18:
            if len(tags[1]) != _INT64.size:
                raise ProtocolError(f"high watermark of {len(tags[1])} bytes in a fetch of partition {index}")
            (high_watermark,) = _INT64.unpack(tags[1])
    return FetchPartition(index, offset, max_bytes, epoch, fetched_epoch, log_start_offset, high_watermark)


def _put_partition(out: bytearray, version: int, flexible: bool, wanted: FetchPartition) -> None:
    index, offset, max_bytes, epoch, fetched_epoch, log_start_offset, high_watermark = wanted
    if version >= 12:
        out += _PARTITION_V12.pack(index, epoch, offset, fetched_epoch, log_start_offset, max_bytes)
    elif version >= 9:
        out += _PARTITION_V9.pack(index, epoch, offset, log_start_offset, max_bytes)
    elif version >= 5:
        out += _PARTITION_V5.pack(index, offset, log_start_offset, max_bytes)
    else:
        out += _PARTITION_V4.pack(index, offset, max_bytes)
    if flexible:
        known = version >= 18 and high_watermark != _UNKNOWN_HIGH_WATERMARK
        put_tagged_fields(out, {1: _INT64.pack(high_watermark)} if known else {})


def _read_forgotten(reader: Reader, version: int, flexible: bool) -> Sequence[ForgottenTopic]:
    forgotten = []
    for _ in range(reader.array_length(flexible)):
        name, topic_id = read_topic(reader, version, flexible)
        indexes = [reader.int32() for _ in range(reader.array_length(flexible))]
        if flexible:
            reader.tagged_fields()
        forgotten.append(ForgottenTopic(name, topic_id, indexes))
    return forgotten


def _put_forgotten(out: bytearray, version: int, flexible: bool, forgotten: Sequence[ForgottenTopic]) -> None:
    put_array_length(out, len(forgotten), flexible)
    for topic in forgotten:
        put_topic(out, version, flexible, topic.name, topic.topic_id)
        put_array_length(out, len(topic.partitions), flexible)
        for index in topic.partitions:
            out += _INT32.pack(index)
        if flexible:
            out.append(0)


def _put_result(out: bytearray, version: int, flexible: bool, result: FetchPartitionResult) -> None:
    out += _RESULT_V5.pack(*result[:5]) if version >= 5 else _RESULT_V4.pack(*result[:4])
    aborted = result.aborted_transactions
    if aborted is None:
        put_array_length(out, -1, flexible)
    else:
        put_array_length(out, len(aborted), flexible)
        for transaction in aborted:
            out += _ABORTED.pack(*transaction)
            if flexible:
                out.append(0)
    if version >= 11:
        out += _INT32.pack(result.preferred_read_replica)


def _result_tags(result: FetchPartitionResult) -> dict[int, bytes]:
    if result.diverging_epoch is None and result.current_leader is None:
        return {}
    tags = leader_tag(1, result.current_leader)
    if result.diverging_epoch is not None:
        tags[0] = _EPOCH_END.pack(*result.diverging_epoch, 0)
    return tags


def _read_result(reader: Reader, version: int, flexible: bool) -> FetchPartitionResult:
    fixed = reader.unpack(_RESULT_V5) if version >= 5 else (*reader.unpack(_RESULT_V4), -1)
    aborted = []
    for _ in range(reader.array_length(flexible)):
        aborted.append(AbortedTransaction(*reader.unpack(_ABORTED)))
        if flexible:
            reader.tagged_fields()
    preferred_read_replica = reader.int32() if version >= 11 else -1
    records = reader.nullable_bytes(flexible)
    diverging = leader = None
    if flexible:
        tags = reader.tagged_fields()
        if 0 in tags:
            end = Reader(tags[0])
            diverging = EpochEndOffset(end.int32(), end.int64())
            end.tagged_fields()
            end.finish()
        if 1 in tags:
            leader = read_leader(tags[1])
    index, error_code, high_watermark, last_stable_offset, log_start_offset = fixed
    return FetchPartitionResult(
        index,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        records,
        aborted,
        preferred_read_replica,
        diverging,
        leader,
    )
