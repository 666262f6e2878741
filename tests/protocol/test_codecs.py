"""Codecs of all APIs, in all versions: against kafka-python's, and against damaged bytes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as TheirFetchRequest
from kafka.protocol.consumer import FetchResponse as TheirFetchResponse
from kafka.protocol.producer import ProduceRequest as TheirProduceRequest
from kafka.protocol.producer import ProduceResponse as TheirProduceResponse

from sparkonce.kafka.protocol import apis, errors, fetch, produce
from sparkonce.kafka.protocol.apis import APIS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, ProtocolError
from sparkonce.kafka.protocol.limits import MAX_ARRAY_ELEMENTS
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.cases import each_case
from tests.chance import examples

TOPIC_ID = uuid.UUID(int=0x1234567890ABCDEF)
GENERIC = [
    (key, v) for key, api in APIS.items() if api.codec_module for v in range(api.min_version, api.max_version + 1)
]
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)


def again(decoded, version: int) -> bytes:
    """Encode what kafka-python decoded; it does so only for a message with a (here empty) header."""
    decoded._header = None
    return bytes(decoded.encode(version=version))


def topic(version: int, ids_from: int) -> tuple[str, uuid.UUID]:
    return ("", TOPIC_ID) if version >= ids_from else ("topic", ZERO_UUID)


def produce_request(version: int) -> produce.ProduceRequest:
    partitions = [produce.ProducePartition(0, b"records"), produce.ProducePartition(7, None)]
    return produce.ProduceRequest("txn", -1, 1500, [produce.ProduceTopic(*topic(version, 13), partitions)])


def produce_response(version: int) -> produce.ProduceResponse:
    hints = version >= 10
    result = produce.ProducePartitionResult(
        3,
        int(ErrorCode.INVALID_RECORD),
        11,
        12,
        13 if version >= 5 else -1,
        ((0, "bad"), (1, None)) if version >= 8 else (),
        "all bad" if version >= 8 else None,
        produce.LeaderHint(2, 9) if hints else None,
    )
    endpoints = [produce.NodeEndpoint(2, "host", 9092, "rack")] if hints else ()
    return produce.ProduceResponse([produce.ProduceTopicResult(*topic(version, 13), [result])], 21, endpoints)


def fetch_request(version: int) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        4,
        99,
        1000,
        5 if version >= 9 else -1,
        6 if version >= 12 else -1,
        7 if version >= 5 else -1,
        *([8] if version >= 18 else []),
    )
    return fetch.FetchRequest(
        500,
        1,
        5000,
        [fetch.FetchTopic(*topic(version, 13), [partition])],
        1,
        31 if version >= 7 else 0,
        2 if version >= 7 else -1,
        [fetch.ForgottenTopic(*topic(version, 13), [1, 2])] if version >= 7 else (),
        "rack" if version >= 11 else "",
        9,
        10 if version >= 15 else -1,
    )


def fetch_response(version: int) -> fetch.FetchResponse:
    result = fetch.FetchPartitionResult(
        4,
        0,
        100,
        90,
        80 if version >= 5 else -1,
        b"some records",
        [fetch.AbortedTransaction(1, 2)],
        6 if version >= 11 else -1,
        fetch.EpochEndOffset(3, 77) if version >= 12 else None,
        produce.LeaderHint(1, 2) if version >= 12 else None,
    )
    return fetch.FetchResponse(
        [fetch.FetchTopicResult(*topic(version, 13), [result, result._replace(records=b"")])],
        0,
        31 if version >= 7 else 0,
        21,
        [produce.NodeEndpoint(2, "host", 9092)] if version >= 16 else (),
    )


@each_case("version", PRODUCE_VERSIONS)
def test_produce_is_as_kafka_python_has_it(version: int) -> None:
    request, response = produce_request(version), produce_response(version)
    encoded = produce.encode_request(version, request)
    assert produce.decode_request(version, encoded) == request
    theirs = TheirProduceRequest.decode(bytes(encoded), version=version)
    assert (theirs.transactional_id, theirs.acks, theirs.timeout_ms) == ("txn", -1, 1500)
    assert [(p.index, p.records) for p in theirs.topic_data[0].partition_data] == [(0, b"records"), (7, None)]
    assert again(theirs, version) == bytes(encoded)
    encoded = produce.encode_response(version, response)
    assert produce.decode_response(version, encoded) == response
    theirs = TheirProduceResponse.decode(bytes(encoded), version=version)
    assert theirs.responses[0].partition_responses[0].base_offset == 11
    assert again(theirs, version) == bytes(encoded)


@each_case("version", FETCH_VERSIONS)
def test_fetch_is_as_kafka_python_has_it(version: int) -> None:
    request, response = fetch_request(version), fetch_response(version)
    encoded = fetch.encode_request(version, request)
    assert fetch.decode_request(version, encoded) == request
    theirs = TheirFetchRequest.decode(bytes(encoded), version=version)
    assert theirs.topics[0].partitions[0].fetch_offset == 99
    assert again(theirs, version) == bytes(encoded)
    parts: list[Any] = fetch.encode_response(version, response)
    encoded = bytearray().join(parts)
    assert fetch.parts_size(parts) == len(encoded)
    assert fetch.decode_response(version, encoded) == response
    theirs = TheirFetchResponse.decode(encoded, version=version)
    assert [p.records for p in theirs.responses[0].partitions] == [b"some records", b""]
    assert again(theirs, version) == encoded


def test_fetch_gives_file_slices_as_parts_and_null_records_as_null() -> None:
    class FakeSlice:
        size = 5

    piece = FakeSlice()
    results = [
        fetch.FetchPartitionResult(0, 0, 10, records=piece),
        fetch.FetchPartitionResult(1, 0, 10, records=None),
        fetch.FetchPartitionResult(2, 0, 10, records=b""),
    ]
    parts: list[Any] = fetch.encode_response(4, fetch.FetchResponse([fetch.FetchTopicResult("t", ZERO_UUID, results)]))
    assert parts[1] is piece
    assert len(parts) == 3
    body = b"".join(b"12345" if part is piece else bytes(part) for part in parts)
    assert fetch.parts_size(parts) == len(body)
    found = fetch.decode_response(4, body).topics[0].partitions
    assert [result.records for result in found] == [b"12345", None, b""]


def test_produce_records_are_not_copied() -> None:
    body = bytearray(produce.encode_request(9, produce_request(9)))
    records = produce.decode_request(9, memoryview(body)).topics[0].partitions[0].records
    body[body.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


def joined_response(version: int, response: fetch.FetchResponse) -> bytes:
    parts: list[Any] = fetch.encode_response(version, response)
    return b"".join(parts)


CODECS: list[tuple[Any, Any, Any, Any]] = [
    (PRODUCE_VERSIONS, produce.encode_request, produce.decode_request, produce_request),
    (PRODUCE_VERSIONS, produce.encode_response, produce.decode_response, produce_response),
    (FETCH_VERSIONS, fetch.encode_request, fetch.decode_request, fetch_request),
    (FETCH_VERSIONS, joined_response, fetch.decode_response, fetch_response),
]
HAND_WRITTEN = [
    (decode, version, bytes(encoded))
    for versions, encode_request, decode, message in CODECS
    for version in versions
    for encoded in [encode_request(version, message(version))]
]


@settings(max_examples=examples(400))
@given(st.sampled_from(HAND_WRITTEN), st.data())
def test_damaged_produce_and_fetch_raise_nothing_but_protocol_errors(case, data: st.DataObject) -> None:
    decode, version, encoded = case
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode(version, damaged)
    with pytest.raises(ProtocolError):
        decode(version, encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@each_case("key", [key for key, api in APIS.items() if api.codec_module])
def test_generated_codecs_know_the_versions_of_the_table(key: int) -> None:
    api = APIS[key]
    for codec in (apis.request_class(key), apis.response_class(key)):
        assert key == codec.API_KEY
        assert codec.max_version >= api.max_version
        for version in range(api.max_version + 1):
            assert codec.flexible_version_q(version) == apis.is_flexible(key, version)


def test_the_hand_written_versions_are_those_of_the_table() -> None:
    for codec, key, versions in ((produce, ApiKey.PRODUCE, PRODUCE_VERSIONS), (fetch, ApiKey.FETCH, FETCH_VERSIONS)):
        api = APIS[key]
        assert (api.min_version, api.max_version, api.flexible_from) == (
            versions.start,
            versions.stop - 1,
            codec.FLEXIBLE_FROM,
        )
    assert APIS[ApiKey.PRODUCE].advertised_min_version == 0
    assert not apis.serves(ApiKey.PRODUCE, 2)


@each_case(("key", "version"), GENERIC)
def test_default_messages_round_trip(key: int, version: int) -> None:
    for kind, decode in (("request", apis.decode_request), ("response", apis.decode_response)):
        try:
            message = getattr(apis, kind)(key, version)
            encoded = getattr(apis, f"encode_{kind}")(message, version)
        except (AttributeError, TypeError, NotImplementedError):
            continue  # a schema whose defaults cannot be encoded (a null where there is no null)
        assert again(decode(key, version, encoded), version) == bytes(encoded)
        if kind == "request":  # kafka-go's DescribeAcls has a byte too many, which Kafka ignores
            assert again(decode(key, version, encoded + b"\xff\xff"), version) == bytes(encoded)
        for wrong in (*([] if kind == "request" else [encoded + b"\0"]), *([encoded[:-1]] if encoded else [])):
            with pytest.raises(ProtocolError):
                decode(key, version, wrong)


def test_bytes_after_a_request_are_ignored() -> None:
    topic = produce.ProduceTopic("t", TOPIC_ID, [produce.ProducePartition(3, bytes(5))])
    written, asked = produce.ProduceRequest(None, -1, 30_000, [topic]), fetch.FetchRequest(500, 1, 1_000, [])
    for surplus in (b"\0", b"\xff\xff\xff"):
        for version in range(3, 14):
            body = bytes(produce.encode_request(version, written))
            assert produce.decode_request(version, body + surplus) == produce.decode_request(version, body)
        for version in range(4, 18):
            body = bytes(fetch.encode_request(version, asked))
            assert fetch.decode_request(version, body + surplus) == fetch.decode_request(version, body)


@pytest.mark.parametrize("version", [5, 9])
def test_text_of_any_script_is_no_number(version: int) -> None:
    """Each letter is three bytes above 127; a number of as many would be read in time that grows with its square."""
    letters, data = "\u3042" * 6_000, b"\xff" * 100_000
    asked = apis.request(ApiKey.JOIN_GROUP, version, group_id="g", member_id=letters, protocols=[("range", data)])
    body = bytes(apis.encode_request(asked, version))
    found = apis.decode_request(ApiKey.JOIN_GROUP, version, body)
    assert (found.member_id, found.protocols[0].metadata) == (letters, data)


def _sample() -> list[tuple[int, int, bytes]]:
    metadata = apis.request(ApiKey.METADATA, 13, topics=[(ZERO_UUID, "a"), (TOPIC_ID, None)])
    join = apis.request(
        ApiKey.JOIN_GROUP, 9, group_id="g", protocol_type="consumer", protocols=[("range", b"meta"), ("x", b"")]
    )
    create = apis.request(ApiKey.CREATE_TOPICS, 7, topics=[("t", 3, 1, [(0, [1, 2])], [("segment.bytes", "100")])])
    offsets = apis.request(ApiKey.LIST_OFFSETS, 11, topics=[("t", [(0, -1, -2), (1, 3, 55)])])
    messages = ((3, 13, metadata), (11, 9, join), (19, 7, create), (2, 11, offsets))
    return [(key, version, bytes(apis.encode_request(message, version))) for key, version, message in messages]


SAMPLE = _sample()


@settings(max_examples=examples(400))
@given(st.sampled_from(SAMPLE), st.data())
def test_damaged_requests_raise_nothing_but_protocol_errors(case, data: st.DataObject) -> None:
    key, version, encoded = case
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        apis.decode_request(key, version, damaged)


@settings(max_examples=examples(250))
@given(st.sampled_from(GENERIC), st.binary(max_size=80))
def test_any_bytes_raise_nothing_but_protocol_errors(case: tuple[int, int], data: bytes) -> None:
    for decode in (apis.decode_request, apis.decode_response):
        with contextlib.suppress(ProtocolError):
            decode(*case, data)


def test_an_endless_varint_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="too many bytes"):
        apis.decode_request(ApiKey.METADATA, 13, b"\xff" * 8_000_000)


def test_an_error_to_api_versions_is_read_in_version_0() -> None:
    answer = apis.response(ApiKey.API_VERSIONS, 0, error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[(18, 0, 4)])
    body = apis.encode_response(answer, 0)
    found = apis.decode_response(ApiKey.API_VERSIONS, 4, body)
    assert found.error_code == 35
    assert [(each.api_key, each.min_version, each.max_version) for each in found.api_keys] == [(18, 0, 4)]


def test_versions_and_apis_without_a_codec_are_refused() -> None:
    with pytest.raises(ProtocolError, match="not served"):
        apis.decode_request(ApiKey.METADATA, 99, b"")
    with pytest.raises(ValueError, match="codec of its own"):
        apis.request_class(ApiKey.FETCH)


def test_error_codes_are_kafkas() -> None:
    import kafka.errors as theirs

    kinds: list[Any] = [each for each in vars(theirs).values() if isinstance(each, type)]
    known = {
        each.errno: each.message
        for each in kinds
        if issubclass(each, theirs.BrokerResponseError) and each.errno is not None
    }
    ours = {code.value: code.name for code in ErrorCode}
    renamed = {-1, 0, 3, 6, 9, 10, 17, 25, 28, 29, 30, 31, 39, 53}
    assert {code: name for code, name in ours.items() if code in known and code not in renamed} == {
        code: name for code, name in known.items() if code in ours and code not in renamed
    }
    assert len(ours) == 135
    assert errors.KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER).retriable
    assert not errors.KafkaError(ErrorCode.INVALID_RECORD, "why").retriable
    assert str(errors.KafkaError(ErrorCode.INVALID_RECORD, "why")) == "INVALID_RECORD: why"


def test_light_start_keeps_the_clients_out_until_they_are_asked_for() -> None:
    program = """
