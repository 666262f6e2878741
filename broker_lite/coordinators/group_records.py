"""The records of groups in `__consumer_offsets`, in Kafka's own formats.

Theory of operation: a record's key begins with the number of its type, and then has the group and member; the last
record of a key is valid, and a null value removes it. Numbers: 0 and 1 committed offsets (`offsets.py`), 2 a classic
group, 3 to 8 and 16 a consumer group of KIP-848. Number 4 (partition metadata) is from Kafka 4.0 and before, and is
ignored. The classic group's value is version 3, as Kafka writes it; 0 to 3 are read.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkonce.broker_lite.coordinators.assignors import Partitions
from sparkonce.broker_lite.coordinators.consumer_group_image import (
    Change,
    ConsumerMember,
    CurrentChanged,
    EpochChanged,
    MemberChanged,
    MemberState,
    Owned,
    PatternChanged,
    ResolvedPattern,
    TargetChanged,
    TargetEpochChanged,
)
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.primitives import (
    Reader,
    put_array_length,
    put_bytes,
    put_string,
    put_tagged_fields,
    put_unsigned_varint,
)
from sparkonce.kafka.protocol.records import Record

CLASSIC_GROUP = 2
GROUP_EPOCH = 3
MEMBER = 5
TARGET_EPOCH = 6
TARGET = 7
CURRENT = 8
PATTERN = 16
_CLASSIC_VALUE_VERSION = 3
_STATE_TIMESTAMP_FROM = 2
_INSTANCE_ID_FROM = 3
_REBALANCE_TIMEOUT_FROM = 1
_HASH_TAG = _TIMESTAMP_TAG = _EPOCHS_TAG = _CLASSIC_MEMBER_TAG = 0
_NO_CLASSIC_MEMBER = b"\0"
"""Kafka writes this field even if it is empty. Members of the classic protocol are not kept here."""

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PAIR = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a classic group, as written."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A classic group (GroupMetadata); the timestamp is when it entered its state, in ms since 1970."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


def encode_classic(group_id: str, group: StoredGroup | None, timestamp_ms: int) -> Record:
    """Return the record of a classic group, or with None its tombstone."""
    key = _key(CLASSIC_GROUP, group_id)
    if group is None:
        return Record(key, None, timestamp_ms)
    out = bytearray(_INT16.pack(_CLASSIC_VALUE_VERSION))
    put_string(out, group.protocol_type, flexible=False)
    out += _INT32.pack(group.generation)
    put_string(out, group.protocol_name, flexible=False)
    put_string(out, group.leader_id, flexible=False)
    out += _INT64.pack(group.state_timestamp_ms)
    put_array_length(out, len(group.members), flexible=False)
    for member in group.members:
        for text in (member.member_id, member.group_instance_id, member.client_id, member.client_host):
            put_string(out, text, flexible=False)
        out += _PAIR.pack(member.rebalance_timeout_ms, member.session_timeout_ms)
        put_bytes(out, member.subscription, flexible=False)
        put_bytes(out, member.assignment, flexible=False)
    return Record(key, bytes(out), timestamp_ms)


def encode_change(group_id: str, change: Change, timestamp_ms: int) -> Record:
    """Return the record of one change of a consumer group."""
    if isinstance(change, EpochChanged):
        tags = {_HASH_TAG: _INT64.pack(change.metadata_hash)} if change.metadata_hash else {}
        return Record(_key(GROUP_EPOCH, group_id), _value(_INT32.pack(change.epoch), tags), timestamp_ms)
    if isinstance(change, TargetEpochChanged):
        tags = {_TIMESTAMP_TAG: _INT64.pack(change.timestamp_ms)} if change.timestamp_ms else {}
        return Record(_key(TARGET_EPOCH, group_id), _value(_INT32.pack(change.epoch), tags), timestamp_ms)
    if isinstance(change, MemberChanged):
        data = None if change.member is None else _member_value(change.member)
        return Record(_key(MEMBER, group_id, change.member_id), data, timestamp_ms)
    if isinstance(change, TargetChanged):
        data = None if change.target is None else _target_value(change.target)
        return Record(_key(TARGET, group_id, change.member_id), data, timestamp_ms)
    if isinstance(change, CurrentChanged):
        data = None if change.member is None else _current_value(change.member)
        return Record(_key(CURRENT, group_id, change.member_id), data, timestamp_ms)
    data = None if change.resolved is None else _pattern_value(change.resolved)
    return Record(_key(PATTERN, group_id, change.pattern), data, timestamp_ms)


def removal_of(group_id: str, has_targets: bool, timestamp_ms: int) -> list[Record]:
    """Return the tombstones of a consumer group that has no members."""
    kinds = (TARGET_EPOCH, GROUP_EPOCH) if has_targets else (GROUP_EPOCH,)
    return [Record(_key(kind, group_id), None, timestamp_ms) for kind in kinds]


@dataclass(frozen=True, slots=True)
class ClassicRecord:
    """A record of a classic group; None: it is removed."""

    group_id: str
    group: StoredGroup | None


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record of a consumer group; None: its epoch, and with it the group, is removed."""

    group_id: str
    change: Change | None


