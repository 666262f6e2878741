"""A client of the simulated ZooKeeper, as `server/zookeeper_client.py` is one of a real one: it behaves like kazoo.

kazoo's threads run beside the event loop: they connect, and fail requests in flight when a connection is lost. What
they deliver to the loop comes later: responses in order, watches in order, and states of the connection in order, but
the three independently. So the loop may receive a watch after a newer response, and may send a request, in a
new connection, before it learns that an earlier request is lost. A paused process pauses its threads,
too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from lab.sim.scheduler import stream
from lab.sim.zookeeper.messages import Answer, Event, Hello, Kind, Request, Welcome
from lab.sim.zookeeper.server import ServedConnection, Server
from sparkonce.broker_lite.cluster import zookeeper_nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation
from sparkonce.broker_lite.server.zookeeper_session import NO_SESSION, ConnectionGoneError, Node, ZooKeeperError

if TYPE_CHECKING:
    from lab.sim.machine.loop import SimulatedLoop
    from lab.sim.zookeeper.ensemble import Ensemble

_RETRY_MS: Final = 5
_MAX_RETRY_MS: Final = 100
"""kazoo's pauses after it has tried all servers, in proportion to other simulated times."""


class _Thread(Enum):
    """A thread that delivers to the loop."""

    CONNECTION = "connection"
    ANSWERS = "answers"
    WATCHES = "watches"


def _nothing() -> None:
    """Ignore a result."""


