"""One client's connection: requests in, responses out, in order.

Theory of operation: as in Kafka, a connection's requests are handled one after the other, and the next one waits until
the last response is being sent; so a long poll or a join delays later requests, and responses keep their order. Only
writes that wait for followers let later writes begin: a round to the followers then carries several, which Kafka's
brokers leave to several connections. At each wake-up a limited number of requests is handled, then the other
connections get a turn. A client's error closes its own connection, with one line in the log.

This module decides when a request is handled, in which order requests are answered, and how long they are kept. The
bytes are in `read_buffer.py` and `output.py`, TLS is one layer below, in `tls.py`, and on a SASL listener a gate
handles the frames until the client is authenticated.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Request, frame_response
from sparkonce.broker_lite.security.acls import ANONYMOUS, host_address
from sparkonce.broker_lite.server.connections import ConnectionTable, Watch
from sparkonce.broker_lite.server.limits import (
    BULK_REQUEST_BYTES,
    MAX_FAILURE_LENGTH,
    MAX_REQUEST_BYTES_PER_WAKE_UP,
    MAX_REQUESTS_PER_WAKE_UP,
    MAX_UNANSWERED_WRITES,
    MAX_UNSENT_BYTES,
    REFUSAL_LINGER_S,
)
from sparkonce.broker_lite.server.listener import Listener
from sparkonce.broker_lite.server.output import Output
from sparkonce.broker_lite.server.read_buffer import ReadBuffer
from sparkonce.broker_lite.waiting import Execution, Promise
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import FrameSizeError, ProtocolError
from sparkonce.kafka.protocol.frames import SIZE, read_request_header

if TYPE_CHECKING:
    from sparkonce.broker_lite.security.sasl import SaslGate, Step

logger = logging.getLogger(__name__)

_LIMIT = "socket.request.max.bytes"
_LIMIT_BEFORE_LOGIN = "sasl.server.max.receive.size"


class _Unanswered:
    """A request whose response is not sent yet: it waits, or an earlier one does."""

    __slots__ = ("_connection", "body", "execution", "failure", "is_answered", "passed_bytes", "request")

    def __init__(self, connection: ClientConnection, request: Request) -> None:
        self._connection = connection
        self.request = request
        self.execution: Execution | None = None
        self.passed_bytes = 0
        """The size of the read buffer that it has taken along."""
        self.is_answered = False
        self.body: Body | None = None
        self.failure: CloseConnectionError | None = None
        """Instead of a response, when it is its turn."""

    def on_end(self, body: Body | None, error: Exception | None) -> None:
        """Note the response; see `Execution`."""
        self.execution = None
        self.answer(body, error)
        self._connection.answered(self, error)

    def answer(self, body: Body | None, error: Exception | None = None) -> None:
        """Keep the response until it is its turn."""
        self.body, self.is_answered = body, True
        self.failure = error if isinstance(error, CloseConnectionError) else None
        self.request.release_body()


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
        frame_limit, limit_setting = broker.config.socket_request_max_bytes, _LIMIT
        sasl = listener.config.sasl
        self._gate: SaslGate | None = None
        if sasl is not None:
            from sparkonce.broker_lite.security.sasl import SaslGate  # on first use: most listeners have no SASL

            self._gate = SaslGate(sasl, broker.scram_credentials.get, lambda: broker.new_uuid().hex)
            frame_limit, limit_setting = min((frame_limit, _LIMIT), (sasl.max_receive_bytes, _LIMIT_BEFORE_LOGIN))
        self._buffer = ReadBuffer(table, self, frame_limit, limit_setting)
        self._refusing: Step | None = None
        """The failed authentication whose response is delayed."""
        self._unanswered: list[_Unanswered] = []
        """In order of arrival."""
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
        self._buffer.close()
        self._table.discard(self)
        unanswered, self._unanswered = self._unanswered, []
        for each in unanswered:
            if each.execution is not None:
                each.execution.abandon()

    def eof_received(self) -> bool:
        """Close, but only when every complete frame has been handled: a client may not wait for its last requests.

        Such are a closing consumer's LeaveGroup, and records sent with acks=0.
        """
        self._eof = not self._closed and self._has_whole_frame()
        if self._buffer.size and not (self._unanswered or self._refusing or self._eof or self._closed):
            self._note(f"it ended {self._buffer.missing_bytes()} bytes before its frame")
        return self._eof

    def _has_whole_frame(self) -> bool:
        """Whether there is more to handle."""
        try:
            return self._buffer.next_frame_bytes() >= 0
        except ProtocolError:
            return False

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the free part of the read buffer; unless reading is paused there always is some."""
        return self._buffer.free()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what has arrived."""
        self._buffer.filled(nbytes)
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
            self._buffer.close()
            if self._transport is not None:
                self._transport.abort()

    # Requests.

    def _take_turn(self, bulk: bool = False) -> None:
        requests, budget = MAX_REQUESTS_PER_WAKE_UP, MAX_REQUEST_BYTES_PER_WAKE_UP
        output, buffer, bulk_turns = self._output, self._buffer, self._table.bulk_turns
        assert output is not None
        try:
            while (
                not (self._closed or self._turn_booked)
                and output.unsent_bytes <= MAX_UNSENT_BYTES
                and (size := buffer.next_frame_bytes()) >= 0
                and (not (self._unanswered or self._refusing) or self._may_overlap())
            ):
                if size > BULK_REQUEST_BYTES and not bulk:
                    self._turn_booked = True
                    bulk_turns.book(self, size, self._on_bulk_turn)
                elif not requests or budget <= 0:
                    self._book_turn()
                else:
                    if not bulk:
                        bulk_turns.small_request()
                    bulk = False
                    requests -= 1
                    budget -= size
                    self._handle_frame(buffer.take(size))
            if self._eof and not (self._turn_booked or self._has_whole_frame()):
                self.close()
            elif not self._closed and (full := buffer.make_room()) != self._reading_paused:
                self._pause_reading(full)
        except Exception as error:
            self._fail_with(error)

    def _fail_with(self, error: Exception, request: Request | None = None) -> None:
        """Close the connection after an error in a request, or of the client."""
        if isinstance(error, FrameSizeError):
            # The client connects again, and does it again.
            self._note(str(error), f"{error}, {self.host}")
        elif isinstance(error, (ProtocolError, CloseConnectionError)):
            if str(error):
                self._note(str(error))
        elif isinstance(error, OSError) and request is not None:  # of the disk, not of the connection
            api = ApiKey(request.api_key).name
            self._broker.note_refusal(f"{api} from {self.peer} failed: {error}; closing its connection")
        elif isinstance(error, OSError):
            self._lost(error)
        elif self._broker.note_refusal(f"a request from {self.peer} failed ({error!r}); closing its connection"):
            logger.error("this is a mistake of the broker's", exc_info=error)
        self.close()

    def _handle_frame(self, frame: memoryview) -> None:
        self.requests += 1
        gate = self._gate
        if (
            gate is not None
            and not gate.lets_through(frame, self._broker.clock.monotonic_ms())
            and not self._authenticate(gate, frame)
        ):
            return
        header = read_request_header(frame)
        request = Request(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id or "",
            self.host,
            frame[header.body_position :],
            self._principal,
            self._listener.endpoint,
            self,
        )
        metrics = self._broker.metrics
        if metrics is not None:
            request.received_ns = metrics.now_ns()
        faults = self._broker.faults
        try:
            coroutine = dispatch.handle(self._broker, request) if faults is None else faults.handle(request)
            promise = coroutine.send(None)
        except StopIteration as end:
            if self._unanswered:
                self._keep(request).answer(end.value)
            else:
                self._send(request, end.value)
        except CloseConnectionError as error:
            if not self._unanswered:
                raise
            self._keep(request).answer(None, error)
        except OSError as error:
            self._fail_with(error, request)
        else:
            self._keep_waiting(coroutine, promise, request)

    def _keep_waiting(self, coroutine: Any, promise: Promise[Any], request: Request) -> None:
        """Keep a request whose handler waits; what it may still read goes with it."""
        unanswered = self._keep(request)
        unanswered.execution = Execution(coroutine, promise, unanswered.on_end)
        if self._buffer.holds(request.body):
            unanswered.passed_bytes = self._buffer.pass_on()

    def _keep(self, request: Request) -> _Unanswered:
        unanswered = _Unanswered(self, request)
        self._unanswered.append(unanswered)
        return unanswered

    def _may_overlap(self) -> bool:
        """Whether the next frame, which is here, may be handled before the last ones are answered."""
        if self._refusing is not None:
            return False
        last = self._unanswered[-1]
        return (
            (last.request.overlaps or last.is_answered)
            and len(self._unanswered) < MAX_UNANSWERED_WRITES
            and self._buffer.next_api_key == ApiKey.PRODUCE
        )

    def _authenticate(self, gate: SaslGate, frame: memoryview) -> bool:
        """Do one step of the authentication; returns whether the frame is for the handlers."""
        step = gate.receive(frame, self._broker.clock.monotonic_ms())
        if step.failure is not None:
            # No other frame is handled meanwhile, so that guessing passwords is slow.
            self._refusing = step
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
            self._buffer.frame_limit = self._broker.config.socket_request_max_bytes
            self._buffer.limit_setting = _LIMIT
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

    def answered(self, unanswered: _Unanswered, error: Exception | None) -> None:
        """Send the responses whose turn it is, now that a handler has ended."""
        self._buffer.release(unanswered.passed_bytes)
        if self._closed:
            return
        if error is not None and unanswered.failure is None:
            self._fail_with(error, unanswered.request)
            return
        try:
            while self._unanswered and self._unanswered[0].is_answered and not self._closed:
                first = self._unanswered.pop(0)
                if first.failure is not None:
                    raise first.failure
                self._send(first.request, first.body)
        except Exception as failure:
            self._fail_with(failure)
            return
        self._resume()

    def _send(self, request: Request, body: Body | None) -> None:
        metrics = self._broker.metrics
        if metrics is not None and request.received_ns:
            metrics.answered(request.api_key, request.version, request.received_ns)
        if body is not None:
            assert self._output is not None
            self._output.send(frame_response(request, body))

    def _resume(self) -> None:
        """Continue with the requests that waited for a response to be sent."""
        if not self._closed and (self._buffer.size or self._reading_paused):
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

    def cut_off(self, reason: str) -> None:
        """Close with a line in the log."""
        self._note(reason)
        self.close()

    def _note(self, reason: str, subject: str | None = None) -> None:
        self._broker.note_refusal(f"closing connection from {self.peer}: {reason}", subject)

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
        return bool(self._unanswered or self._refusing) or self._turn_booked or self._reading_paused

    @property
    def frame_bytes(self) -> int | None:
        """The size of the incomplete frame, with the four bytes of its length, as far as it is known."""
        return SIZE.size + (self._buffer.next_size or 0) if self._buffer.size else None

    @property
    def here_bytes(self) -> int:
        """How many bytes of requests are in the read buffer."""
        return self._buffer.size

    @property
    def held_bytes(self) -> int:
        """The bytes of read buffers, and of responses in memory."""
        return self._buffer.counted_bytes + (self._output.held_bytes if self._output is not None else 0)

    @property
    def unsent_bytes(self) -> int:
        """How many bytes of responses the socket has not accepted yet."""
        return self._output.unsent_bytes if self._output is not None else 0

    def shrink(self) -> None:
        """Release an empty read buffer; while a request is served, only what it has grown by."""
        if not self._closed:
            self._buffer.shrink(to_nothing=not self.is_served)

    def _pause_reading(self, paused: bool) -> None:
        assert self._transport is not None
        self._reading_paused = paused
        if self._eof:
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
