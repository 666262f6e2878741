"""Committed offsets, and the records that keep them.

Theory of operation: a commit becomes records in Kafka's own formats (OffsetCommitKey v1, OffsetCommitValue v4) in the
topic `__consumer_offsets`, keyed so that the last record of a key is the truth; a null value removes it. What is
acknowledged has been appended there, so that replaying the topic at the start brings back all that was acknowledged.
Records of other keys are groups (`group_records.py`) and are ignored here. Values of versions 0 to 4 are read; the
expiry time that version 1 can carry is ignored: the broker's retention applies, as in Kafka for all commits since
OffsetCommit v5.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from sparkonce.broker_lite.protocol.errors import ProtocolError
from sparkonce.broker_lite.protocol.primitives import ZERO_UUID, Reader, put_string, put_tagged_fields
from sparkonce.broker_lite.protocol.records import Record

OFFSETS_TOPIC = "__consumer_offsets"
_KEY_VERSIONS = (0, 1)
_KEY_VERSION = 1
_VALUE_VERSION = 4
_LEADER_EPOCH_FROM = 3
_EXPIRY_VERSION = 1
_FLEXIBLE_FROM = 4
_TOPIC_ID_TAG = 0
_HASHES_KEPT = 16_384
"""Of how many groups and transactional ids the partition is remembered: every request asks for it."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqi")
_TIMESTAMP = struct.Struct(">q")


class CommittedOffset(NamedTuple):
    """What a group has committed for one partition; the time is in milliseconds since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    topic_id: uuid.UUID = ZERO_UUID
    """The id of the topic that had the name then; zero if it was not known."""

    def is_for(self, topic_id: uuid.UUID) -> bool:
        """Whether the offset is one of this topic, as far as can be told, and not of an earlier one of its name."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


class OffsetKey(NamedTuple):
    """Whose offset it is."""

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

    def take_over(self, other: OffsetTable) -> None:
        """Add all that another table has."""
        for group_id, offsets in other._groups.items():
            self._groups.setdefault(group_id, {}).update(offsets)

    def drop_group(self, group_id: str) -> None:
        """Forget a group."""
        self._groups.pop(group_id, None)

    def keys_of_topic(self, topic: str) -> list[OffsetKey]:
        """Return every key of a topic, for when it is deleted."""
        return [OffsetKey(g, t, p) for g, offsets in self._groups.items() for t, p in offsets if t == topic]

    def replay(self, records: Iterable[Record]) -> None:
        """Apply the records of the offsets topic, oldest first.

        Raises:
            ProtocolError: if a record of ours cannot be read.
        """
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
    """Read a record's key; None if it is not that of a committed offset."""
    if data is None or len(data) < _INT16.size:
        return None
    reader = Reader(data)
    if reader.int16() not in _KEY_VERSIONS:
        return None
    return OffsetKey(reader.string(flexible=False), reader.string(flexible=False), reader.int32())


def decode_value(data: bytes) -> CommittedOffset:
    """Read a record's value.

    Raises:
        ProtocolError: if it is of a version that is not known.
    """
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


@lru_cache(maxsize=_HASHES_KEPT)
def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of the offsets topic that keeps a group, as Kafka does (Java's String.hashCode)."""
    utf16 = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack(">H", utf16):
        code = (31 * code + unit) & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code  # the absolute value, except that Kafka takes the least integer's as 0
    return code % partitions if code != 1 << 31 else 0