class SimulatedClient:
    """See `ZooKeeperSession`."""

    def __init__(self, ensemble: Ensemble, seed: int, machine: int, timeout_ms: int, loop: SimulatedLoop) -> None:
        self.on_event: Callable[[], None] = _nothing
        self.session = NO_SESSION
        self.connected = False
        self.timeout_ms = timeout_ms
        self._ensemble = ensemble
        self._machine = machine
        self._wanted_ms = timeout_ms
        self._loop = loop
        self._rng = stream("client", seed, machine, ensemble.scheduler.now_ms)
        self._due_ms = dict.fromkeys(_Thread, 0)
        self.held_until_ms = 0
        """Until when the thread that delivers responses pauses, or paused."""
        # State of kazoo's threads.
        self._connection: ServedConnection | None = None
        self._welcomed = False
        self._number = NO_SESSION
        self._last_zxid = 0
        self._sent: deque[_Asked] = deque()
        self._queue: deque[_Asked] = deque()
        self._servers: list[int] = []
        self._retry_ms = _RETRY_MS
        self._heard_ms = 0
        self._has_expired = False
        self._is_closed = False

    # Used by a broker.

    def start(self) -> None:
        """See `ZooKeeperSession`."""
        self._loop.call_soon(self._attempt)

    def close(self) -> None:
        """See `ZooKeeperSession`."""
        if not self._is_closed:
            if self._welcomed:
                self._send(_Asked(Request(Kind.CLOSE), None))
            self._is_closed = True

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """See `ZooKeeperSession`."""
        return cast("Node", await self._ask(Request(Kind.GET, path, watch=watch)))

    async def find(self, path: str, *, watch: bool = False) -> Node | None:
        """See `ZooKeeperSession`."""
        found: Node | None = await self._ask(Request(Kind.EXISTS, path, watch=watch))
        return None if found is None else found._replace(data=b"")

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """See `ZooKeeperSession`."""
        return cast("list[str]", await self._ask(Request(Kind.CHILDREN, path, watch=watch)))

    async def make_path(self, path: str) -> None:
        """See `ZooKeeperSession`: simulated clusters have no chroot."""
        await self.find(path)

    async def sync(self) -> None:
        """See `ZooKeeperSession`."""
        await self._ask(Request(Kind.SYNC))

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[Any]:
        """See `ZooKeeperSession`."""
        # Operations of a broker of another version have other classes.
        ours = tuple(getattr(zookeeper_nodes, type(each).__name__)(*each) for each in operations)
        future = self._ask(Request(Kind.MULTI, operations=ours))
        for listener in self._ensemble.on_sent:
            listener(self._machine, ours, future)
        return future

    def process_ended(self, *, power: bool) -> None:
        """End the connection, as the kernel does; after a loss of power nobody is notified."""
        connection, self._connection = self._connection, None
        if connection is not None and not power and not self._is_closed:
            connection.end()

    @property
    def server(self) -> Server | None:
        """The server that it is connected to, or None."""
        return self._connection.server if self._connection is not None and self._welcomed else None

    def hold(self, until_ms: int) -> None:
        """Pause the thread that delivers responses until then; what has waited is delivered in order."""
        self.held_until_ms = until_ms
        self._due_ms[_Thread.ANSWERS] = max(self._due_ms[_Thread.ANSWERS], until_ms)

    def lose(self) -> None:
        """End the connection; requests in flight never arrive."""
        if self._connection is not None:
            self._connection.there.close(some=False)
            self._connection.end()

    def drop(self) -> None:
        """Close the connection, if there is one, as the network may at any time."""
        if self._connection is not None:
            self._connection.end()

    # Requests.

    def _ask(self, request: Request) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        asked = _Asked(request, future)
        if self._is_closed or self._has_expired:
            self._settle(asked, None, ConnectionGoneError("the session has ended"))
        elif self._welcomed:
            self._send(asked)
        else:
            self._queue.append(asked)
        return future

    def _send(self, asked: _Asked) -> None:
        assert self._connection is not None
        self._sent.append(asked)
        self._connection.there.send(asked.request)

    def _settle(self, asked: _Asked, result: Any, error: ZooKeeperError | None) -> None:
        if asked.future is not None:
            self._bring(_Thread.ANSWERS, asked.settle, result, error)

    def _bring(self, thread: _Thread, callback: Callable[..., object], *arguments: Any) -> None:
        """Run something on the loop soon, after everything else that the thread has delivered."""
        now_ms = self._ensemble.scheduler.now_ms
        late_ms = int(self._rng.random() ** 2 * (self._ensemble.plan.delivery_ms + 1))
        held_up = thread is _Thread.ANSWERS and now_ms < self.held_until_ms
        due_ms = self._due_ms[thread] = max(self._due_ms[thread] + held_up, now_ms + late_ms)
        self._loop.call_later((due_ms - now_ms) / 1000, callback, *arguments)

    # Connections.

    def _attempt(self) -> None:
        """Try the next server."""
        if self._is_closed:
            return
        self._has_expired = False
        servers = self._ensemble.servers
        if not self._servers:
            self._servers = self._rng.sample(range(len(servers)), len(servers))
        server = servers[self._servers.pop()]
        loop = self._loop
        connection: ServedConnection

        def arrived(message: Any) -> None:
            loop.call_soon(self._received, connection, message)

        def broken() -> None:
            loop.call_soon(self._dropped, connection)

        connection = self._connection = ServedConnection(server, self, self._machine, arrived, broken)
        loop.call_later(self._wanted_ms / 1000 / len(servers), self._welcome_is_due, connection)
        server.connect(connection)
        connection.there.send(Hello(self._number, self._wanted_ms, self._last_zxid))

    def _welcome_is_due(self, connection: ServedConnection) -> None:
        if connection is self._connection and not self._welcomed:
            connection.end()

    def _received(self, connection: ServedConnection, message: Welcome | Answer | Event) -> None:
        if connection is not self._connection:
            return
        self._heard_ms = self._ensemble.scheduler.now_ms
        if isinstance(message, Welcome):
            self._take_welcome(connection, message)
        elif isinstance(message, Event):
            self._bring(_Thread.WATCHES, self._watched)
        else:
            self._last_zxid = message.zxid
            self._settle(self._sent.popleft(), message.result, message.error)

    def _watched(self) -> None:
        self.on_event()

    def _take_welcome(self, connection: ServedConnection, message: Welcome) -> None:
        if not message.session:
            self._connection = None
            self._lose_session()
            return
        self._welcomed, self._number, self._retry_ms = True, message.session, _RETRY_MS
        self._bring(_Thread.CONNECTION, self._tell, True, self._number, message.timeout_ms)
        queue, self._queue = self._queue, deque()
        for asked in queue:
            self._send(asked)
        self._loop.call_later(message.timeout_ms / 3000, self._ping, connection, message.timeout_ms)

    def _ping(self, connection: ServedConnection, timeout_ms: int) -> None:
        """Send a heartbeat, and leave a silent server."""
        if connection is not self._connection:
            return
        if self._ensemble.scheduler.now_ms - self._heard_ms > timeout_ms * 2 // 3:
            connection.end()
            return
        self._send(_Asked(Request(Kind.PING), None))
        self._loop.call_later(timeout_ms / 3000, self._ping, connection, timeout_ms)

    def _dropped(self, connection: ServedConnection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self._welcomed:
            self._welcomed = False
            self._fail_all()
            self._bring(_Thread.CONNECTION, self._tell, False, self._number, self.timeout_ms)
        self._again()

    def _lose_session(self) -> None:
        self._has_expired, self._welcomed = True, False
        self._number, self._last_zxid = NO_SESSION, 0
        self._bring(_Thread.CONNECTION, self._tell, False, NO_SESSION, self.timeout_ms)
        self._fail_all()
        self._again()

    def _fail_all(self) -> None:
        lost = [*self._sent, *self._queue]
        self._sent.clear()
        self._queue.clear()
        for asked in lost:
            self._settle(asked, None, ConnectionGoneError("the connection is lost"))

    def _again(self) -> None:
        pause_ms = 0
        if not self._servers:
            pause_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, _MAX_RETRY_MS)
        self._loop.call_later(pause_ms / 1000, self._attempt)

    def _tell(self, connected: bool, session: int, timeout_ms: int) -> None:
        self.connected, self.session, self.timeout_ms = connected, session, timeout_ms
        self.on_event()


class _Asked:
    """A request without a response yet; without a future nobody waits for it."""

    __slots__ = ("future", "request")

    def __init__(self, request: Request, future: asyncio.Future[Any] | None) -> None:
        self.request = request
        self.future = future

    def settle(self, result: Any, error: ZooKeeperError | None) -> None:
        """Deliver the response to the future."""
        if self.future is None or self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)
