"""One connection to one broker: frames over a socket, with TLS and SASL if configured.

Requests are answered in order, so one may be sent while another's response is in flight. Each response is received
whole into one buffer. A connection on which anything failed is closed and never used again, since the next response
could be that of any request.

SASL (KIP-43, KIP-152): SaslHandshake names the mechanism, SaslAuthenticate carries it. The mechanisms' arithmetic is
kafka-python's. Both requests are small and their old versions plain, so they are encoded here.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Sequence
from itertools import count, islice
from typing import Any

from sparkonce.kafka.client.security import OAuth, Sasl
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.client.tls import wrap
from sparkonce.kafka.protocol.apis import APIS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, ProtocolError
from sparkonce.kafka.protocol.frames import encode_request_header, read_response_header
from sparkonce.kafka.protocol.primitives import Buffer, Reader, put_bytes, put_string

MAX_RESPONSE_BYTES = 1 << 30
"""The largest response; TLS bytes that are read as a frame on a plaintext port claim more."""

MAX_PARTS = 512
"""How many pieces are passed to the socket at a time; Linux accepts up to 1,024."""

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36

_SIZE = struct.Struct(">i")
_PLAIN_HEADER = struct.Struct(">hhi")


class SaslError(PermissionError):
    """The broker does not offer the mechanism, or does not accept the user. Never retried."""


class BrokerConnection:
    """A ready connection: versions are negotiated, and the user is authenticated.

    Every method raises OSError (also for timeouts) or ProtocolError if the connection fails.
    """

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.address = (host, port)
        self._settings = settings
        self._correlation_ids = count(1)
        self._pending: deque[tuple[int, int, int]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        timeout_s = settings.connection_setup_timeout_ms / 1000
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.receive_buffer_bytes:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            if settings.tls is not None:
                self._socket = wrap(self._socket, settings.tls, host)
            self._versions = self._ask_versions()
            if settings.sasl is not None:
                log_in(self, settings.sasl)
            self._socket.settimeout(settings.request_timeout_ms / 1000)
        except BaseException:
            self.close()
            raise

    def version(self, api_key: ApiKey) -> int:
        """Return the newest version of an API that both sides support."""
        ours = APIS[api_key]
        low, high = self._versions.get(api_key, (-1, -1))
        version = min(high, ours.max_version)
        if version < max(low, ours.min_version):
            host, port = self.address
            raise ProtocolError(
                f"broker {host}:{port} speaks {api_key.name} versions {low} to {high}, this client "
                f"{ours.min_version} to {ours.max_version}: Kafka 0.11 or later is needed"
            )
        return version

    def serves(self, api_key: ApiKey) -> bool:
        """Whether both sides support a version of an API."""
        low, high = self._versions.get(api_key, (0, -1))
        return max(low, APIS[api_key].min_version) <= min(high, APIS[api_key].max_version)

    def request(self, api_key: int, version: int, body: bytes | bytearray) -> memoryview:
        """Send a request and return the body of its response."""
        self.send(api_key, version, body)
        return self.receive(bytearray())

    def send(self, api_key: int, version: int, body: Buffer | Sequence[Buffer], *, answered: bool = True) -> None:
        """Send a request, in one piece or several. Its response, if there is one, is returned by `receive`."""
        parts = [body] if isinstance(body, Buffer) else body
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        header = _request_header(api_key, version, correlation_id, self._settings.client_id)
        size = len(header) + sum(map(len, parts))
        self._send_all([_SIZE.pack(size) + header, *parts])
        if answered:
            self._pending.append((api_key, version, correlation_id))

    def receive(self, buffer: bytearray) -> memoryview:
        """Wait for the oldest request's response and return its body, as a slice of ``buffer`` or of a larger one."""
        api_key, version, expected = self._pending[0]
        head = bytearray(_SIZE.size)
        self._fill(memoryview(head))
        (size,) = _SIZE.unpack(head)
        if not _SIZE.size <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self._name} sent a frame of {size} bytes: does this port speak Kafka, without TLS?")
        frame = memoryview(buffer if len(buffer) >= size else bytearray(size))[:size]
        self._fill(frame)
        correlation_id, position = _response_header(api_key, version, frame)
        if correlation_id != expected:
            raise ProtocolError(f"{self._name} answered request {correlation_id} where {expected} was expected")
        self._pending.popleft()
        return frame[position:]

    def close(self) -> None:
        """Close immediately; a thread that waits for a response fails."""
        with contextlib.suppress(OSError):  # it may be disconnected already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @property
    def _name(self) -> str:
        return f"broker {self.address[0]}:{self.address[1]}"

    def _send_all(self, parts: Sequence[Buffer]) -> None:
        """Send the parts without concatenating them first, where the socket supports it."""
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.sendall(b"".join(parts))
            return
        left = deque(memoryview(part) for part in parts if part)
        while left:
            sent = self._socket.sendmsg(islice(left, MAX_PARTS))
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if sent:
                left[0] = left[0][sent:]

    def _fill(self, view: memoryview) -> None:
        while view:
            size = self._socket.recv_into(view)
            if not size:
                raise ConnectionResetError(f"{self._name} closed the connection")
            view = view[size:]

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        # Version 0 is supported by every broker, and small enough to be parsed without generated codecs.
        reader = Reader(self.request(ApiKey.API_VERSIONS, 0, b""))
        error = reader.int16()
        if error:
            raise ProtocolError(f"{self._name} refused ApiVersions: {ErrorCode.of(error).name}")
        return {reader.int16(): (reader.int16(), reader.int16()) for _ in range(reader.array_length(flexible=False))}


