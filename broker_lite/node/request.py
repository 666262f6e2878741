"""A request for a handler, and the frame of its response.

A handler is a coroutine of the broker and a request. It returns the parts of the response's body; None, if the client
expects no response; or raises `CloseConnectionError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import serves
from sparkonce.kafka.protocol.fetch import Part
from sparkonce.kafka.protocol.frames import SIZE, encode_response_header, framed_response

Body = Sequence[Part]
NO_BODY = memoryview(b"")


class CloseConnectionError(Exception):
    """The request gets no response: its connection is closed, with the message in the log, if there is one."""


class Endpoint(NamedTuple):
    """The address of a listener that is returned to clients."""

    host: str
    port: int


class Request:
    """One request."""

    __slots__ = (
        "api_key",
        "body",
        "client_host",
        "client_id",
        "correlation_id",
        "endpoint",
        "is_forwarded",
        "origin",
        "overlaps",
        "principal",
        "received_ns",
        "units",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str,
        client_host: str,
        body: memoryview,
        principal: str,
        endpoint: Endpoint,
        origin: object = None,
    ) -> None:
        self.received_ns = 0  # set only if metrics are enabled
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.body = body
        """The request without its header. It stays valid while the handler runs: see `release_body`."""
        self.principal = principal
        """The sender's principal, as in access control lists: `User:alice`."""
        self.endpoint = endpoint
        """The advertised address of the request's listener; responses return this one."""
        self.origin = origin
        """Identifies the connection that the request came over."""
        self.is_forwarded = False
        """Whether another broker has forwarded it, which sends it to the next controller if this one has resigned."""
        self.overlaps = False
        """Whether later writes on its connection may be handled before it is answered."""
        self.units = 0
        """The work done in this turn: `node/turns.py`."""

    def release_body(self) -> None:
        """Give up the body. The handler must not use what was decoded from it any more."""
        self.body = NO_BODY

    def message(self) -> Any:
        """Decode the body with the generated codec. Raises ProtocolError if it is malformed."""
        return apis.decode_request(self.api_key, self.version, self.body)

    def response(self, **fields: Any) -> Body:
        """Encode a response of this request's API and version."""
        return [apis.encode_response(apis.response(self.api_key, self.version, **fields), self.version)]


def answered_version(request: Request) -> int:
    """Return the version of the response: that of the request, unless it is an unsupported version of ApiVersions."""
    return request.version if serves(request.api_key, request.version) else 0


def frame_response(request: Request, body: Body) -> list[Part]:
    """Prepend size and header to a response's body."""
    first = body[0]
    if len(body) == 1 and isinstance(first, (bytes, bytearray)):
        return [framed_response(request.api_key, request.version, request.correlation_id, first)]
    header = encode_response_header(request.api_key, request.version, request.correlation_id)
    size = len(header)
    for part in body:
        size += len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size
    if isinstance(first, (bytes, bytearray)):
        return [SIZE.pack(size) + header + first, *body[1:]]
    return [SIZE.pack(size) + header, *body]
