"""Groups as records: Apache Kafka's own bytes are read and written, and nothing is lost on the way."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.coordinators.consumer_group_image import (
    Change,
    ConsumerMember,
    CurrentChanged,
    EpochChanged,
    MemberChanged,
    MemberState,
    PatternChanged,
    ResolvedPattern,
    TargetChanged,
    TargetEpochChanged,
)
from sparkonce.broker_lite.coordinators.group_records import (
    ClassicRecord,
    ConsumerRecord,
    StoredGroup,
    StoredMember,
    decode,
    encode_change,
    encode_classic,
    removal_of,
)
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.records import Record
from tests.cases import each_case

TOPIC = uuid.UUID("66942160-ef30-4296-b02d-01af7636162e")
MEMBER_ID = "4EGNs70wRWOz7x2vNSPDbA"
GROUP_AND_MEMBER = "0004 67383438 0016 3445474e7337307752574f7a377832764e5350446241"

# Keys and values that Apache Kafka 4.3 wrote, and what it meant by them (DumpLogSegments --offsets-decoder).
KAFKAS = {
    "a new classic group": (
        "0002 0008 67636c6173736963",
        "0003 0000 00000000 ffff ffff 000001a1fda19ba9 00000000",
        ClassicRecord("gclassic", StoredGroup("", 0, None, None, 1795256589225, ())),
    ),
    "the epoch": (
        "0003 0004 67383438",
        "0000 00000002 01 00 08 0e3d979fec965107",
        ConsumerRecord("g848", EpochChanged(2, 1026143003235209479)),
    ),
    "a member": (
        "0005" + GROUP_AND_MEMBER,
        "0000 03 6931 00 08 72646b61666b61 0b 2f3132372e302e302e31 02 05 74702d61 01 000493e0 00 01 00 01 00",
        ConsumerRecord(
            "g848",
            MemberChanged(
                MEMBER_ID, ConsumerMember(MEMBER_ID, "i1", None, "rdkafka", "/127.0.0.1", ("tp-a",), "", 300_000)
            ),
        ),
    ),
    "the targets' epoch": (
        "0006 0004 67383438",
        "0000 00000002 01 00 08 000001a1fda15291",
        ConsumerRecord("g848", TargetEpochChanged(2, 1795256570513)),
    ),
    "a target": (
        "0007" + GROUP_AND_MEMBER,
        "0000 02 66942160ef304296b02d01af7636162e 04 00000000 00000001 00000002 00 00",
        ConsumerRecord("g848", TargetChanged(MEMBER_ID, {TOPIC: frozenset({0, 1, 2})})),
    ),
    "what a member has": (
        "0008" + GROUP_AND_MEMBER,
        "0000 00000002 00000000 00 02 66942160ef304296b02d01af7636162e 04 00000000 00000001 00000002"
        "01 00 0d 04 00000002 00000002 00000002 01 00",
        ConsumerRecord(
            "g848",
            CurrentChanged(
                MEMBER_ID,
                ConsumerMember(MEMBER_ID, epoch=2, previous_epoch=0, assigned={TOPIC: dict.fromkeys(range(3), 2)}),
            ),
        ),
    ),
    "a pattern": (
        "0010 0004 67383438 0008 285e74702d2e2a29",
        "0000 03 05 74702d61 05 74702d62 0000000000000056 000001a1fda164cb 00",
        ConsumerRecord(
            "g848", PatternChanged("(^tp-.*)", ResolvedPattern(frozenset({"tp-a", "tp-b"}), 86, 1795256575179))
        ),
    ),
}


def encoded(found: ClassicRecord | ConsumerRecord) -> Record:
    if isinstance(found, ClassicRecord):
        return encode_classic(found.group_id, found.group, 7)
    assert found.change is not None
    return encode_change(found.group_id, found.change, 7)


@pytest.mark.parametrize("name", KAFKAS)
def test_kafkas_own_records_are_read_and_written(name: str) -> None:
    key, value, meaning = KAFKAS[name]
    record = Record(bytes.fromhex(key), bytes.fromhex(value), 7)
    assert decode(record) == meaning
    assert encoded(meaning) == record


names = st.text(max_size=8)
partitions = st.integers(0, 50)
owned = st.dictionaries(st.uuids(), st.dictionaries(partitions, st.integers(0, 9), min_size=1, max_size=4), max_size=3)
members = st.builds(
    ConsumerMember,
    st.just("m"),
    st.none() | names,
    st.none() | names,
    names,
    names,
    st.sets(names, max_size=3).map(lambda each: tuple(sorted(each))),
    names,
    st.integers(-1, 2**31 - 1),
    st.none() | names,
)
current = st.builds(
    ConsumerMember,
    st.just("m"),
    epoch=st.integers(-2, 9),
    previous_epoch=st.integers(-2, 9),
    state=st.sampled_from(MemberState),
    assigned=owned,
    revoking=owned,
)
targets = st.dictionaries(st.uuids(), st.frozensets(partitions, min_size=1, max_size=4), max_size=3)
changes = st.one_of(
    st.builds(EpochChanged, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)),
    st.builds(TargetEpochChanged, st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
    st.builds(MemberChanged, st.just("m"), st.none() | members),
    st.builds(TargetChanged, st.just("m"), st.none() | targets),
    st.builds(CurrentChanged, st.just("m"), st.none() | current),
    st.builds(
        PatternChanged,
        names,
        st.none()
        | st.builds(ResolvedPattern, st.frozensets(names, max_size=3), st.integers(0, 9), st.integers(0, 2**62)),
    ),
)


@given(names, changes)
def test_a_change_is_read_back(group_id: str, change: Change) -> None:
    assert decode(encode_change(group_id, change, 7)) == ConsumerRecord(group_id, change)


stored_members = st.builds(
    StoredMember,
    names,
    st.none() | names,
    names,
    names,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=9),
    st.binary(max_size=9),
)
stored = st.builds(
    StoredGroup,
    names,
    st.integers(0, 2**31 - 1),
    st.none() | names,
    st.none() | names,
    st.integers(-1, 2**62),
    st.lists(stored_members, max_size=3).map(tuple),
)


@given(names, st.none() | stored)
def test_a_classic_group_is_read_back(group_id: str, group: StoredGroup | None) -> None:
    assert decode(encode_classic(group_id, group, 7)) == ClassicRecord(group_id, group)


def test_older_values_of_a_classic_group_are_read() -> None:
    member = "0001 6d 0001 63 0001 68"
    v0 = "0000 0001 74 00000004 ffff ffff 00000001" + member + "00000009 00000001 aa 00000001 bb"
    v1 = "0001 0001 74 00000004 ffff ffff 00000001" + member + "00000005 00000009 00000001 aa 00000001 bb"
    for value, rebalance_ms in ((v0, 9), (v1, 5)):
        found = decode(Record(bytes.fromhex("0002 0001 67"), bytes.fromhex(value)))
        expected = StoredMember("m", None, "c", "h", rebalance_ms, 9, b"\xaa", b"\xbb")
        assert found == ClassicRecord("g", StoredGroup("t", 4, None, None, -1, (expected,)))


def test_a_group_without_members_is_removed_by_two_tombstones() -> None:
    found = [decode(record) for record in removal_of("g", True, 7)]
    assert found == [ConsumerRecord("g", TargetEpochChanged(0)), ConsumerRecord("g", None)]


@pytest.mark.parametrize("key", [None, b"", b"\0", bytes.fromhex("0001 0001 67"), bytes.fromhex("0009 0001 67")])
def test_what_is_no_group_is_left_alone(key: bytes | None) -> None:
    assert decode(Record(key, b"", 7)) is None


@each_case("kind", ["0002", "0003", "0005", "0006", "0007", "0008", "0010"])
@each_case("value", ["", "0009", "0000", "0000 7f"])
def test_malformed_values_are_the_peers_mistake(kind: str, value: str) -> None:
    key = bytes.fromhex(kind + "0001 67" + ("0001 6d" if kind not in ("0002", "0003", "0006") else ""))
    with pytest.raises(ProtocolError):
        decode(Record(key, bytes.fromhex(value), 7))