def _request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytearray:
    if api_key in APIS:
        return encode_request_header(api_key, version, correlation_id, client_id)
    header = bytearray(_PLAIN_HEADER.pack(api_key, version, correlation_id))  # SASL, in non-flexible versions
    put_string(header, client_id, flexible=False)
    return header


def _response_header(api_key: int, version: int, frame: memoryview) -> tuple[int, int]:
    if api_key in APIS:
        return read_response_header(api_key, version, frame)
    return Reader(frame).int32(), _SIZE.size


def log_in(connection: BrokerConnection, sasl: Sasl) -> None:
    """Authenticate on a new connection.

    Raises:
        SaslError: if the broker rejects it.
    """
    host, port = connection.address
    body = bytearray()
    put_string(body, sasl.mechanism, flexible=False)
    reader = Reader(connection.request(SASL_HANDSHAKE, 1, body))
    if reader.int16():
        offered = [reader.string(flexible=False) for _ in range(reader.array_length(flexible=False))]
        raise SaslError(
            f"broker {host}:{port} does not offer SASL mechanism {sasl.mechanism}; it offers {', '.join(offered)}: "
            "set kafka.sasl.mechanism"
        )
    mechanism = _mechanism(sasl)
    while not mechanism.is_done():
        body = bytearray()
        put_bytes(body, mechanism.auth_bytes(), flexible=False)
        reader = Reader(connection.request(SASL_AUTHENTICATE, 0, body))
        error, message = reader.int16(), reader.nullable_string(flexible=False)
        if error:
            if sasl.oauth is not None:
                from sparkonce.kafka.client.oauth import forget

                forget(sasl.oauth)
            who = f"user {sasl.username!r}" if sasl.oauth is None else "the token"
            check = "kafka.sasl.username and kafka.sasl.password" if sasl.oauth is None else "kafka.sasl.oauthbearer.*"
            raise SaslError(f"broker {host}:{port} refused {who} ({sasl.mechanism}): {message or error}; check {check}")
        mechanism.receive(bytes(reader.bytes(flexible=False)))


def _mechanism(sasl: Sasl) -> Any:
    from kafka.net.sasl import get_sasl_mechanism

    if sasl.oauth is not None:
        return _Bearer(sasl.oauth)
    return get_sasl_mechanism(sasl.mechanism)(
        sasl_mechanism=sasl.mechanism, sasl_plain_username=sasl.username, sasl_plain_password=sasl.password
    )


class _Bearer:
    """OAUTHBEARER (RFC 7628): one message with the token, and one more byte to end a rejected exchange."""

    def __init__(self, oauth: OAuth) -> None:
        from sparkonce.kafka.client.oauth import token  # imports HTTP modules, which only some workers need

        extensions = "".join(f"\x01{name}={text}" for name, text in oauth.extensions)
        self._message = f"n,,\x01auth=Bearer {token(oauth)}{extensions}\x01\x01".encode()
        self._done = False

    def is_done(self) -> bool:
        return self._done

    def auth_bytes(self) -> bytes:
        return self._message

    def receive(self, answer: bytes) -> None:
        """Handle the broker's response: empty, or the reason of a rejection, detailed after one more byte."""
        self._done = not answer
        self._message = b"\x01"
