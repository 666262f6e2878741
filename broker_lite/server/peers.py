"""Connections from this broker to the others of its cluster.

Theory of operation: one connection for each peer and purpose, opened on first use, and again on the next use after it
was lost. Requests are pipelined: a broker answers a connection's requests in order. A caller gets None when the
connection is lost or the response takes too long, which also closes the connection, as later responses would be late
too. A request to this broker itself is encoded, too, but uses no socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Endpoint, Request
from sparkonce.broker_lite.security.acls import ANONYMOUS
from sparkonce.broker_lite.waiting import begin
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.frames import SIZE, encode_request_header, frame_size, read_response_header
from sparkonce.kafka.protocol.primitives import Buffer

REQUEST_TIMEOUT_MS: Final = 30_000
CONNECT_TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 256 << 20
READ_BUFFER_BYTES: Final = 64 << 10

PURPOSES: Final = {ApiKey.WRITE_TXN_MARKERS: "markers", ApiKey.ADD_PARTITIONS_TO_TXN: "transactions"}
"""APIs that wait for replication have their own connections, so as not to block the requests that replicate."""

logger = logging.getLogger(__name__)

Then = Callable[[memoryview | None], None]
"""Gets the body of a response, valid until it returns, or None if there is none."""


class PeerConnection(asyncio.BufferedProtocol):
    """One connection to one peer; on the loop's thread only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Callable[[], tuple[str, int] | None],
        client_id: str,
    ) -> None:
        """Connect later, to the `address` returned then; None if it is unknown."""
        self._loop = loop
        self._address = address
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pending: deque[_Pending] = deque()
        self._outbox: list[bytes] = []
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._end = 0
        self._closed = False

    def request(self, api_key: int, version: int, body: Buffer, then: Then) -> None:
        """Send a request; `then` is never called before this returns."""
        if self._closed:
            self._loop.call_soon(then, None)
            return
        self._correlation_id += 1
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        frame = SIZE.pack(len(header) + len(body)) + header + body
        self._pending.append(
            _Pending(api_key, version, self._correlation_id, self._loop.time() + REQUEST_TIMEOUT_MS / 1000, then)
        )
        if self._timer is None:
            self._timer = self._loop.call_later(REQUEST_TIMEOUT_MS / 1000, self._on_timer)
        if self._transport is not None:
            self._transport.write(frame)
            return
        self._outbox.append(frame)
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    def close(self) -> None:
        """Close the connection; waiting callers get None."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    def drop(self) -> None:
        """Close the current connection, if any; the next request opens another."""
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    async def _connect(self) -> None:
        address = self._address()
        try:
            if address is None:
                raise ConnectionError("no address")
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: self, *address)
        except (OSError, TimeoutError) as error:
            logger.debug("%s cannot reach %s: %s", self._client_id, address, error)
            self._fail()
        finally:
            self._connecting = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        if self._closed:
            transport.abort()
            return
        self._transport = transport
        self._end = 0
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        outbox, self._outbox = self._outbox, []
        transport.writelines(outbox)

    def connection_lost(self, _error: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        self._fail()

    def get_buffer(self, _hint: int) -> memoryview:
        """See asyncio."""
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        """See asyncio."""
        self._end += count
        try:
            self._take_frames()
        except ProtocolError as error:
            logger.warning("%s: a peer answered what makes no sense: %s", self._client_id, error)
            self.drop()

    def _take_frames(self) -> None:
        view, start = memoryview(self._buffer), 0
        while self._end - start >= SIZE.size and self._transport is not None and not self._transport.is_closing():
            size = SIZE.size + frame_size(view[start : start + SIZE.size], MAX_ANSWER_BYTES)
            if self._end - start < size:
                if size > len(self._buffer):
                    self._grow(start, size)
                    return
                break
            self._answered(view[start + SIZE.size : start + size])
            start += size
        left = self._end - start
        if start and left >= 0:
            view[:left] = view[start : self._end]
            self._end = left

    def _grow(self, start: int, size: int) -> None:
        buffer = bytearray(size)
        left = self._end - start
        buffer[:left] = memoryview(self._buffer)[start : self._end]
        self._buffer, self._end = buffer, left

    def _answered(self, frame: memoryview) -> None:
        if not self._pending:
            raise ProtocolError("an answer that nobody asked for")
        asked = self._pending[0]
        correlation_id, position = read_response_header(asked.api_key, asked.version, frame)
        if correlation_id != asked.correlation_id:
            raise ProtocolError(f"the answer to {correlation_id} in the place of that to {asked.correlation_id}")
        self._pending.popleft()
        _call(asked.then, frame[position:])

    def _fail(self) -> None:
        pending, self._pending = self._pending, deque()
        self._outbox.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for each in pending:
            self._loop.call_soon(_call, each.then, None)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._pending:
            return
        left_s = self._pending[0].deadline_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._on_timer)
        else:
            self.drop()


class _Pending(NamedTuple):
    """A request without a response yet."""

    api_key: int
    version: int
    correlation_id: int
    deadline_s: float
    then: Then


def _call(then: Then, body: memoryview | None) -> None:
    """Pass on a response; an error of its receiver does not affect the connection."""
    try:
        then(body)
    except Exception:
        logger.exception("an answer of a peer was not taken; this is a mistake of the broker's")


class PeerNetwork:
    """All connections of one broker to others; `ClusterMember` sends through it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, endpoint: Endpoint) -> None:
        """`endpoint` is the address of this broker for the others."""
        self._loop = loop
        self._broker = broker
        self._endpoint = endpoint
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        self._client_id = f"broker-{broker.config.node_id}"
        self._is_closed = False

    def connection(self, broker_id: int, purpose: str) -> PeerConnection:
        """Return the connection to a broker for a purpose; the same for the same purpose."""
        found = self._connections.get((broker_id, purpose))
        if found is None:
            client_id = f"{self._client_id}-{purpose}"
            found = PeerConnection(self._loop, lambda: self._address(broker_id), client_id)
            self._connections[broker_id, purpose] = found
        return found

    def send(self, broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
        """See `broker_lite.cluster.member.Peers`."""
        api_key, version = request.API_KEY, request.version
        body = apis.encode_request(request, version)

        def decoded(answer: Buffer | None) -> None:
            try:
                response = None if answer is None else apis.decode_response(api_key, version, answer)
            except ProtocolError as error:
                logger.warning("broker %d: an answer that makes no sense: %s", broker_id, error)
                response = None
            then(response)

        if broker_id == self._broker.config.node_id:
            self._loop.call_soon(self._ask_ourselves, api_key, version, body, decoded)
        else:
            purpose = PURPOSES.get(api_key, "control")
            self.connection(broker_id, purpose).request(api_key, version, body, decoded)

    def close(self) -> None:
        """Close all connections; requests to this broker itself are not answered any more."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        found = self._broker.member.image.brokers.get(broker_id)
        return None if found is None else (found.host, found.port)

    def _ask_ourselves(
        self, api_key: int, version: int, body: bytearray, then: Callable[[Buffer | None], None]
    ) -> None:
        if self._is_closed:  # the broker has left its cluster since it sent this
            then(None)
            return

        def on_end(parts: Body | None, error: Exception | None) -> None:
            if error is not None and not isinstance(error, CloseConnectionError):
                logger.error("a request of this broker to itself failed", exc_info=error)
            self._loop.call_soon(then, None if parts is None else b"".join(map(_bytes, parts)))

        request = Request(
            api_key, version, 0, self._client_id, self._endpoint.host, memoryview(body), ANONYMOUS, self._endpoint
        )
        begin(dispatch.handle(self._broker, request), on_end)


def _bytes(part: object) -> Buffer:
    assert isinstance(part, (bytes, bytearray, memoryview)), "this broker fetches nothing from itself"
    return part
