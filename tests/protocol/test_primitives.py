"""Primitive types and frame headers: round trips, exact bytes, and nothing but ProtocolError for bad input."""

from __future__ import annotations

import contextlib
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader as TheirHeader

from sparkonce.kafka.protocol import frames, primitives
from sparkonce.kafka.protocol.apis import APIS, ApiKey, is_flexible
from sparkonce.kafka.protocol.errors import ProtocolError, UnsupportedVersionError
from sparkonce.kafka.protocol.primitives import Reader
from tests.cases import each_case


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong(value: int) -> None:
    out = bytearray()
    primitives.put_varint(out, value)
    reader = Reader(out)
    assert reader.varlong() == value
    reader.finish()


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varint(value: int) -> None:
    out = bytearray()
    primitives.put_unsigned_varint(out, value)
    assert Reader(out).unsigned_varint() == value


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff\xff\xff\xff\x7f", b"\x80", b""])
def test_bad_varints(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Reader(data).varint()


@given(st.none() | st.text(max_size=300), st.booleans())
def test_strings(value: str | None, flexible: bool) -> None:
    out = bytearray()
    primitives.put_string(out, value, flexible)
    assert Reader(out).nullable_string(flexible) == value


@given(st.none() | st.binary(max_size=300), st.booleans())
def test_bytes(value: bytes | None, flexible: bool) -> None:
    out = bytearray()
    primitives.put_bytes(out, value, flexible)
    assert Reader(out).nullable_bytes(flexible) == value


@given(st.dictionaries(st.integers(0, 1000), st.binary(max_size=20), max_size=10))
def test_tagged_fields(fields: dict[int, bytes]) -> None:
    out = bytearray()
    primitives.put_tagged_fields(out, fields)
    reader = Reader(out)
    assert reader.tagged_fields() == fields
    reader.finish()


def test_nulls_are_refused_where_there_is_no_null() -> None:
    for flexible, null in ((True, b"\0"), (False, b"\xff\xff\xff\xff")):
        with pytest.raises(ProtocolError, match="null string"):
            Reader(null).string(flexible)
        with pytest.raises(ProtocolError, match="null bytes"):
            Reader(null).bytes(flexible)
        assert Reader(null).array_length(flexible) == 0


def test_lengths_beyond_the_message_are_refused_before_anyone_loops() -> None:
    with pytest.raises(ProtocolError, match="array of 1000 elements"):
        Reader(struct.pack(">i", 1000) + bytes(999)).array_length(flexible=False)
    with pytest.raises(ProtocolError):
        Reader(struct.pack(">i", -2)).array_length(flexible=False)
    with pytest.raises(ProtocolError, match="left over"):
        Reader(b"x").finish()
    with pytest.raises(ProtocolError, match="negative size"):
        Reader(struct.pack(">h", -2)).nullable_string(flexible=False)
    with pytest.raises(ProtocolError, match="UTF-8"):
        Reader(b"\0\1\xff").string(flexible=False)
    with pytest.raises(ValueError, match="at most 32767"):
        primitives.put_string(bytearray(), "x" * 32768, flexible=True)


METHODS = [
    lambda r: r.int8(),
    lambda r: r.int32(),
    lambda r: r.int64(),
    lambda r: r.boolean(),
    lambda r: r.varint(),
    lambda r: r.varlong(),
    lambda r: r.uuid(),
    lambda r: r.tagged_fields(),
    *[lambda r, f=f: r.nullable_string(f) for f in (True, False)],
    *[lambda r, f=f: r.nullable_bytes(f) for f in (True, False)],
    *[lambda r, f=f: r.array_length(f) for f in (True, False)],
]


@given(st.binary(max_size=60), st.lists(st.sampled_from(METHODS), max_size=20))
def test_any_bytes_read_in_any_way_raise_nothing_but_protocol_errors(data: bytes, methods: list) -> None:
    reader = Reader(data)
    try:
        for method in methods:
            method(reader)
            assert reader.remaining >= 0
    except ProtocolError:
        pass


@each_case("api", APIS.values(), ids=lambda api: api.codec_name)
def test_request_headers_are_those_of_kafka_python(api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        theirs = TheirHeader(api.key, version, 77, "me").encode(flexible=is_flexible(api.key, version))
        assert bytes(frames.encode_request_header(api.key, version, 77, "me")) == bytes(theirs)
        header = frames.read_request_header(bytes(theirs) + b"body")
        assert header == (api.key, version, 77, "me", len(theirs))


def test_response_headers() -> None:
    assert frames.encode_response_header(ApiKey.METADATA, 8, 5) == b"\0\0\0\5"
    assert frames.encode_response_header(ApiKey.METADATA, 9, 5) == b"\0\0\0\5\0"
    assert frames.encode_response_header(ApiKey.API_VERSIONS, 4, 5) == b"\0\0\0\5"
    assert frames.read_response_header(ApiKey.METADATA, 9, b"\0\0\0\5\0rest") == (5, 5)
    assert frames.read_response_header(ApiKey.API_VERSIONS, 4, b"\0\0\0\5rest") == (5, 4)


def test_versions_that_are_not_served() -> None:
    frame = struct.pack(">hhi", ApiKey.METADATA, 99, 4)
    with pytest.raises(UnsupportedVersionError) as caught:
        frames.read_request_header(frame)
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (3, 99, 4)
    with pytest.raises(UnsupportedVersionError):
        frames.read_request_header(struct.pack(">hhi", ApiKey.PRODUCE, 2, 4))
    frame = struct.pack(">hhi", ApiKey.API_VERSIONS, 99, 4) + b"what only a later version knows"
    assert frames.read_request_header(frame) == (18, 99, 4, None, len(frame))


@given(st.binary(max_size=40))
def test_any_bytes_as_a_header_raise_nothing_but_protocol_errors(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        frames.read_request_header(data)


def test_frame_sizes() -> None:
    assert frames.frame_size(b"\0\0\1\0", 256) == 256
    for bad in (b"\0\0\1\1", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02"):
        with pytest.raises(ProtocolError, match="frame of"):
            frames.frame_size(bad, 256)


def test_uuids_are_kept() -> None:
    value = uuid.uuid4()
    assert primitives.uuid_of(value.bytes) is primitives.uuid_of(value.bytes)
    assert Reader(value.bytes).uuid() == value