def decode(record: Record) -> ClassicRecord | ConsumerRecord | None:
    """Parse a record; None if it is none of a group. Raises ProtocolError if malformed or of an unknown version."""
    if record.key is None or len(record.key) < _INT16.size:
        return None
    key = Reader(record.key)
    kind = key.int16()
    if kind not in (CLASSIC_GROUP, GROUP_EPOCH, MEMBER, TARGET_EPOCH, TARGET, CURRENT, PATTERN):
        return None
    group_id = key.string(flexible=False)
    name = key.string(flexible=False) if key.remaining else ""
    if kind == CLASSIC_GROUP:
        return ClassicRecord(group_id, None if record.value is None else _read_classic(Reader(record.value)))
    return ConsumerRecord(group_id, _read_change(kind, name, record.value))


def _key(kind: int, *names: str) -> bytes:
    out = bytearray(_INT16.pack(kind))
    for name in names:
        put_string(out, name, flexible=False)
    return bytes(out)


def _value(body: bytes | bytearray, tags: dict[int, bytes] | None = None) -> bytes:
    out = bytearray(_INT16.pack(0)) + body
    put_tagged_fields(out, tags or {})
    return bytes(out)


def _member_value(member: ConsumerMember) -> bytes:
    out = bytearray()
    for text in (member.instance_id, member.rack_id, member.client_id, member.client_host):
        put_string(out, text, flexible=True)
    _put_strings(out, member.topic_names)
    put_string(out, member.topic_pattern, flexible=True)
    out += _INT32.pack(member.rebalance_timeout_ms)
    put_string(out, member.server_assignor, flexible=True)
    return _value(out, {_CLASSIC_MEMBER_TAG: _NO_CLASSIC_MEMBER})


def _target_value(target: Partitions) -> bytes:
    out = bytearray()
    put_array_length(out, len(target), flexible=True)
    for topic_id, partitions in target.items():
        out += topic_id.bytes
        _put_int32s(out, sorted(partitions))
        put_tagged_fields(out, {})
    return _value(out)


def _current_value(member: ConsumerMember) -> bytes:
    out = bytearray(_PAIR.pack(member.epoch, member.previous_epoch))
    out += _INT8.pack(member.state)
    for owned in (member.assigned, member.revoking):
        put_array_length(out, len(owned), flexible=True)
        for topic_id, partitions in owned.items():
            indexes = sorted(partitions)
            epochs = bytearray()
            _put_int32s(epochs, [partitions[index] for index in indexes])
            out += topic_id.bytes
            _put_int32s(out, indexes)
            put_tagged_fields(out, {_EPOCHS_TAG: bytes(epochs)})
    return _value(out)


def _pattern_value(resolved: ResolvedPattern) -> bytes:
    out = bytearray()
    _put_strings(out, sorted(resolved.topics))
    out += _INT64.pack(resolved.version) + _INT64.pack(resolved.timestamp_ms)
    return _value(out)


def _put_strings(out: bytearray, texts: Iterable[str]) -> None:
    texts = list(texts)
    put_array_length(out, len(texts), flexible=True)
    for text in texts:
        put_string(out, text, flexible=True)


def _put_int32s(out: bytearray, numbers: list[int]) -> None:
    put_unsigned_varint(out, len(numbers) + 1)
    out += struct.pack(f">{len(numbers)}i", *numbers)


def _read_classic(reader: Reader) -> StoredGroup:
    version = reader.int16()
    if not 0 <= version <= _CLASSIC_VALUE_VERSION:
        raise ProtocolError(f"group metadata of version {version}; versions 0 to {_CLASSIC_VALUE_VERSION} are read")
    protocol_type, generation = reader.string(flexible=False), reader.int32()
    protocol_name, leader_id = reader.nullable_string(flexible=False), reader.nullable_string(flexible=False)
    state_timestamp_ms = reader.int64() if version >= _STATE_TIMESTAMP_FROM else -1
    members = tuple(_read_classic_member(reader, version) for _ in range(reader.array_length(flexible=False)))
    return StoredGroup(protocol_type, generation, protocol_name, leader_id, state_timestamp_ms, members)


