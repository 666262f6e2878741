"""Committed offsets, and their records.

Theory of operation: a commit becomes records in Kafka's own formats (OffsetCommitKey v1, OffsetCommitValue v4) in the
topic `__consumer_offsets`; the last record of a key is valid, and a null value removes it. A commit is appended there
before it is acknowledged, so that replaying the topic at the start restores all acknowledged commits. Records with
other keys are groups (`group_records.py`) and are ignored here. Values of versions 0 to 4 are read; the expiry time of
version 1 is ignored: the broker's retention applies, as in Kafka for all commits since OffsetCommit v5.

A commit within a transaction is in `__consumer_offsets` already, in a transactional batch, but is not visible before
the marker that ends the transaction there (`PendingOffsets`). A commit marker makes it visible, unless a later commit
of the same key became visible before; an abort marker drops it. Until then, readers that require stable offsets must
retry (KIP-447). A marker applies to its own partition of `__consumer_offsets` only: others may hold an older one, or
none yet. The rules are those of Kafka's OffsetMetadataManager, of which there is one for each partition.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from sparkonce.broker_lite.coordinators.internal_topics import OFFSETS_TOPIC as OFFSETS_TOPIC
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.primitives import ZERO_UUID, Reader, put_string, put_tagged_fields
from sparkonce.kafka.protocol.records import Record

_KEY_VERSIONS = (0, 1)
_KEY_VERSION = 1
_VALUE_VERSION = 4
_LEADER_EPOCH_FROM = 3
_EXPIRY_VERSION = 1
_FLEXIBLE_FROM = 4
_TOPIC_ID_TAG = 0
_HASHES_KEPT = 16_384
"""The number of groups and transactional ids whose partition is cached: every request needs it."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqi")
_TIMESTAMP = struct.Struct(">q")


class CommittedOffset(NamedTuple):
    """A group's committed offset of one partition; the time is in milliseconds since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    topic_id: uuid.UUID = ZERO_UUID
    """The topic id at the time of the commit; zero if unknown."""

    def is_for(self, topic_id: uuid.UUID) -> bool:
        """Whether the offset belongs to this topic, as far as known, and not to an earlier one of its name."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


class OffsetKey(NamedTuple):
    """Group, topic and partition of an offset."""

    group_id: str
    topic: str
    partition: int


class OffsetTable:
    """All committed offsets, by group and then by topic and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def put(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        """Apply a commit or, with None, a removal."""
        if value is not None:
            self._groups.setdefault(key.group_id, {})[key.topic, key.partition] = value
            return
        offsets = self._groups.get(key.group_id)
        if offsets is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self._groups[key.group_id]

    def of_group(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return a group's offsets by topic and partition; empty if there are none."""
        return self._groups.get(group_id, {})

    def groups(self) -> list[str]:
        """Return the ids of the groups that have offsets."""
        return list(self._groups)

    def update(self, other: OffsetTable) -> None:
        """Add all entries of another table."""
        for group_id, offsets in other._groups.items():
            self._groups.setdefault(group_id, {}).update(offsets)

    def drop_group(self, group_id: str) -> None:
        """Remove a group."""
        self._groups.pop(group_id, None)

    def keys_of_topic(self, topic: str) -> list[OffsetKey]:
        """Return every key of a topic, for when it is deleted."""
        return [OffsetKey(g, t, p) for g, offsets in self._groups.items() for t, p in offsets if t == topic]

    def replay(self, records: Iterable[Record]) -> None:
        """Apply records of the offsets topic, oldest first. Raises ProtocolError for a malformed one of known type."""
        for record in records:
            key = decode_key(record.key)
            if key is not None:
                self.put(key, None if record.value is None else decode_value(record.value))


def encode(key: OffsetKey, value: CommittedOffset | None, timestamp_ms: int) -> Record:
    """Return the record of one commit, or the tombstone of a removal."""
    key_bytes = bytearray(_INT16.pack(_KEY_VERSION))
    put_string(key_bytes, key.group_id, flexible=False)
    put_string(key_bytes, key.topic, flexible=False)
    key_bytes += _INT32.pack(key.partition)
    if value is None:
        return Record(bytes(key_bytes), None, timestamp_ms)
    value_bytes = bytearray(_VALUE_HEAD.pack(_VALUE_VERSION, value.offset, value.leader_epoch))
    put_string(value_bytes, value.metadata, flexible=True)
    value_bytes += _TIMESTAMP.pack(value.commit_timestamp_ms)
    put_tagged_fields(value_bytes, {} if value.topic_id == ZERO_UUID else {_TOPIC_ID_TAG: value.topic_id.bytes})
    return Record(bytes(key_bytes), bytes(value_bytes), timestamp_ms)


