"""The simulated network: connections that carry bytes in order, until they break.

Theory of operation: a connection has two `End`s, each in the kernel of a machine; a process has `Descriptor`s
of an end, several of one after `dup`. Bytes arrive later, in order, and split differently from how they were
sent. A partition delays them, as TCP retransmits until it gets through. A connection may be cut at
any byte: both sides notice, or only one, and the other one only when it sends (half open). When a process dies,
the kernel closes its connections; a machine that loses power sends nothing, and answers later packets with a
reset once it is up again. A receiver that does not read stops its sender after `WINDOW_BYTES`.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

from lab.sim.scheduler import Scheduler, stream

if TYPE_CHECKING:
    from lab.sim.plan import Settings

CLIENT: Final = 0
"""The machine that all clients run on."""
WINDOW_BYTES: Final = 64 << 10
"""The limit of bytes in flight or unread."""
SEND_AGAIN_MS: Final = 40
"""TCP's retransmission interval for what a partition has blocked."""
CONNECT_AGAIN_MS: Final = 1_000
"""The same for the first packet of a connection."""
LOST_MS: Final = 200
"""The delay of a lost packet."""
CUTS_OF_LOSSES: Final = 0.05
"""The share of losses that end their connection."""


class Loop(Protocol):
    """What a connection needs of its process's event loop."""

    network: Network
    address: str
    """The address of the process's machine."""
    alive: bool

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """See asyncio."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio."""


class Listening(Protocol):
    """What listens at an address."""

    loop: Loop
    sockets: list[Descriptor]

    def accept(self, descriptor: Descriptor) -> None:
        """Take a new connection."""


class Sign(Enum):
    """Signals sent beside bytes."""

    END = "the sender sends no more"
    RESET = "the connection is over"


Packet = bytes | Sign


@dataclass(slots=True)
class Weather:
    """The current state of the network."""

    delay_ms: int
    loss: float


class End:
    """One side of a connection, in the kernel."""

    __slots__ = (
        "_busy", "_queue", "closed", "cut", "descriptors", "ended", "in_flight", "inbox", "loop", "machine", "number",
        "on_readable", "on_writable", "other", "over", "peer_address",
    )  # fmt: skip

    def __init__(self, number: int, loop: Loop, machine: int, peer_address: tuple[str, int]) -> None:
        self.number = number
        self.loop = loop
        self.machine = machine
        self.peer_address = peer_address
        self.other: End
        self.inbox = bytearray()
        self.in_flight = 0
        """Sent bytes that the other side has not read."""
        self.ended = False
        """Whether the other side has closed its sending direction."""
        self.over = False
        """Whether the connection was reset."""
        self.closed = False
        self.cut = False
        """Whether nothing gets through any more."""
        self.descriptors = 0
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self._queue: deque[tuple[int, Packet]] = deque()
        self._busy = False

    def notify(self) -> None:
        """Notify the process that there is something to read."""
        if self.on_readable is not None and not self.closed:
            self.on_readable()

    def take(self, size: int) -> bytes:
        """Return unread bytes, up to a size."""
        data = bytes(self.inbox[:size])
        del self.inbox[:size]
        other = self.other
        full = other.in_flight >= WINDOW_BYTES
        other.in_flight -= len(data)
        if full and other.on_writable is not None:
            other.loop.call_soon(other.writable)
        return data

    def writable(self) -> None:
        """Set the callback for room to write."""
        if self.on_writable is not None:
            self.on_writable()
            if self.on_writable is not None and (self.in_flight < WINDOW_BYTES or self.over):
                self.loop.call_soon(self.writable)  # as a selector would, as long as it is set


