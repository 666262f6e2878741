"""Frames and their headers.

A frame is a size of four bytes, a header and a body. Only the header's first eight bytes (API key, version,
correlation id) are the same in all versions. A request header is v1, or v2 (tagged fields at its end) for flexible
versions; its client id is never compact. A response header is v0, or v1 for flexible versions, except that the response
to ApiVersions is always v0, since the client does not know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sparkonce.kafka.protocol.apis import FLEXIBLE, ApiKey, is_flexible
from sparkonce.kafka.protocol.errors import FrameSizeError, ProtocolError, UnsupportedVersionError
from sparkonce.kafka.protocol.primitives import Buffer, Reader, put_string

SIZE = struct.Struct(">i")
API_KEY = struct.Struct(">h")
"""The first field of a request's header."""
_FIXED = struct.Struct(">hhi")
_CLIENT_ID_SIZE = struct.Struct(">h")
_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD")
_CLIENT_ID = _FIXED.size + _CLIENT_ID_SIZE.size
"""Where a request's client id begins."""
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AND_NO_TAGS = struct.Struct(">ib")
_SIZED = struct.Struct(">ii")
_SIZED_AND_NO_TAGS = struct.Struct(">iib")
_TAGGED_RESPONSES = frozenset(
    served for served, flexible in FLEXIBLE.items() if flexible and served[0] != ApiKey.API_VERSIONS
)
"""The APIs and versions whose response header has tagged fields."""


class RequestHeader(NamedTuple):
    """A request's header, and the position of its body in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Parse the header at the start of a frame (without the four size bytes).

    An ApiVersions request of an unknown version is returned with no client id and an empty body: it must be answered
    in version 0 with UNSUPPORTED_VERSION. Check it by `apis.serves`.

    Raises:
        UnsupportedVersionError: if the API or the version is not served.
        ProtocolError: if the bytes are not a header.
    """
    if len(frame) < _FIXED.size:
        raise ProtocolError(f"frame of {len(frame)} bytes is too short for a request header")
    api_key, api_version, correlation_id = _FIXED.unpack_from(frame, 0)
    flexible = FLEXIBLE.get((api_key, api_version))
    if flexible is None:
        if api_key == ApiKey.API_VERSIONS:
            return RequestHeader(api_key, api_version, correlation_id, None, len(frame))
        raise UnsupportedVersionError(api_key, api_version, correlation_id)
    if len(frame) > _CLIENT_ID:
        end = _CLIENT_ID + _CLIENT_ID_SIZE.unpack_from(frame, _FIXED.size)[0]
        if _CLIENT_ID <= end < len(frame) and not (flexible and frame[end]):
            # A client id and no tagged fields, as nearly always: a `Reader` would take 2 µs more.
            client_id = _text(frame[_CLIENT_ID:end])
            fields = (api_key, api_version, correlation_id, client_id, end + flexible)
            return tuple.__new__(RequestHeader, fields)  # half the time of RequestHeader(...), for every request
    reader = Reader(frame, _FIXED.size)
    name = reader.nullable_string(flexible=False)
    if flexible:
        reader.tagged_fields()
    return RequestHeader(api_key, api_version, correlation_id, name, reader.position)


def _text(data: Buffer) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"client id is not UTF-8: {error.reason}") from None


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """Encode a request's header, without the four size bytes."""
    out = bytearray(_FIXED.pack(api_key, api_version, correlation_id))
    put_string(out, client_id, flexible=False)
    if is_flexible(api_key, api_version):
        out.append(0)
    return out


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Encode a response's header, without the four size bytes."""
    if (api_key, api_version) in _TAGGED_RESPONSES:
        return _CORRELATION_ID_AND_NO_TAGS.pack(correlation_id, 0)
    return _CORRELATION_ID.pack(correlation_id)


def framed_response(api_key: int, api_version: int, correlation_id: int, body: Buffer) -> bytes:
    """Return a complete response: its size, header and body."""
    if (api_key, api_version) in _TAGGED_RESPONSES:
        return _SIZED_AND_NO_TAGS.pack(len(body) + _CORRELATION_ID_AND_NO_TAGS.size, correlation_id, 0) + body
    return _SIZED.pack(len(body) + _CORRELATION_ID.size, correlation_id) + body


def read_response_header(api_key: int, api_version: int, frame: Buffer) -> tuple[int, int]:
    """Return a response's correlation id, and its body's position. Raises ProtocolError for a bad header."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    if (api_key, api_version) in _TAGGED_RESPONSES:
        reader.tagged_fields()
    return correlation_id, reader.position


def frame_size(size_bytes: Buffer, limit: int, setting: str | None = None) -> int:
    """Read the four size bytes of a frame.

    Raises:
        FrameSizeError: if the size is negative or beyond `limit` bytes, which `setting` says.
    """
    (size,) = SIZE.unpack(size_bytes)
    if not 0 <= size <= limit:
        said = f" ({setting})" if setting else ""
        raise FrameSizeError(f"frame of {size} bytes; at most {limit} are accepted{said}{_hint(bytes(size_bytes))}")
    return int(size)


def _hint(first: bytes) -> str:
    """Return the name of another protocol that the first four bytes look like (KIP-498)."""
    if first.startswith(_TLS_HANDSHAKE):
        return "; these bytes are TLS, and this listener has none: look at the client's security.protocol"
    if first in _HTTP_METHODS:
        return "; these bytes are HTTP"
    return ""