def _read_classic_member(reader: Reader, version: int) -> StoredMember:
    member_id = reader.string(flexible=False)
    instance_id = reader.nullable_string(flexible=False) if version >= _INSTANCE_ID_FROM else None
    client_id, client_host = reader.string(flexible=False), reader.string(flexible=False)
    rebalance_ms = reader.int32() if version >= _REBALANCE_TIMEOUT_FROM else -1
    session_ms = reader.int32()
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_ms if rebalance_ms >= 0 else session_ms,
        session_ms,
        bytes(reader.bytes(flexible=False)),
        bytes(reader.bytes(flexible=False)),
    )


def _read_change(kind: int, name: str, value: bytes | None) -> Change | None:
    reader = Reader(value or b"")
    if value is not None and (version := reader.int16()) != 0:
        raise ProtocolError(f"a group's record of type {kind} and version {version}; only version 0 is known")
    if kind == MEMBER:
        return MemberChanged(name, None if value is None else _read_member(reader, name))
    if kind == TARGET:
        return TargetChanged(
            name,
            None if value is None else {topic_id: frozenset(indexes) for topic_id, indexes, _ in _read_topics(reader)},
        )
    if kind == CURRENT:
        return CurrentChanged(name, None if value is None else _read_current(reader, name))
    if kind == PATTERN:
        return PatternChanged(name, None if value is None else _read_pattern(reader))
    if value is None:
        return None if kind == GROUP_EPOCH else TargetEpochChanged(0)
    number, tags = reader.int32(), reader.tagged_fields()
    tagged = _INT64.unpack(tags[0])[0] if 0 in tags else 0
    return EpochChanged(number, tagged) if kind == GROUP_EPOCH else TargetEpochChanged(number, tagged)


def _read_member(reader: Reader, member_id: str) -> ConsumerMember:
    instance_id, rack_id = reader.nullable_string(flexible=True), reader.nullable_string(flexible=True)
    client_id, client_host = reader.string(flexible=True), reader.string(flexible=True)
    names = tuple(reader.string(flexible=True) for _ in range(reader.array_length(flexible=True)))
    pattern, timeout_ms = reader.nullable_string(flexible=True) or "", reader.int32()
    assignor = reader.nullable_string(flexible=True)
    return ConsumerMember(
        member_id, instance_id, rack_id, client_id, client_host, tuple(sorted(names)), pattern, timeout_ms, assignor
    )


def _read_current(reader: Reader, member_id: str) -> ConsumerMember:
    epoch, previous_epoch, number = reader.int32(), reader.int32(), reader.int8()
    try:
        state = MemberState(number)
    except ValueError:
        raise ProtocolError(f"member {member_id} is in state {number}, which is not known") from None
    assigned, revoking = _read_owned(reader), _read_owned(reader)
    return ConsumerMember(
        member_id, epoch=epoch, previous_epoch=previous_epoch, state=state, assigned=assigned, revoking=revoking
    )


def _read_owned(reader: Reader) -> Owned:
    owned: dict[uuid.UUID, Mapping[int, int]] = {}
    for topic_id, indexes, tags in _read_topics(reader):
        # Kafka before 4.3 did not write the epochs; 0 lets such a partition be committed to in any epoch.
        epochs = _read_int32s(Reader(tags[_EPOCHS_TAG])) if _EPOCHS_TAG in tags else [0] * len(indexes)
        owned[topic_id] = dict(zip(indexes, epochs, strict=True))
    return owned


def _read_topics(reader: Reader) -> Iterator[tuple[uuid.UUID, list[int], dict[int, memoryview]]]:
    for _ in range(reader.array_length(flexible=True)):
        yield reader.uuid(), _read_int32s(reader), reader.tagged_fields()


def _read_int32s(reader: Reader) -> list[int]:
    return [reader.int32() for _ in range(reader.array_length(flexible=True))]


def _read_pattern(reader: Reader) -> ResolvedPattern:
    topics = frozenset(reader.string(flexible=True) for _ in range(reader.array_length(flexible=True)))
    return ResolvedPattern(topics, reader.int64(), reader.int64())
