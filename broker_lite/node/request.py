"""A request for a handler, and the way of its response.

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
    """Empty, and distinguishable from any other answer."""

    __slots__ = ()


DROP: Body = _Drop()
"""Instead of a response: the connection is closed silently, for an injected fault."""


class Endpoint(NamedTuple):
    """The address of a listener that is returned to clients."""

    host: str
    port: int


class Request:
    """One request; `body` is valid only until the handler returns, since the read buffer is reused."""

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
        """The sender's principal, as in access control lists: `User:alice`."""
        self.endpoint = endpoint
        """The advertised address of the request's listener; responses return this one."""
        self.on_abandoned: Callable[[], object] | None = None
        """Called when the connection closes before the answer; for a handler that returned None."""
        self.overlaps = False
        """Whether later writes on its connection may be handled before it is answered."""

    def abandon(self, read_buffer: object) -> None:
        """Release what is held for an answer that is no longer needed, including the body unless it was copied."""
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
        """Decode the body with the generated codec. Raises ProtocolError if it is malformed."""
        return apis.decode_request(self.api_key, self.version, self.body)

    def response(self, **fields: Any) -> Body:
        """Encode a response of this request's API and version."""
        return [apis.encode_response(apis.response(self.api_key, self.version, **fields), self.version)]

    def answer(self, body: Body) -> None:
        """Send the answer of a handler that returned None; does nothing if the connection is closed."""
        self._send(self, body)


def answered_version(request: Request) -> int:
    """Return the version of the response: that of the request, unless it is an unsupported version of ApiVersions."""
    return request.version if serves(request.api_key, request.version) else 0


def frame_response(request: Request, body: Body) -> list[Part]:
    """Prepend size and header to a response's body."""
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