def decode_key(data: bytes | None) -> OffsetKey | None:
    """Parse a record's key; None if it is not that of a committed offset."""
    if data is None or len(data) < _INT16.size:
        return None
    reader = Reader(data)
    if reader.int16() not in _KEY_VERSIONS:
        return None
    return OffsetKey(reader.string(flexible=False), reader.string(flexible=False), reader.int32())


def decode_value(data: bytes) -> CommittedOffset:
    """Parse a record's value. Raises ProtocolError if its version is unknown."""
    reader = Reader(data)
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise ProtocolError(f"committed offset of version {version}; versions 0 to {_VALUE_VERSION} are read")
    flexible = version >= _FLEXIBLE_FROM
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= _LEADER_EPOCH_FROM else -1
    metadata, timestamp_ms = reader.string(flexible), reader.int64()
    if version == _EXPIRY_VERSION:
        reader.int64()
    topic_id = reader.tagged_fields().get(_TOPIC_ID_TAG) if flexible else None
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        timestamp_ms,
        ZERO_UUID if topic_id is None else uuid.UUID(bytes=bytes(topic_id)),
    )


def java_length(text: str | None) -> int:
    """Return how long Java says a text is, which is what Kafka compares with `offset.metadata.max.bytes`."""
    return len((text or "").encode("utf-16-be", "surrogatepass")) // 2


@lru_cache(maxsize=_HASHES_KEPT)
def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of the offsets topic that keeps a group, as Kafka does (Java's String.hashCode)."""
    utf16 = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack(">H", utf16):
        code = (31 * code + unit) & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code  # the absolute value, except that Kafka maps the least integer to 0
    return code % partitions if code != 1 << 31 else 0


class _Open(NamedTuple):
    """A producer's transaction in one partition of `__consumer_offsets`."""

    partition: int
    producer_id: int


class PendingOffsets:
    """The pending records of open transactions, by partition and producer id."""

    def __init__(self) -> None:
        # None: the record may no longer become visible; its key is unstable all the same.
        self._waiting: dict[_Open, dict[OffsetKey, Record | None]] = {}
        self._open: dict[OffsetKey, set[_Open]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, partition: int, producer_id: int, records: Iterable[Record]) -> None:
        """Add the records of a transactional batch of that partition, with their offsets."""
        transaction = _Open(partition, producer_id)
        for record in records:
            key = decode_key(record.key)
            if key is not None:
                self._waiting.setdefault(transaction, {})[key] = record
                self._open.setdefault(key, set()).add(transaction)

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether an open transaction has an offset for this key."""
        return key in self._open

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Return a group's pending keys."""
        return [key for key in self._open if key.group_id == group_id]

    def keys_of_topic(self, topic: str) -> list[OffsetKey]:
        """Return a topic's pending keys."""
        return [key for key in self._open if key.topic == topic]

    def written(self, partition: int, records: Iterable[Record]) -> None:
        """Note non-transactional records: pending ones of the same keys are older, and will have no effect.

        A removal drops pending ones altogether.
        """
        for record in records:
            key = decode_key(record.key) if self._waiting else None
            if key is None:
                continue
            for transaction in [each for each in self._open.get(key, ()) if each.partition == partition]:
                if record.value is None:
                    self._drop(transaction, key)
                else:
                    self._waiting[transaction][key] = None

    def drop(self, partition: int) -> None:
        """Drop one partition: another broker leads it."""
        for transaction in [each for each in self._waiting if each.partition == partition]:
            for key in self._waiting.pop(transaction):
                self._forget(transaction, key)

    def end(self, partition: int, producer_id: int, committed: bool) -> Iterator[Record]:
        """End a producer's transaction in one partition; returns the records that become visible now."""
        transaction = _Open(partition, producer_id)
        waiting = self._waiting.pop(transaction, {})
        for key in waiting:
            self._forget(transaction, key)
        effective = [(key, each) for key, each in waiting.items() if each is not None and committed]
        return iter([self._overtake(partition, key, each) for key, each in effective])

    def _overtake(self, partition: int, key: OffsetKey, record: Record) -> Record:
        """Make a record visible before older pending ones of the same key."""
        for transaction in self._open.get(key, ()):
            other = self._waiting[transaction][key]
            if transaction.partition == partition and other is not None and other.offset < record.offset:
                self._waiting[transaction][key] = None
        return record

    def _drop(self, transaction: _Open, key: OffsetKey) -> None:
        del self._waiting[transaction][key]
        if not self._waiting[transaction]:
            del self._waiting[transaction]
        self._forget(transaction, key)

    def _forget(self, transaction: _Open, key: OffsetKey) -> None:
        self._open[key].discard(transaction)
        if not self._open[key]:
            del self._open[key]
