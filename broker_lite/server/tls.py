"""A TLS connection: the plain connection, with a layer of encryption in between.

Theory of operation: OpenSSL works between two buffers in memory, so that sockets, back-pressure and turns are those of
a plain connection. Received bytes are decrypted directly into the plain connection's read buffer, while that has room;
the rest is limited, since reading pauses with it. Responses are read and encrypted in pieces: sendfile is not possible.
A failed handshake logs one line that says what the client should do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.security.principals import PrincipalError
from sparkonce.broker_lite.security.tls import explain, principal_of
from sparkonce.broker_lite.server.connection import ClientConnection
from sparkonce.broker_lite.server.connections import ConnectionTable
from sparkonce.broker_lite.server.limits import (
    MAX_SENT_BYTES_PER_WAKE_UP,
    TLS_HANDSHAKE_TIMEOUT_S,
    TLS_PIECE_BYTES,
)
from sparkonce.broker_lite.server.listener import Listener
from sparkonce.broker_lite.server.output import Output
from sparkonce.kafka.protocol.fetch import Part


class TlsOutput(Output):
    """Encrypts and sends; `unsent_bytes` counts plain and encrypted bytes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_drained: Callable[[], None],
        on_error: Callable[[Exception], None],
        tls: ssl.SSLObject,
        encrypted: ssl.MemoryBIO,
    ) -> None:
        super().__init__(loop, sock, on_drained, on_error)
        self._tls = tls
        self._encrypted = encrypted
        self._piece = memoryview(b"")

    def send(self, parts: Sequence[Part]) -> None:
        """Send parts after whatever is unsent; without any, what the TLS layer has. Raises OSError if the peer left."""
        for part in parts:
            self._put(memoryview(part) if isinstance(part, (bytes, bytearray, memoryview)) else part)
        if not self._waiting:
            self._advance()
        else:
            self._count_held()

    def close(self) -> None:
        """Drop unsent bytes and close the socket."""
        super().close()
        self._piece = memoryview(b"")

    def _advance(self) -> None:
        budget = MAX_SENT_BYTES_PER_WAKE_UP
        try:
            while budget > 0 and (self._piece or self._encrypt()):
                sent = self._socket.send(self._piece)
                self._piece = self._piece[sent:]
                self.unsent_bytes -= sent
                budget -= sent
        except BlockingIOError:
            pass
        if self._piece or self._queue:
            self._wait()
        elif self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._socket.fileno())

    def _encrypt(self) -> bool:
        """Encrypt the next piece; returns whether there is one."""
        room = TLS_PIECE_BYTES
        while self._queue and room > 0:
            head = self._queue[0]
            if isinstance(head, memoryview):
                plain = head[:room]
                self._held_bytes -= len(plain)
                if len(plain) == len(head):
                    self._queue.popleft()
                else:
                    self._queue[0] = head[len(plain) :]
            else:
                plain = memoryview(self._read(head, room))
            room -= len(plain)
            self.unsent_bytes -= len(plain)
            while plain:
                plain = plain[self._tls.write(plain) :]
        if not self._encrypted.pending:
            return False
        self._piece = memoryview(self._encrypted.read())
        self.unsent_bytes += len(self._piece)
        return True

    def _read(self, head: list[object], room: int) -> bytes:
        file, position, size = head
        assert isinstance(position, int)
        assert isinstance(size, int)
        data: bytes = file.pread(min(size, room), position)  # type: ignore[attr-defined]
        if not data:
            raise EOFError(f"segment file ends at {position}, {size} bytes before the end of what was to be sent")
        if len(data) == size:
            self._queue.popleft()
        else:
            head[1], head[2] = position + len(data), size - len(data)
        return data


class TlsConnection(ClientConnection):
    """The protocol object of one accepted connection of a TLS listener."""

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        table: ConnectionTable,
        listener: Listener,
    ) -> None:
        super().__init__(broker, loop, table, listener)
        assert listener.context is not None
        self._received = ssl.MemoryBIO()
        self._encrypted = ssl.MemoryBIO()
        self._tls = listener.context.wrap_bio(self._received, self._encrypted, server_side=True)
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._shaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the client begins the handshake."""
        super().connection_made(transport)
        if self._closed:
            return
        self._handshake_timer = self._loop.call_later(TLS_HANDSHAKE_TIMEOUT_S, self._on_handshake_timeout)

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything."""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        super().connection_lost(error)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the shared buffer for encrypted bytes; it is empty whenever reading is on."""
        return self._table.encrypted_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt and handle the received bytes."""
        self._received.write(self._table.encrypted_buffer[:nbytes])
        self._pump()

    def eof_received(self) -> bool:
        """Log what was cut off; the transport closes itself."""
        if not self._shaken and not self._closed:
            self._fail("it ended in the TLS handshake")
        return super().eof_received()

    def _has_whole_frame(self) -> bool:
        """Whether there is more to handle, or to decrypt once there is room."""
        return super()._has_whole_frame() or (self._reading_paused and self._has_more())

    def _has_more(self) -> bool:
        """Whether there is more to decrypt, or to take: OpenSSL decrypts whole records, of up to 16 KiB."""
        return bool(self._received.pending or self._tls.pending())

    def _make_output(self, sock: socket.socket) -> Output:
        return TlsOutput(self._loop, sock, self._resume, self._on_send_error, self._tls, self._encrypted)

    def _pause_reading(self, paused: bool) -> None:
        super()._pause_reading(paused)
        if not paused and self._has_more():
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        if self._closed:
            return
        try:
            if self._shaken or self._shake_hands():
                self._decrypt()
        except ssl.SSLError as error:
            self._fail(f"TLS failed: {explain(error)}")
        except OSError:
            self.close()

    def _shake_hands(self) -> bool:
        assert self._output is not None
        assert self._listener.config.tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._output.send([])
            return False
        except ssl.SSLError as error:
            self._fail(f"the TLS handshake failed: {explain(error)}")
            return False
        assert self._handshake_timer is not None
        self._handshake_timer.cancel()
        self._shaken = True
        self._output.send([])
        try:
            principal = principal_of(self._tls, self._listener.config.tls)
        except PrincipalError as error:
            self._fail(str(error))
            return False
        if self._gate is None:
            self._principal = principal
        return True

    def _decrypt(self) -> None:
        ended = False
        while not self._closed and not self._reading_paused and not ended:
            room = super().get_buffer(-1)
            filled = 0
            try:
                while filled < len(room):
                    count: Any = self._tls.read(len(room) - filled, room[filled:])
                    if not count:
                        ended = True
                        break
                    filled += count
            except ssl.SSLWantReadError:
                pass
            if not filled:
                break
            super().buffer_updated(filled)
        if ended:
            if not super().eof_received():
                self.close()
        elif not self._closed and self._encrypted.pending:
            assert self._output is not None
            self._output.send([])

    def _on_handshake_timeout(self) -> None:
        if not self._closed:
            self._fail(f"no TLS handshake within {TLS_HANDSHAKE_TIMEOUT_S:.0f} s")

    def _fail(self, reason: str) -> None:
        self._broker.note_refusal(
            f"closing connection from {self.peer} on listener {self._listener.config.name}: {reason}"
        )
        if self._output is not None:
            with contextlib.suppress(OSError):
                self._output.send([])  # TLS's alert, if there is one
        self.close()
