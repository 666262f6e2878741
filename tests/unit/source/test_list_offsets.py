"""The client's codec of ListOffsets against the generated one, in every version."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.kafka.client.list_offsets import (
    EPOCH_FROM,
    ISOLATION_FROM,
    TIMEOUT_FROM,
    decode_response,
    encode_request,
)
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.cases import each_case

VERSIONS = range(1, apis.APIS[ApiKey.LIST_OFFSETS].max_version + 1)
INT32, INT64 = st.integers(0, (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(codec="ascii"), min_size=1, max_size=200)
asked = st.dictionaries(names, st.lists(st.tuples(INT32, st.integers(-1, 9), INT64), max_size=4), max_size=3)
answered = st.dictionaries(names, st.dictionaries(INT32, INT64, max_size=4), max_size=3)


@given(version=st.sampled_from(VERSIONS), topics=asked, read_committed=st.booleans(), timeout_ms=INT32)
def test_requests_are_what_the_generated_codec_reads(
    version: int, topics: dict[str, list[tuple[int, int, int]]], read_committed: bool, timeout_ms: int
) -> None:
    body = encode_request(version, topics, read_committed=read_committed, timeout_ms=timeout_ms)
    read = apis.decode_request(ApiKey.LIST_OFFSETS, version, body)
    found = {
        topic.name: [
            (each.partition_index, each.current_leader_epoch if version >= EPOCH_FROM else None, each.timestamp)
            for each in topic.partitions
        ]
        for topic in read.topics
    }
    assert found == {
        name: [(partition, epoch if version >= EPOCH_FROM else None, at) for partition, epoch, at in partitions]
        for name, partitions in topics.items()
    }
    assert read.replica_id == -1
    assert version < ISOLATION_FROM or read.isolation_level == read_committed
    assert version < TIMEOUT_FROM or read.timeout_ms == timeout_ms


def response(version: int, topics: dict[str, dict[int, int]], error_code: int = 0) -> bytearray:
    codec = apis.response_class(ApiKey.LIST_OFFSETS)
    topic = codec.ListOffsetsTopicResponse
    message = apis.response(
        ApiKey.LIST_OFFSETS,
        version,
        throttle_time_ms=7,
        topics=[
            topic(
                version=version,
                name=name,
                partitions=[
                    topic.ListOffsetsPartitionResponse(
                        version=version,
                        partition_index=partition,
                        error_code=error_code,
                        timestamp=5,
                        offset=offset,
                        leader_epoch=3,
                    )
                    for partition, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )
    return apis.encode_response(message, version)


@given(version=st.sampled_from(VERSIONS), topics=answered)
def test_responses_of_the_generated_codec_are_read(version: int, topics: dict[str, dict[int, int]]) -> None:
    body = response(version, topics)
    expected = {(name, partition): at for name, offsets in topics.items() for partition, at in offsets.items()}
    assert decode_response(version, body) == expected
    for damaged in (body[:-1], body + b"\0"):
        with pytest.raises(ProtocolError):
            decode_response(version, damaged)


@each_case("version", VERSIONS)
def test_the_error_of_a_partition_names_it(version: int) -> None:
    with pytest.raises(KafkaError, match="offsets of t-4") as caught:
        decode_response(version, response(version, {"t": {4: -1}}, ErrorCode.FENCED_LEADER_EPOCH))
    assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH


@given(st.binary(max_size=60), st.sampled_from(VERSIONS))
def test_any_bytes_are_a_response_or_a_protocol_error(body: bytes, version: int) -> None:
    with contextlib.suppress(ProtocolError, KafkaError):
        decode_response(version, body)
