"""asyncio's transports and servers over simulated sockets; they behave as those of its selector loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.sim.machine.sockets import Descriptor, Loop

_READ_BYTES = 256 << 10


class Listening:
    """A server: accepts connections until it is closed."""

    def __init__(self, loop: Loop, factory: Callable[[], asyncio.BaseProtocol], descriptor: Descriptor) -> None:
        self.loop = loop
        self.sockets = [descriptor]
        self._factory = factory
        network = loop.network
        network.listen(network.bound[descriptor.fileno()], self)

    def accept(self, descriptor: Descriptor) -> None:
        """Take a new connection."""
        self.loop.call_soon(self._accept, descriptor)

    def _accept(self, descriptor: Descriptor) -> None:
        Transport(self.loop, descriptor, self._factory()).begin()

    def close(self) -> None:
        """Accept no more."""
        for each in self.sockets:
            self.loop.network.stop_accepting(each.fileno())
            each.close()


class Transport(asyncio.Transport):
    """One connection, for a protocol."""

    def __init__(self, loop: Loop, descriptor: Descriptor, protocol: asyncio.BaseProtocol) -> None:
        assert descriptor.end is not None
        end = descriptor.end
        super().__init__({"socket": descriptor, "peername": end.peer_address, "sockname": (loop.address, end.number)})
        self._loop = loop
        self._descriptor = descriptor
        self._end = end
        self._protocol = protocol
        self._unsent = bytearray()
        self._closing = False
        self._is_lost = False
        self._reads = False
        self._paused = False
        self._booked = False

    def begin(self, made: asyncio.Future[None] | None = None) -> None:
        """Connect the protocol, then read."""
        self._loop.call_soon(self._protocol.connection_made, self)
        self._loop.call_soon(self._begin_to_read)
        if made is not None:
            self._loop.call_soon(_set, made)

    def _begin_to_read(self) -> None:
        self._end.on_readable = self._book
        self._reads = True
        self._book()

    # Reading.

    def _book(self) -> None:
        end = self._end
        if self._booked or self._paused or self._closing or not self._reads:
            return
        if end.inbox or end.ended or end.over:
            self._booked = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._booked = False
        if self._closing or self._paused or not self._reads:
            return
        end = self._end
        try:
            if end.over:
                raise ConnectionResetError("Connection reset by peer")
            if end.inbox:
                self._take()
            elif end.ended:
                self._reads = False
                if not self._protocol.eof_received():  # type: ignore[attr-defined]
                    self.close()
                return
        except Exception as error:
            self._fail(error)
            return
        self._book()

    def _take(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            data = self._end.take(len(buffer))
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(self._end.take(_READ_BYTES))

    def pause_reading(self) -> None:
        """See asyncio."""
        self._paused = True

    def resume_reading(self) -> None:
        """See asyncio."""
        self._paused = False
        self._book()

    def is_reading(self) -> bool:
        """See asyncio."""
        return not self._paused and not self._closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio."""
        if self._is_lost or not data:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self._descriptor.send(data)
            except BlockingIOError:
                pass
            except OSError as error:
                self._fail(error)
                return
        if sent < len(data):
            if not self._unsent:
                self._descriptor.wait_for_room(self._write_on)
            self._unsent += data[sent:]

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """See asyncio."""
        self.write(b"".join(list_of_data))

    def _write_on(self) -> None:
        if self._is_lost:
            return
        try:
            del self._unsent[: self._descriptor.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if not self._unsent:
            self._descriptor.wait_for_room(None)
            if self._closing:
                self._lose(None)

    # Closing.

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closing

    def close(self) -> None:
        """See asyncio."""
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._lose(None)

    def abort(self) -> None:
        """See asyncio."""
        self._lose(None)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, OSError):
            context = {"message": "Fatal error on transport", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._closing = True
        self._unsent.clear()
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._descriptor.close()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
