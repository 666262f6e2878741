"""The records of `__transaction_state`: one for each change of a transactional id; the last of a key is valid.

The formats are Kafka's TransactionLogKey version 0 and TransactionLogValue, versions 0 (read) and 1 (read and
written); a null value removes the id.
"""

from __future__ import annotations

import struct

from sparkonce.broker_lite.coordinators.internal_topics import TRANSACTIONS_TOPIC as TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import (
    LEGACY,
    TopicPartition,
    Transaction,
    TransactionState,
)
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.primitives import Reader, put_array_length, put_string, put_tagged_fields
from sparkonce.kafka.protocol.records import NO_PRODUCER_ID, Record

_KEY_VERSION = 0
_VALUE_VERSION = 1
_FIRST_FLEXIBLE_VERSION = 1
_PREVIOUS_PRODUCER_ID_TAG = 0
_NEXT_PRODUCER_ID_TAG = 1
_CLIENT_VERSION_TAG = 2
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")

_STATUS = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
)
"""The states by their numbers."""


def encode(transaction: Transaction, timestamp_ms: int) -> Record:
    """Return the record of one change."""
    status = _STATUS.index(transaction.state)
    head = (_VALUE_VERSION, transaction.producer_id, transaction.epoch, transaction.timeout_ms, status)
    out = bytearray(_HEAD.pack(*head))
    if transaction.state is TransactionState.EMPTY:
        put_array_length(out, -1, flexible=True)
    else:
        _put_partitions(out, transaction.partitions)
    out += _TIMES.pack(transaction.last_update_ms, transaction.start_ms)
    tags: dict[int, bytes] = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID_TAG] = _INT64.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID_TAG] = _INT64.pack(transaction.next_producer_id)
    if transaction.client_version != LEGACY:
        tags[_CLIENT_VERSION_TAG] = _INT16.pack(transaction.client_version)
    put_tagged_fields(out, tags)
    return Record(_encode_key(transaction.transactional_id), bytes(out), timestamp_ms)


def encode_tombstone(transactional_id: str, timestamp_ms: int) -> Record:
    """Return the tombstone of a transactional id."""
    return Record(_encode_key(transactional_id), None, timestamp_ms)


def _encode_key(transactional_id: str) -> bytes:
    key = bytearray(_INT16.pack(_KEY_VERSION))
    put_string(key, transactional_id, flexible=False)
    return bytes(key)


def _put_partitions(out: bytearray, partitions: frozenset[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    put_array_length(out, len(by_topic), flexible=True)
    for topic, indexes in by_topic.items():
        put_string(out, topic, flexible=True)
        put_array_length(out, len(indexes), flexible=True)
        for index in indexes:
            out += _INT32.pack(index)
        put_tagged_fields(out, {})


def decode_key(data: bytes | None) -> str | None:
    """Parse a record's key; None for a version of a later Kafka. Raises ProtocolError if it is malformed."""
    if data is None:
        raise ProtocolError(f"a record of {TRANSACTIONS_TOPIC} without a key")
    reader = Reader(data)
    if reader.int16() != _KEY_VERSION:
        return None
    return reader.string(flexible=False)


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """Parse a record's value. Raises ProtocolError if it is malformed or of an unknown version."""
    reader = Reader(data)
    version, producer_id, epoch, timeout_ms, status = reader.unpack(_HEAD)
    if not 0 <= version <= _VALUE_VERSION:
        raise ProtocolError(f"value of version {version} in {TRANSACTIONS_TOPIC}; up to {_VALUE_VERSION} is read")
    if not 0 <= status < len(_STATUS):
        raise ProtocolError(f"state {status} of transactional id {transactional_id}")
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    partitions: set[TopicPartition] = set()
    for _ in range(reader.array_length(flexible)):
        topic = reader.string(flexible)
        partitions |= {(topic, reader.int32()) for _ in range(reader.array_length(flexible))}
        if flexible:
            reader.tagged_fields()
    last_update_ms, start_ms = reader.unpack(_TIMES)
    tags = reader.tagged_fields() if flexible else {}
    reader.finish()
    return Transaction(
        transactional_id,
        producer_id,
        timeout_ms,
        _STATUS[status],
        epoch,
        previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID_TAG, _INT64, NO_PRODUCER_ID),
        next_producer_id=_tag(tags, _NEXT_PRODUCER_ID_TAG, _INT64, NO_PRODUCER_ID),
        partitions=frozenset(partitions),
        start_ms=start_ms,
        last_update_ms=last_update_ms,
        client_version=_tag(tags, _CLIENT_VERSION_TAG, _INT16, LEGACY),
    )


def _tag(tags: dict[int, memoryview], tag: int, layout: struct.Struct, default: int) -> int:
    if tag not in tags:
        return default
    reader = Reader(tags[tag])
    (value,) = reader.unpack(layout)
    reader.finish()
    return value
