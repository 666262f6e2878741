"""Committed offsets as records, and the partition that keeps a group."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.coordinators.offsets import (
    CommittedOffset,
    OffsetKey,
    OffsetTable,
    decode_key,
    decode_value,
    encode,
    partition_of,
)
from sparkonce.kafka.protocol.errors import ProtocolError

names = st.text(st.characters(codec="utf-8"), max_size=20)
keys = st.builds(OffsetKey, names, names, st.integers(0, 2**31 - 1))
values = st.builds(
    CommittedOffset, st.integers(0, 2**63 - 1), st.integers(-1, 5), names, st.integers(0, 2**62), st.uuids()
)


@given(keys, values)
def test_a_commit_is_read_back(key: OffsetKey, value: CommittedOffset) -> None:
    record = encode(key, value, 1)
    assert record.key is not None
    assert record.value is not None
    assert decode_key(record.key) == key
    assert decode_value(record.value) == value


def test_the_bytes_are_kafkas() -> None:
    topic_id = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    record = encode(OffsetKey("g", "t", 1), CommittedOffset(5, -1, "m", 9, topic_id), 1)
    assert record.key == bytes.fromhex("0001 0001 67 0001 74 00000001")
    tagged = "01 00 10 00112233445566778899aabbccddeeff"
    assert record.value == bytes.fromhex("0004 0000000000000005 ffffffff 02 6d 0000000000000009" + tagged)


@pytest.mark.parametrize(
    ("value", "leader_epoch"),
    [
        ("0000 0000000000000005 0001 6d 0000000000000009", -1),
        ("0001 0000000000000005 0001 6d 0000000000000009 00000000000000ff", -1),
        ("0002 0000000000000005 0001 6d 0000000000000009", -1),
        ("0003 0000000000000005 00000007 0001 6d 0000000000000009", 7),
    ],
)
def test_older_values_are_read(value: str, leader_epoch: int) -> None:
    assert decode_value(bytes.fromhex(value)) == CommittedOffset(5, leader_epoch, "m", 9)


def test_a_newer_value_is_refused() -> None:
    with pytest.raises(ProtocolError, match="version 5"):
        decode_value(bytes.fromhex("0005 00"))


@given(st.lists(st.tuples(keys, st.none() | values), max_size=20))
def test_replay_gives_what_was_put(changes: list[tuple[OffsetKey, CommittedOffset | None]]) -> None:
    live, replayed = OffsetTable(), OffsetTable()
    for key, value in changes:
        live.put(key, value)
    replayed.replay(encode(key, value, 1) for key, value in changes)
    assert live.groups() == replayed.groups()
    for group in live.groups():
        assert live.of_group(group) == replayed.of_group(group)


@pytest.mark.parametrize(("group", "code"), [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", 0)])
def test_the_partition_is_that_of_javas_hash(group: str, code: int) -> None:
    assert partition_of(group, 50) == code % 50
