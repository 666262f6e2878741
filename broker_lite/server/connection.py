"""One client's connection: requests in, responses out, in order.

Theory of operation: as in Kafka, a connection's requests are handled one after the other, and the next one waits until
the last response is being sent; so a long poll or a join delays later requests, and responses keep their order without
a queue. Only writes that wait for followers let later writes begin: a round to the followers then carries several,
which Kafka's brokers leave to several connections. Bytes are read into one buffer, handlers see slices of it, and
produced records go from there to the file without a copy. At each wake-up a limited number of requests is handled,
then the other connections get a turn. A connection of which nothing is left in the buffer has none of its own: all
such share one, and keep it when a part of a frame or an unanswered request stays in it. A client's error closes its
own connection, with one line in the log. On a SASL listener a gate handles the frames until the client is
authenticated; TLS is one layer below, in `tls.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from sparkonce.broker_lite.node import dispatch
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import DROP, Body, Request, frame_response
from sparkonce.broker_lite.security.acls import ANONYMOUS, host_address
from sparkonce.broker_lite.server.connections import ConnectionTable, MemoryBoundError, Watch
from sparkonce.broker_lite.server.limits import (
    BULK_REQUEST_BYTES,
    MAX_FAILURE_LENGTH,
    MAX_IDLE_READ_BUFFER_BYTES,
    MAX_REQUEST_BYTES_PER_WAKE_UP,
    MAX_REQUESTS_PER_WAKE_UP,
    MAX_UNANSWERED_WRITES,
    MAX_UNSENT_BYTES,
    READ_BUFFER_BYTES,
    REFUSAL_LINGER_S,
)
from sparkonce.broker_lite.server.listener import Listener
from sparkonce.broker_lite.server.output import Output, UnansweredWrites
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.frames import API_KEY, SIZE, frame_size, read_request_header

if TYPE_CHECKING:
    from sparkonce.broker_lite.security.sasl import SaslGate, Step

logger = logging.getLogger(__name__)


class _HandlerError(Exception):
    """A handler could not read or write its files, and its API has no error for that."""


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol object of one accepted connection."""

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        table: ConnectionTable,
        listener: Listener,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._table = table
        self._listener = listener
        self._principal = ANONYMOUS
        self._frame_limit = broker.config.socket_request_max_bytes
        sasl = listener.config.sasl
        self._gate: SaslGate | None = None
        if sasl is not None:
            from sparkonce.broker_lite.security.sasl import SaslGate  # on first use: most listeners have no SASL

            self._gate = SaslGate(sasl, broker.scram_credentials.get, lambda: broker.new_uuid().hex)
            self._frame_limit = min(self._frame_limit, sasl.max_receive_bytes)
        self._view = table.shared_buffer
        self._owns_buffer = False
        self._counted_bytes = 0
        self._start = 0
        self._end = 0
        self._pending: Request | Step | None = None
        self._unanswered: UnansweredWrites | None = None
        """Handled writes that wait for followers, if there are any."""
        self._turn_booked = False
        self._reading_paused = False
        self._closed = False
        self._eof = False
        self.requests = 0
        self.watch = Watch(table.now_ms())
        self._transport: asyncio.Transport | None = None
        self._output: Output | None = None
        self.peer = "?"
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; responses are sent through a dup of its socket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        address = transport.get_extra_info("peername") or ("?", 0)
        self.host = host_address(str(address[0]), *address[3:])
        self.peer = f"{address[0]}:{address[1]}"
        if not self._table.admit(self):
            self.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._broker.config.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._broker.config.socket_send_buffer_bytes)
        dup = sock.dup()
        dup.setblocking(False)
        self._output = self._make_output(dup)
        self._output.memory = self._table.memory
        self._output.owner = self

    def _make_output(self, sock: socket.socket) -> Output:
        return Output(self._loop, sock, self._resume, self._on_send_error)

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything; the response to a pending request is dropped."""
        if error is not None and not self._closed:
            logger.debug("connection from %s lost: %s", self.peer, error)
        self._closed = True
        if self._output is not None:
            self._output.close()
        if isinstance(self._pending, Request):
            self._pending.abandon(self._view.obj)
        self._pending = None
        if self._unanswered is not None:
            self._unanswered.abandon(self._view.obj)
            self._unanswered = None
        self._start = self._end = 0
        self._view = memoryview(b"")
        self._count_buffer(-self._counted_bytes)
        self._table.discard(self)

    def eof_received(self) -> bool:
        """Close, but only when every complete frame has been handled: a client may not wait for its last requests.

        Such are a closing consumer's LeaveGroup, and records sent with acks=0.
        """
        self._eof = not self._closed and self._has_whole_frame()
        if self._end > self._start and self._pending is None and not (self._eof or self._closed):
            self._note(f"it ended {self._missing_bytes()} bytes before its frame")
        return self._eof

    def _has_whole_frame(self) -> bool:
        """Whether there is more to handle."""
        try:
            return self._missing_bytes() <= 0
        except ProtocolError:
            return False

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the free part of the read buffer; unless reading is paused there always is some."""
        if self._start == self._end:
            self._start = self._end = 0
            if not self._owns_buffer:
                self._view = self._table.shared_buffer
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what has arrived."""
        self._end += nbytes
        self._take_turn(self._table.bulk_turns.is_alone(self))

    @property
    def listener_name(self) -> str:
        """The name of the connection's listener."""
        return self._listener.config.name

    def close(self) -> None:
        """Close without waiting for unsent bytes."""
        if not self._closed:
            self._closed = True
            if self._output is not None:
                self._output.close()
            self._count_buffer(-self._counted_bytes)  # it is released in this round of the loop
            if self._transport is not None:
                self._transport.abort()

    # Requests.

    def _take_turn(self, bulk: bool = False) -> None:
        requests, budget = MAX_REQUESTS_PER_WAKE_UP, MAX_REQUEST_BYTES_PER_WAKE_UP
        output, bulk_turns = self._output, self._table.bulk_turns
        assert output is not None
        try:
            while (
                not (self._closed or self._turn_booked)
                and self._pending is None
                and output.unsent_bytes <= MAX_UNSENT_BYTES
                and self._missing_bytes() <= 0
                and (self._unanswered is None or self._may_overlap(self._unanswered))
            ):
                if self._end - self._start > BULK_REQUEST_BYTES and not bulk and self._is_bulk():
                    self._turn_booked = True
                    bulk_turns.book(self, self._end - self._start, self._on_bulk_turn)
                elif not requests or budget <= 0:
                    self._book_turn()
                else:
                    if not bulk:
                        bulk_turns.small_request()
                    bulk = False
                    requests -= 1
                    budget -= self._handle_frame()
            if self._eof and not (self._turn_booked or self._has_whole_frame()):
                self.close()
            elif not self._closed:
                self._make_room()
        except Exception as error:
            self._fail_with(error)

    def _fail_with(self, error: Exception) -> None:
        """Close the connection after an error in a request."""
        if isinstance(error, ProtocolError):
            self._note(str(error))
        elif isinstance(error, _HandlerError):
            self._broker.note_refusal(f"{error}; closing its connection")
        elif isinstance(error, OSError):
            self._lost(error)
        elif self._broker.note_refusal(f"a request from {self.peer} failed ({error!r}); closing its connection"):
            logger.exception("this is a mistake of the broker's", exc_info=error)
        self.close()

    def _missing_bytes(self) -> int:
        """How many bytes are missing from the next frame. Raises ProtocolError if the frame's size is out of bounds."""
        here = self._end - self._start
        if here < SIZE.size:
            return SIZE.size - here
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        if not 0 <= size <= self._frame_limit:
            frame_size(self._view[self._start : self._start + SIZE.size], self._frame_limit)  # raises the error
        return SIZE.size + size - here

    def _handle_frame(self) -> int:
        begin = self._start + SIZE.size
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        self._start = begin + size
        self.requests += 1
        frame = self._view[begin : self._start]
        gate = self._gate
        if (
            gate is not None
            and not gate.lets_through(frame, self._broker.clock.monotonic_ms())
            and not self._authenticate(gate, frame)
        ):
            return size
        header = read_request_header(frame)
        request = Request(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id or "",
            self.host,
            frame[header.body_position :],
            self._answer_later,
            self._principal,
            self._listener.endpoint,
        )
        self._pending = request
        metrics = self._broker.metrics
        if metrics is not None:
            request.received_ns = metrics.now_ns()
        faults = self._broker.faults
        try:
            body = dispatch.handle(self._broker, request) if faults is None else faults.handle(request)
        except OSError as error:
            # An error of the disk, not of the connection.
            raise _HandlerError(f"{ApiKey(request.api_key).name} from {self.peer} failed: {error}") from error
        if body is not None:
            self._pending = None
            self._send_in_order(request, body)
            return size
        self._own_buffer()
        if request.overlaps:
            self._pending = None
            if self._unanswered is None:
                self._unanswered = UnansweredWrites()
            self._unanswered.add(request)
        return size

    def _may_overlap(self, unanswered: UnansweredWrites) -> bool:
        """Whether the next complete frame may be handled before those writes are answered."""
        (api_key,) = API_KEY.unpack_from(self._view, self._start + SIZE.size)
        return len(unanswered) < MAX_UNANSWERED_WRITES and api_key == ApiKey.PRODUCE

    def _authenticate(self, gate: SaslGate, frame: memoryview) -> bool:
        """Do one step of the authentication; returns whether the frame is for the handlers."""
        step = gate.receive(frame, self._broker.clock.monotonic_ms())
        if step.failure is not None:
            # No other frame is handled meanwhile, so that guessing passwords is slow.
            self._pending = step
            self._broker.note_refusal(
                f"closing connection from {self.peer} on listener {self._listener.config.name}: "
                f"{step.failure[:MAX_FAILURE_LENGTH]}"
            )
            self._loop.call_later(self._listener.failed_delay_s, self._refuse, step)
        elif step.answer is not None:
            assert self._output is not None
            self._output.send([step.answer])
        if gate.is_open:
            self._principal = gate.principal
            self._frame_limit = self._broker.config.socket_request_max_bytes
        return step.pass_on

    def _refuse(self, step: Step) -> None:
        if self._closed:
            return
        if step.answer is None:
            self.close()
            return
        assert self._output is not None
        try:
            self._output.send([step.answer])
        except OSError as error:
            logger.debug("connection from %s lost: %s", self.peer, error)
        # A client that gets the response and the end of the connection at once may not read the response.
        self._loop.call_later(REFUSAL_LINGER_S, self.close)

    def _answer_later(self, request: Request, body: Body) -> None:
        if self._closed:
            return
        try:
            if self._pending is request:
                self._pending = None
                self._send_in_order(request, body)
            elif self._unanswered is not None and self._unanswered.answer(request, body):
                self._send_answered(self._unanswered)
            else:
                return
        except Exception as error:
            self._fail_with(error)
            return
        self._resume()

    def _send_in_order(self, request: Request, body: Body) -> None:
        """Send a response, after those of earlier writes."""
        if self._unanswered is None:
            self._send(request, body)
        else:
            self._unanswered.add(request, body)

    def _send_answered(self, unanswered: UnansweredWrites) -> None:
        for request, body in unanswered.take():
            if not self._closed:
                self._send(request, body)
        if not unanswered:
            self._unanswered = None

    def _send(self, request: Request, body: Body) -> None:
        metrics = self._broker.metrics
        if metrics is not None and request.received_ns:
            metrics.answered(request.api_key, request.version, request.received_ns)
        if body:
            assert self._output is not None
            self._output.send(frame_response(request, body))
        elif body is DROP:
            self.close()

    def _resume(self) -> None:
        """Continue with the requests that waited for a response to be sent."""
        if not self._closed and (self._end > self._start or self._reading_paused):
            self._book_turn()

    def _book_turn(self) -> None:
        if not self._turn_booked:
            self._turn_booked = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._turn_booked = False
        if not self._closed:
            self._take_turn()

    def _on_bulk_turn(self) -> None:
        self._turn_booked = False
        if not self._closed:
            self._take_turn(bulk=True)

    def _is_bulk(self) -> bool:
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        return size > BULK_REQUEST_BYTES

    def cut_off(self, reason: str) -> None:
        """Close with a line in the log."""
        self._note(reason)
        self.close()

    def _note(self, reason: str) -> None:
        self._broker.note_refusal(f"closing connection from {self.peer}: {reason}")

    def _on_send_error(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self._lost(error)
        else:
            self._note(str(error))
        self.close()

    def _lost(self, error: OSError) -> None:
        """Log the error that ends the connection: of the network, or of the disk that records are sent from."""
        logger.debug("connection from %s lost: %s", self.peer, error)
        if type(error).__module__ != "ssl":  # ssl's numbers are not errno
            self._broker.logs.note_failure(error)

    # For the table's sweep.

    @property
    def is_served(self) -> bool:
        """Whether a request of this connection is being handled, or waits for its turn."""
        waits = self._pending is not None or self._unanswered is not None
        return waits or self._turn_booked or self._reading_paused

    @property
    def frame_bytes(self) -> int | None:
        """The size of the incomplete frame, with the four bytes of its length, as far as it is known."""
        here = self._end - self._start
        if not here:
            return None
        known = here >= SIZE.size
        return SIZE.size + (int(SIZE.unpack_from(self._view, self._start)[0]) if known else 0)

    @property
    def here_bytes(self) -> int:
        """How many bytes of requests are in the read buffer."""
        return self._end - self._start

    @property
    def held_bytes(self) -> int:
        """The bytes of the read buffer, and of responses in memory."""
        return self._counted_bytes + (self._output.held_bytes if self._output is not None else 0)

    @property
    def unsent_bytes(self) -> int:
        """How many bytes of responses the socket has not accepted yet."""
        return self._output.unsent_bytes if self._output is not None else 0

    def shrink(self) -> None:
        """Release an empty read buffer; while a request is served, only what it has grown by."""
        if self._start != self._end or not self._owns_buffer or self._closed:
            return
        if not self.is_served:
            self._owns_buffer = False
            self._count_buffer(-self._counted_bytes)
        elif len(self._view) > READ_BUFFER_BYTES:
            self._rebuild(READ_BUFFER_BYTES)

    # The read buffer.

    def _make_room(self) -> None:
        """Make room for the next read, or pause reading until requests have been handled."""
        transport = self._transport
        assert transport is not None
        here, capacity = self._end - self._start, len(self._view)
        if here == 0:
            full = self._end == capacity
            self._start = self._end = 0
            if full and capacity < MAX_IDLE_READ_BUFFER_BYTES:
                self._rebuild(2 * capacity)
            elif capacity > MAX_IDLE_READ_BUFFER_BYTES:
                self._rebuild(MAX_IDLE_READ_BUFFER_BYTES)
        elif (missing := self._missing_bytes()) > capacity - self._end:
            if here + missing <= capacity:
                self._rebuild(capacity)
            elif self._end == capacity:
                # Memory is allocated as bytes arrive, not as announced by a header.
                self._rebuild(min(here + missing, max(4 * capacity, MAX_IDLE_READ_BUFFER_BYTES)))
        if self._end:
            self._own_buffer()
        full = self._end == len(self._view)
        if full != self._reading_paused:
            self._pause_reading(full)

    def _pause_reading(self, paused: bool) -> None:
        assert self._transport is not None
        self._reading_paused = paused
        if self._eof:
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _rebuild(self, capacity: int) -> None:
        here = self._end - self._start
        if capacity == len(self._view):
            self._view[:here] = self._view[self._start : self._end]
        else:
            self._count_buffer(capacity - self._counted_bytes)
            view = memoryview(bytearray(capacity))
            view[:here] = self._view[self._start : self._end]
            self._view = view
            self._owns_buffer = True
        self._start, self._end = 0, here

    def _own_buffer(self) -> None:
        """Keep the buffer that was shared until now, with what is in it."""
        if not self._owns_buffer:
            self._owns_buffer = True
            self._table.take_shared_buffer()
            self._count_buffer(len(self._view))

    def _count_buffer(self, more: int) -> None:
        self._counted_bytes += more
        try:
            self._table.memory.change(more, self)
        except MemoryBoundError as error:
            raise ProtocolError(str(error)) from None
