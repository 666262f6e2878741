"""Clients that speak the protocol: connections, metadata, requests to leaders and coordinators.

Theory of operation: a client is a coroutine on its own loop. It has one connection to each broker, and learns from any
broker who leads a partition or coordinates a group. Any failure of a request (no connection, connection lost, no
response in time) is an `UnreachableError`; the connection is then closed, and what it still holds may yet arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.sim.machine.loop import SimulatedLoop
from lab.sim.machine.machine import EPOCH_MS
from lab.sim.machine.settings import FIRST_PORT
from lab.sim.machine.sockets import CLIENT
from lab.sim.scheduler import stream
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.frames import SIZE, encode_request_header, read_response_header

if TYPE_CHECKING:
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World
    from sparkonce.kafka.protocol.primitives import Buffer

GROUP: Final = 0
TRANSACTION: Final = 1
"""What FindCoordinator asks for."""


class UnreachableError(Exception):
    """No response: whether the request was handled is unknown."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


class ClientConnection(asyncio.Protocol):
    """One connection; responses come in the order of the requests."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, int, int, asyncio.Future[bytes]]] = deque()
        self._received = bytearray()
        self._correlation_id = 0
        self.closed = False
        self.sends_rubbish = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """See asyncio."""
        self.close()

    def close(self) -> None:
        """Close it; requests in flight get no response."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()
        waiting, self._waiting = self._waiting, deque()
        for _, _, _, future in waiting:
            if not future.done():
                future.set_exception(UnreachableError("the connection is closed"))

    def stop_reading(self) -> None:
        """Leave arriving bytes in the kernel."""
        assert self._transport is not None
        self._transport.pause_reading()

    def read_on(self) -> None:
        """Read what has arrived, and continue reading."""
        assert self._transport is not None
        self._transport.resume_reading()

    def send(self, data: Buffer) -> None:
        """Send raw bytes."""
        assert self._transport is not None
        self._transport.write(bytes(data))

    def request(self, api_key: int, version: int, body: Buffer, *, answered: bool = True) -> asyncio.Future[bytes]:
        """Send a request; the future returns the response body."""
        self._correlation_id += 1
        header = encode_request_header(api_key, version, self._correlation_id, "simulated")
        future = self._loop.create_future()
        self.send(SIZE.pack(len(header) + len(body)) + header + bytes(body))
        if self.closed:
            future.set_exception(UnreachableError("the connection is closed"))
        elif answered:
            self._waiting.append((self._correlation_id, api_key, version, future))
        else:
            future.set_result(b"")
        return future

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        received = self._received
        received += data
        while len(received) >= SIZE.size:
            (size,) = SIZE.unpack_from(received)
            if len(received) < SIZE.size + size:
                return
            frame = bytes(received[SIZE.size : SIZE.size + size])
            del received[: SIZE.size + size]
            if self.sends_rubbish and not self._waiting:
                continue  # part of it was a request after all
            correlation_id, api_key, version, future = self._waiting.popleft()
            answered, position = read_response_header(api_key, version, frame)
            assert answered == correlation_id, f"request {correlation_id} is due, and {answered} is answered"
            if not future.done():
                future.set_result(frame[position:])