class Network:
    """All connections; `blocked` has pairs of sender and receiver machines without a route."""

    def __init__(self, scheduler: Scheduler, seed: int, settings: Settings) -> None:
        self.scheduler = scheduler
        self.blocked: set[tuple[int, int]] = set()
        self.weather = Weather(settings.delay_ms, settings.loss)
        self.descriptors: dict[int, Descriptor] = {}
        self.down: set[int] = set()
        """Machines without power."""
        self.bound: dict[int, tuple[str, int]] = {}
        """The addresses of descriptors that listen, or may."""
        self._settings = settings
        self._seed = seed
        self._streams: dict[int, random.Random] = {}
        self._listening: dict[tuple[str, int], Listening] = {}
        self._numbers = count(1)
        self._file_numbers = count(3)
        self._machines: dict[str, int] = {}
        self._ends: dict[End, None] = {}

    def know(self, address: str, machine: int) -> None:
        """Note the machine of an address."""
        self._machines[address] = machine

    def clear_up(self) -> None:
        """Apply the settings' delays and losses."""
        self.weather = Weather(self._settings.delay_ms, self._settings.loss)

    def calm(self) -> None:
        """Stop all losses, delays and partitions from now on."""
        self.weather = Weather(2, 0.0)
        self.blocked.clear()

    # Opening and closing connections.

    def bind(self, address: str, port: int) -> Descriptor:
        """Return a descriptor that may listen at a port."""
        descriptor = Descriptor(self, None)
        self.bound[descriptor.fileno()] = (address, port)
        return descriptor

    def listen(self, address: tuple[str, int], listening: Listening) -> None:
        """Accept connections at an address."""
        self._listening[address] = listening

    def stop_accepting(self, file_number: int) -> bool:
        """Stop accepting; return whether that was done before."""
        for address, listening in list(self._listening.items()):
            if any(each.fileno() == file_number for each in listening.sockets):
                del self._listening[address]
                return True
        return False

    def connect(self, loop: Loop, host: str, port: int, future: asyncio.Future[Descriptor]) -> None:
        """Connect, or fail the future, or leave it pending where nothing gets through."""
        sender, receiver = self._machines[loop.address], self._machines.get(host, -1)
        rng = self._stream(sender)
        if future.done() or not loop.alive:
            return
        if receiver in self.down or self._is_blocked(sender, receiver) or self._is_blocked(receiver, sender):
            self.scheduler.after(CONNECT_AGAIN_MS, self.connect, loop, host, port, future)
            return
        there, back = self._delay(rng), self._delay(rng)
        self.scheduler.after(there, self._arrive, loop, (host, port), future, back)

    def _arrive(self, loop: Loop, address: tuple[str, int], future: asyncio.Future[Descriptor], back_ms: int) -> None:
        receiver = self._machines.get(address[0], -1)
        if receiver in self.down:
            return
        listening = self._listening.get(address)
        if listening is None or not listening.loop.alive:
            self._tell(back_ms, loop, future, ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
            return
        sender = self._machines[loop.address]
        number = next(self._numbers)
        one = End(number, loop, sender, address)
        other = End(number, listening.loop, receiver, (loop.address, 20_000 + number))
        one.other, other.other = other, one
        self._ends[one] = self._ends[other] = None
        listening.accept(Descriptor(self, other))
        self._tell(back_ms, loop, future, Descriptor(self, one))

    def _tell(self, back_ms: int, loop: Loop, future: asyncio.Future[Descriptor], what: Descriptor | OSError) -> None:
        def tell() -> None:
            if future.done():
                if isinstance(what, Descriptor):
                    what.close()
            elif isinstance(what, OSError):
                future.set_exception(what)
            else:
                future.set_result(what)

        self.scheduler.after(back_ms, lambda: _soon(loop, tell))

    def open_descriptor(self, descriptor: Descriptor) -> int:
        """Allocate a number for a descriptor."""
        number = next(self._file_numbers)
        self.descriptors[number] = descriptor
        return number

    def process_ended(self, loop: Loop, *, power: bool) -> None:
        """Close the connections of a process, as its kernel does; after a loss of power nothing more is sent."""
        for address, listening in list(self._listening.items()):
            if listening.loop is loop:
                del self._listening[address]
        for end in [each for each in self._ends if each.loop is loop]:
            if power:
                end.closed = True
                end._queue.clear()
                del self._ends[end]
            else:
                self.close(end)

    def close(self, end: End, *, hard: bool = False) -> None:
        """Close an end: sent bytes still arrive, unless there are unread ones."""
        if end.closed:
            return
        end.closed = True
        end.on_readable = end.on_writable = None
        self._ends.pop(end, None)
        if not end.over:
            self._send(end, Sign.RESET if end.inbox or hard else Sign.END)

    # Bytes.

    def send(self, end: End, data: bytes) -> None:
        """Send bytes to the other side."""
        end.in_flight += len(data)
        rng = self._stream(end.machine)
        if len(data) > 1 and rng.random() < 0.1:  # the receiver may receive it in two pieces
            middle = rng.randrange(1, len(data))
            self._send(end, data[:middle])
            self._send(end, data[middle:])
        else:
            self._send(end, data)

    def _send(self, end: End, packet: Packet) -> None:
        rng = self._stream(end.machine)
        delay_ms = self._delay(rng)
        if end.cut:
            self.scheduler.after(delay_ms, self._over, end)
            return
        if self.weather.loss and rng.random() < self.weather.loss:
            delay_ms += LOST_MS
            if isinstance(packet, bytes) and rng.random() < CUTS_OF_LOSSES:
                packet = packet[: rng.randrange(len(packet))]
                end.cut = True
                self.scheduler.after(delay_ms + 1, self._cut, end, rng.random() < 0.5)
        end._queue.append((self.scheduler.now_ms + delay_ms, packet))
        if not end._busy:
            end._busy = True
            self.scheduler.after(delay_ms, self._pump, end)

    def _cut(self, end: End, half: bool) -> None:
        self._over(end.other)
        if not half:
            self._over(end)

    def _pump(self, end: End) -> None:
        """Deliver what is due."""
        queue, now_ms = end._queue, self.scheduler.now_ms
        blocked = self._is_blocked(end.machine, end.other.machine)
        while queue and queue[0][0] <= now_ms and not blocked:
            self._deliver(end, queue.popleft()[1])
        end._busy = bool(queue)
        if queue:
            self.scheduler.after(SEND_AGAIN_MS if blocked else queue[0][0] - now_ms, self._pump, end)

    def _deliver(self, end: End, packet: Packet) -> None:
        other = end.other
        if other.machine in self.down:
            return
        if other.closed:
            if packet is not Sign.RESET and not end.over and not end.closed:
                self._over(end)
            return
        if packet is Sign.RESET:
            self._over(other)
        elif packet is Sign.END:
            other.ended = True
            other.notify()
        elif not other.over:
            other.inbox += packet
            other.notify()

    def _over(self, end: End) -> None:
        if end.closed or end.over:
            return
        end.over = True
        end._queue.clear()
        end.notify()
        if end.on_writable is not None:
            end.loop.call_soon(end.writable)

    # Chance.

    def _is_blocked(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.blocked

    def _delay(self, rng: random.Random) -> int:
        """Return a delay: mostly short, sometimes many times as long."""
        drawn = rng.random()
        factor = 1.0 if drawn < 0.9 else 10.0 * (drawn - 0.8)
        return int(self.weather.delay_ms * factor * rng.random())

    def _stream(self, sender: int) -> random.Random:
        known = self._streams.get(sender)
        if known is None:
            known = self._streams[sender] = stream("sockets", self._seed, sender)
        return known


class Descriptor:
    """A process's descriptor of an end: asyncio's socket. Without an end it is a listening one."""

    def __init__(self, network: Network, end: End | None) -> None:
        self._network = network
        self.end = end
        self._number = network.open_descriptor(self)
        if end is not None:
            end.descriptors += 1

    def fileno(self) -> int:
        """See `socket`."""
        return self._number

    def getsockname(self) -> tuple[str, int]:
        """See `socket`; for a listening one."""
        return self._network.bound[self._number]

    def dup(self) -> Descriptor:
        """See `socket`."""
        return Descriptor(self._network, self.end)

    def setsockopt(self, *_: object) -> None:
        """See `socket`: nothing to do."""

    def setblocking(self, *_: object) -> None:
        """See `socket`: nothing to do."""

    def send(self, data: bytes | bytearray | memoryview, _flags: int = 0) -> int:
        """See `socket`."""
        end = self._open_end()
        if end.over:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if not end.loop.alive:
            return len(data)  # the process has died during the call
        room = WINDOW_BYTES - end.in_flight
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        part = bytes(data[:room])
        self._network.send(end, part)
        return len(part)

    def wait_for_room(self, callback: Callable[[], object] | None) -> bool:
        """Call back whenever there is room, until this is called with None."""
        end = self._open_end()
        had = end.on_writable is not None

        def call() -> None:
            assert callback is not None
            callback()

        end.on_writable = None if callback is None else call
        if callback is not None and (end.in_flight < WINDOW_BYTES or end.over):
            end.loop.call_soon(end.writable)
        return had

    def close(self) -> None:
        """Close this descriptor; with the last one the end is closed, too."""
        if self._number < 0:
            return
        del self._network.descriptors[self._number]
        self._number = -1
        end = self.end
        if end is not None:
            end.descriptors -= 1
            if not end.descriptors:
                self._network.close(end)

    def _open_end(self) -> End:
        if self.end is None or self._number < 0:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return self.end


def _soon(loop: Loop, action: Callable[[], None]) -> None:
    loop.call_soon(action)
