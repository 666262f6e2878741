"""A request on its way to a handler, and how its answer gets back.

A handler is a function of the broker and a request. It returns the parts of the response's body; or None if the
answer comes later through `Request.answer`; or `NO_ANSWER`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import serves
from sparkonce.kafka.protocol.fetch import Part
from sparkonce.kafka.protocol.frames import SIZE, encode_response_header, framed_response

Body = Sequence[Part]
NO_ANSWER: Body = ()
_NOTHING = memoryview(b"")


class _Drop(tuple[Part, ...]):
    """Empty, and unlike any other answer."""

    __slots__ = ()


DROP: Body = _Drop()
"""In place of an answer: the connection is closed silently, as a fault wants it."""


class Endpoint(NamedTuple):
    """Where clients of a listener are told to connect to."""

    host: str
    port: int


class Request:
    """One request; `body` is valid only until the handler returns, since the read buffer is used again."""

    __slots__ = (
        "_send",
        "api_key",
        "body",
        "client_host",
        "client_id",
        "correlation_id",
        "endpoint",
        "on_abandoned",
        "overlaps",
        "principal",
        "received_ns",
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
        send: Callable[[Request, Body], None],
        principal: str,
        endpoint: Endpoint,
    ) -> None:
        self.received_ns = 0  # set only if metrics are enabled
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.body = body
        self._send = send
        self.principal = principal
        """Who sent it, as in access control lists: `User:alice`."""
        self.endpoint = endpoint
        """The address that clients know the listener by that it came over; answers name this one."""
        self.on_abandoned: Callable[[], object] | None = None
        """What to call when the connection is gone before the answer; for a handler that returned None."""
        self.overlaps = False
        """Whether writes that come after it on its connection may be handled before it is answered."""

    def abandon(self, read_buffer: bytearray) -> None:
        """Release what is held for an answer that is no longer needed: the body, unless it was copied, too."""
        if self.body.obj is read_buffer:
            self.body = _NOTHING
        if self.on_abandoned is not None:
            self.on_abandoned()
            self.on_abandoned = None

    @property
    def origin(self) -> object:
        """Identifies the connection that the request came over."""
        return getattr(self._send, "__self__", None)

    def message(self) -> Any:
        """Decode the body with the generated codec.

        Raises:
            ProtocolError: if it is malformed.
        """
        return apis.decode_request(self.api_key, self.version, self.body)

    def response(self, **fields: Any) -> Body:
        """Encode a response of this request's API and version."""
        return [apis.encode_response(apis.response(self.api_key, self.version, **fields), self.version)]

    def answer(self, body: Body) -> None:
        """Send the answer of a handler that returned None; if the connection is gone, nothing happens."""
        self._send(self, body)


def answered_version(request: Request) -> int:
    """Return the version of the answer: that of the request, unless it asked ApiVersions beyond what we know."""
    return request.version if serves(request.api_key, request.version) else 0


def frame_response(request: Request, body: Body) -> list[Part]:
    """Put size and header in front of a response's body."""
    first = body[0]
    if len(body) == 1 and isinstance(first, (bytes, bytearray)):
        return [framed_response(request.api_key, answered_version(request), request.correlation_id, first)]
    header = encode_response_header(request.api_key, answered_version(request), request.correlation_id)
    size = len(header)
    for part in body:
        size += len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size
    if isinstance(first, (bytes, bytearray)):
        return [SIZE.pack(size) + header + first, *body[1:]]
    return [SIZE.pack(size) + header, *body]