class Client:
    """A process that sends requests and never dies."""

    def __init__(self, world: World, machines: Sequence[Machine] | None = None) -> None:
        """`machines` are the brokers that it asks: all of the cluster by default."""
        self.world = world
        self.machines = list(world.brokers.values()) if machines is None else machines
        self.number = number = len(world.client_loops) + 1
        address = f"10.1.0.{number}"
        world.network.know(address, CLIENT)
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            world.scheduler, world.network, address, self._on_error
        )
        world.client_loops.append(self.loop)
        self.rng = stream("client", world.plan.seed, number)
        self._connections: dict[Address, ClientConnection] = {}
        self._leaders: dict[tuple[str, int], Address] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the client's loop."""
        self.loop.call_soon(self._begin, coroutine)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.loop.create_task(coroutine).add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if error is not None:
            self._on_error({"message": "task", "exception": error})

    def _on_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.world.mistake(f"client {self.number}: {context.get('message')}: {error!r}", error)

    def now_ms(self) -> int:
        """Return the time of day."""
        return EPOCH_MS + self.world.scheduler.now_ms

    async def pause(self, delay_ms: int) -> None:
        """Sleep."""
        await asyncio.sleep(delay_ms / 1000)

    async def back_off(self) -> None:
        """Wait before a retry."""
        await self.pause(self.world.plan.settings.backoff_ms)

    # Requests.

    port = FIRST_PORT
    """The port of the listener that this client uses."""

    def some_broker(self) -> Address:
        """Return any broker's address."""
        return Address(self.rng.choice(self.machines).address, self.port)

    async def connection(self, address: Address) -> ClientConnection:
        """Return the connection to a broker, opened if needed.

        Raises:
            UnreachableError: if there is none.
        """
        found = self._connections.get(address)
        if found is None or found.closed:
            try:
                async with asyncio.timeout(self.timeout_ms / 1000):
                    _, protocol = await self.loop.create_connection(lambda: ClientConnection(self.loop), *address)
            except (OSError, TimeoutError) as error:
                raise UnreachableError(str(error)) from None
            assert isinstance(protocol, ClientConnection)
            await self.greet(protocol)
            found = self._connections[address] = protocol
        return found

    async def greet(self, connection: ClientConnection) -> None:
        """Send the first requests of a new connection.

        Raises:
            UnreachableError: if that fails.
        """

    @property
    def timeout_ms(self) -> int:
        """The timeout of requests."""
        return self.world.plan.settings.timeout_ms * 3

    async def exchange(self, address: Address, api_key: int, version: int, body: Buffer, patience_ms: int = 0) -> bytes:
        """Send a request and return the response body; `patience_ms` is added to the timeout.

        Raises:
            UnreachableError: if there is none.
        """
        connection = await self.connection(address)
        try:
            async with asyncio.timeout((self.timeout_ms + patience_ms) / 1000):
                return await connection.request(api_key, version, body)
        except TimeoutError:
            connection.close()
            raise UnreachableError("no answer in time") from None

    async def ask(self, address: Address, api_key: ApiKey, version: int, *, patience_ms: int = 0, **fields: Any) -> Any:
        """Like `exchange`, with generated codecs.

        Raises:
            UnreachableError: if there is no answer.
        """
        message = apis.request(api_key, version, **fields)
        body = await self.exchange(address, api_key, version, apis.encode_request(message, version), patience_ms)
        return apis.decode_response(api_key, version, body)

    # Leaders and coordinators.

    async def leader(self, topic: str, partition: int) -> Address:
        """Return the leader of a partition as some broker knows it.

        Raises:
            UnreachableError: if no broker knows.
        """
        found = self._leaders.get((topic, partition))
        if found is None:
            await self._look_for_leaders(topic)
            found = self._leaders.get((topic, partition))
            if found is None:
                raise UnreachableError("nobody leads")
        return found

    def forget_leader(self, topic: str, partition: int) -> None:
        """Look up the leader again the next time."""
        self._leaders.pop((topic, partition), None)

    async def _look_for_leaders(self, topic: str) -> None:
        version = self.rng.choice((1, 5, 9, 12))
        wanted = [(None, topic)] if version >= 10 else [(topic,)]
        if version >= 4:
            fields: dict[str, Any] = {"topics": wanted, "allow_auto_topic_creation": False}
        else:
            fields = {"topics": wanted}
        answer = await self.ask(self.some_broker(), ApiKey.METADATA, version, **fields)
        nodes = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        for each in answer.topics:
            for partition in each.partitions if not each.error_code else ():
                if partition.leader_id in nodes and not partition.error_code:
                    self._leaders[each.name, partition.partition_index] = nodes[partition.leader_id]

    async def coordinator(self, kind: int, name: str) -> Address:
        """Return the coordinator of a group or a transactional id as some broker knows it.

        Raises:
            UnreachableError: if no broker knows.
        """
        found = self._coordinators.get((kind, name))
        if found is None:
            version = self.rng.choice((1, 3))
            answer = await self.ask(self.some_broker(), ApiKey.FIND_COORDINATOR, version, key=name, key_type=kind)
            if answer.error_code != ErrorCode.NONE:
                raise UnreachableError(ErrorCode.of(answer.error_code).name)
            found = self._coordinators[kind, name] = Address(answer.host, answer.port)
        return found

    def forget_coordinator(self, kind: int, name: str) -> None:
        """Look up the coordinator again the next time."""
        self._coordinators.pop((kind, name), None)


class Guest(Client):
    """A client that owns resources, changes them while there are faults, and checks them at the end."""

    is_over = False
    """Whether it changes nothing more."""
    has_looked = False
    """Whether it has checked its resources at the end."""
    _has_worked = False
    """Whether its last change is answered, or given up."""

    def begin(self) -> None:
        """Begin."""
        self.run(self._work())

    def end(self) -> None:
        """Stop changing things."""
        self.is_over = True

    def look_around(self) -> None:
        """Check its resources."""
        self.run(self._look())

    async def _work(self) -> None:
        await self.work()
        self._has_worked = True

    async def _look(self) -> None:
        while not self._has_worked:
            await self.back_off()
        await self.look()
        self.has_looked = True

    async def work(self) -> None:
        """Work until the faults are over."""
        raise NotImplementedError

    async def look(self) -> None:
        """Check the final state, and report violations."""
        raise NotImplementedError