import sys
from sparkonce.kafka.protocol.light_start import keep_kafka_light
keep_kafka_light()
keep_kafka_light()
from sparkonce.kafka.protocol import apis
apis.decode_request(3, 13, apis.encode_request(apis.request(3, 13, topics=None), 13))
assert "kafka.consumer.group" not in sys.modules
import kafka
assert not hasattr(kafka, "__wrapped__")
assert "kafka.consumer.group" not in sys.modules
assert kafka.KafkaConsumer.__module__ == "kafka.consumer.group"
assert kafka.__version__
try:
    kafka.NoSuchThing
except AttributeError:
    print("fine")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("fine\n", "")


def versions_served() -> bytes:
    entries = [(key, 0, 1) for key in range(100)]
    message = apis.response(ApiKey.API_VERSIONS, 4, error_code=0, api_keys=entries, throttle_time_ms=0)
    return bytes(apis.encode_response(message, 4))


def test_what_kafka_python_decodes_is_not_counted() -> None:
    """Its clients may be in the process of the broker, and use the same generated code."""
    body = versions_served()
    apis.decode_response(ApiKey.API_VERSIONS, 4, body)
    request = apis.request(ApiKey.METADATA, 12, topics=[])
    apis.decode_request(ApiKey.METADATA, 12, apis.encode_request(request, 12))  # with the bound on requests
    theirs = apis.response_class(ApiKey.API_VERSIONS)
    for _ in range(MAX_ARRAY_ELEMENTS // 100 + 1):
        assert len(theirs.decode(body, version=4, header=False, framed=False).api_keys) == 100


def test_each_thread_counts_for_itself() -> None:
    """A broker is a thread, and a task of Spark's another."""
    counter = apis._Elements()
    counter.left = 1
    with ThreadPoolExecutor(1) as other:
        other.submit(setattr, counter, "left", 5).result()
    assert list(counter(1)) == [0]
    with pytest.raises(ProtocolError, match="more than"):
        counter(1)
