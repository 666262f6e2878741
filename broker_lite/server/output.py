"""A connection's unsent bytes and slices of segment files, in order.

Theory of operation: a response is written to the socket at once, since almost always the socket accepts all of it. The
rest waits here, and the loop calls back when there is room. Records go from file to socket by sendfile and are never
held in memory, except for small responses, which are sent in one piece; the bytes before them carry MSG_MORE, so that
header and records share packets. The socket is a dup of the transport's, because the loop rejects a writer on a
transport's own.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sparkonce.broker_lite.log.segment import Slice
from sparkonce.broker_lite.server.connections import Memory, MemoryBoundError
from sparkonce.broker_lite.server.limits import JOINED_BYTES, MAX_SENT_BYTES_PER_WAKE_UP, PREAD_BYTES, SENDFILE_BYTES
from sparkonce.kafka.protocol.fetch import FileSlice, Part, parts_size

_MAX_JOINED_PARTS = 64
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class Output:
    """Sends parts over a non-blocking socket; `on_drained` is called after unsent bytes fell below the limit."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_drained: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._on_drained = on_drained
        self._on_error = on_error
        self._queue: deque[memoryview | list[Any]] = deque()
        self._waiting = False
        self.unsent_bytes = 0
        self.memory: Memory | None = None
        """Where bytes that the socket does not accept are counted."""
        self.owner: object = self
        """Their owner."""
        self._held_bytes = 0
        self._counted_bytes = 0

    def send(self, parts: Sequence[Part]) -> None:
        """Send parts after whatever is unsent. Raises OSError if the peer is gone."""
        if len(parts) == 1 and not self._queue and isinstance(parts[0], (bytes, bytearray)):
            data = parts[0]
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self._put(memoryview(data)[sent:])
                self._wait()
            return
        if not self._queue and (joined := _joined(parts)) is not None:
            self.send([joined])
            return
        for part in parts:
            self._put(memoryview(part) if isinstance(part, (bytes, bytearray, memoryview)) else part)
        if not self._waiting:
            self._advance()
        else:
            self._count_held()

    @property
    def held_bytes(self) -> int:
        """How many unsent bytes are in memory, as counted."""
        return self._counted_bytes

    def close(self) -> None:
        """Drop unsent bytes and close the socket."""
        if self._socket.fileno() >= 0:
            if self._waiting:
                self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        self._queue.clear()
        self.unsent_bytes = 0
        self._waiting = False
        self._held_bytes = 0
        self._count_held()

    def _put(self, part: memoryview | FileSlice) -> None:
        if isinstance(part, memoryview):
            self.unsent_bytes += len(part)
            self._held_bytes += len(part)
            self._queue.append(part)
        else:
            assert isinstance(part, Slice)
            self.unsent_bytes += part.size
            self._queue.append([part.file, part.position, part.size])

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)
        self._count_held()

    def _count_held(self) -> None:
        if self.memory is None:
            return
        before, self._counted_bytes = self._counted_bytes, self._held_bytes
        try:
            self.memory.change(self._held_bytes - before, self.owner)
        except MemoryBoundError as error:
            self._on_error(error)

    def _on_writable(self) -> None:
        try:
            self._advance()
        except Exception as error:
            # After any error here the frame is incomplete: the connection cannot be used any more.
            self._on_error(error)
            return
        if not self._waiting:
            self._count_held()
        self._on_drained()

    def _advance(self) -> None:
        """Send until all is sent, the socket is full, or others must get a turn."""
        budget = MAX_SENT_BYTES_PER_WAKE_UP
        try:
            while self._queue and budget > 0:
                head = self._queue[0]
                sent = self._send_bytes(head) if isinstance(head, memoryview) else self._send_file(head)
                self.unsent_bytes -= sent
                budget -= sent
        except BlockingIOError:
            pass
        if self._queue:
            self._wait()
        elif self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._socket.fileno())

    def _send_bytes(self, head: memoryview) -> int:
        more = _MSG_MORE if len(self._queue) > 1 else 0
        sent = self._socket.send(head, more)
        self._held_bytes -= sent
        if sent == len(head):
            self._queue.popleft()
        else:
            self._queue[0] = head[sent:]
        return sent

    def _send_file(self, head: list[Any]) -> int:
        file, position, size = head
        descriptor = _descriptor(file)
        if descriptor is None:
            piece = file.pread(min(size, PREAD_BYTES), position)
            sent = self._socket.send(piece) if piece else 0
        else:
            # A file that was closed meanwhile has descriptor -1, and the OSError ends this connection.
            sent = os.sendfile(self._socket.fileno(), descriptor, position, min(size, SENDFILE_BYTES))
        if sent == 0:
            raise EOFError(f"segment file ends at {position}, {size} bytes before the end of what was to be sent")
        if sent == size:
            self._queue.popleft()
        else:
            head[1], head[2] = position + sent, size - sent
        return sent


def _joined(parts: Sequence[Part]) -> bytearray | None:
    """Return a small response in one piece: three system calls cost more than a copy."""
    if not 1 < len(parts) <= _MAX_JOINED_PARTS or parts_size(parts) > JOINED_BYTES:
        return None
    out = bytearray()
    for part in parts:
        if isinstance(part, (bytes, bytearray, memoryview)):
            out += part
            continue
        assert isinstance(part, Slice)
        data = part.file.pread(part.size, part.position)
        if len(data) < part.size:
            return None  # the file was truncated: the usual path reports it
        out += data
    return out


def _descriptor(file: Any) -> int | None:
    try:
        descriptor: int = file.fileno()
    except OSError:
        return None
    return descriptor
