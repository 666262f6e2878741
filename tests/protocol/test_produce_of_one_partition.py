"""Requests and answers of one partition are read and written in one go: as field by field, whatever the bytes are."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.frames import encode_request_header, read_request_header
from sparkonce.kafka.protocol.primitives import Reader

VERSIONS = st.integers(3, 13)
NAMES = st.one_of(st.text(max_size=40), st.integers(110, 140).map(lambda size: "n" * size))
RECORDS = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([127, 128, 16_383, 16_384, 70_000]).map(bytes))
IDS = st.uuids()
PARTITIONS = st.lists(st.builds(produce.ProducePartition, st.integers(0, 2**31 - 1), RECORDS), max_size=2)
REQUESTS = st.builds(
    produce.ProduceRequest,
    st.one_of(st.none(), st.none(), st.just(""), st.just("t")),
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 2**31 - 1),
    st.lists(st.builds(produce.ProduceTopic, NAMES, IDS, PARTITIONS), max_size=2),
)
RESULTS = st.builds(
    produce.ProducePartitionResult,
    st.integers(0, 2**31 - 1),
    st.sampled_from([0, 0, 6]),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.sampled_from([(), (), ((0, "why"),)]),
    st.sampled_from([None, None, "why"]),
    st.sampled_from([None, None, produce.LeaderHint(1, 2)]),
)
RESPONSES = st.builds(
    produce.ProduceResponse,
    st.lists(st.builds(produce.ProduceTopicResult, NAMES, IDS, st.lists(RESULTS, max_size=2)), max_size=2),
    st.sampled_from([0, 0, 7]),
    st.sampled_from([(), (), (produce.NodeEndpoint(1, "h", 9092),)]),
)


def decoded(version: int, body: bytes) -> object:
    """Return what a body says, or that it says nothing."""
    try:
        found = produce.decode_request(version, body)
    except ProtocolError:
        return ProtocolError
    topics = [
        (each.name, each.topic_id, [(one.partition, None if one.records is None else bytes(one.records))
         for one in each.partitions])
        for each in found.topics
    ]  # fmt: skip
    return found.transactional_id, found.acks, found.timeout_ms, topics


def field_by_field(version: int, body: bytes) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "_decode_one", lambda *_: None)
        return decoded(version, body)


@given(VERSIONS, REQUESTS, st.data())
def test_requests_whole_cut_and_altered(version: int, request: produce.ProduceRequest, data: st.DataObject) -> None:
    body = bytes(produce.encode_request(version, request))
    assert decoded(version, body) == field_by_field(version, body) != ProtocolError
    cut = body[: data.draw(st.integers(0, len(body)))]
    assert decoded(version, cut) == field_by_field(version, cut)
    altered = bytearray(body + data.draw(st.binary(max_size=2)))
    for _ in range(data.draw(st.integers(1, 2))):
        near = st.integers(0, min(60, len(altered) - 1)) if altered else st.nothing()
        at = data.draw(st.one_of(near, st.integers(0, len(altered) - 1)))
        altered[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    assert decoded(version, bytes(altered)) == field_by_field(version, bytes(altered))


def test_a_length_in_too_many_bytes_is_refused() -> None:
    one = produce.ProduceTopic("topic", uuid.UUID(int=7), [produce.ProducePartition(3, bytes(5))])
    body = bytes(produce.encode_request(13, produce.ProduceRequest(None, -1, 30_000, [one])))
    at = len(body) - 3 - 5 - 1
    assert body[at] == 6
    for more in range(1, 8):
        longer = body[:at] + b"\x86" + b"\x80" * (more - 1) + b"\0" + body[at + 1 :]
        assert decoded(13, longer) == field_by_field(13, longer)


def test_a_length_that_ends_in_the_tagged_fields_is_refused() -> None:
    none = produce.ProduceTopic("topic", uuid.UUID(int=7), [produce.ProducePartition(3, None)])
    for version in (12, 13):
        body = bytes(produce.encode_request(version, produce.ProduceRequest(None, -1, 30_000, [none])))
        assert body.endswith(bytes(4))
        for ends in range(1, 5):
            altered = body[:-4] + b"\x80" * ends + bytes(4 - ends)
            assert decoded(version, altered) == field_by_field(version, altered) == ProtocolError


def test_most_requests_are_read_in_one_go() -> None:
    one = produce.ProduceTopic("topic", uuid.UUID(int=7), [produce.ProducePartition(3, bytes(1_024))])
    for version in (12, 13):
        body = produce.encode_request(version, produce.ProduceRequest(None, -1, 30_000, [one]))
        assert produce._decode_one(version, body) is not None


@given(VERSIONS, RESPONSES)
def test_answers(version: int, response: produce.ProduceResponse) -> None:
    encoded = produce.encode_response(version, response)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "_encode_one", lambda *_: None)
        assert produce.encode_response(version, response) == encoded


@given(st.sampled_from([(0, 3), (0, 12), (18, 4), (1, 11)]), st.one_of(st.none(), st.text(max_size=9)), st.binary())
def test_request_headers(api: tuple[int, int], client_id: str | None, body: bytes) -> None:
    frame = bytes(encode_request_header(*api, 5, client_id)) + body
    header = read_request_header(frame)
    assert (header[:4], frame[header.body_position :]) == ((*api, 5, client_id), body)
    reader = Reader(frame, 8)
    assert reader.nullable_string(False) == client_id
