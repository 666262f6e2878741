"""One broker on one event loop: listens, accepts, flushes by the clock, stops cleanly.

One loop with reads and writes inline takes the place of Kafka's acceptor, processors, request queue and handler pool:
in Python a pool costs more than it gives, since one thread computes at a time anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time

from broker_lite.config import BrokerConfig
from broker_lite.handlers.broker import Broker, Clock
from broker_lite.log.config import LONG_MAX
from broker_lite.log.storage import DiskStorage
from broker_lite.server.connection import Connection
from broker_lite.server.limits import CHECKPOINT_INTERVAL_S, LISTEN_BACKLOG

logger = logging.getLogger(__name__)

SYSTEM_CLOCK = Clock(lambda: time.time_ns() // 1_000_000, lambda: time.monotonic_ns() // 1_000_000)


class ServerError(Exception):
    """The broker cannot start; the message says why and what to do."""


class Server:
    """A broker that listens. `start` and `stop` run on the loop."""

    def __init__(self, config: BrokerConfig, data_dir: str) -> None:
        self._config = config
        self._data_dir = data_dir
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Open the data directory and listen; when this returns, clients are answered.

        Raises:
            ServerError: if the address cannot be listened on.
            LogDirectoryError: if the data directory cannot be used.
        """
        loop = asyncio.get_running_loop()
        sock = _listening_socket(self._config.host_name, self._config.port)
        try:
            self.broker = Broker(self._config, DiskStorage(), self._data_dir, SYSTEM_CLOCK, loop)
        except BaseException:
            sock.close()
            raise
        self.broker.host, self.broker.port = self._config.host_name, sock.getsockname()[1]
        self._listener = await loop.create_server(self._accept, sock=sock, backlog=LISTEN_BACKLOG)
        self._every(CHECKPOINT_INTERVAL_S, self.broker.logs.checkpoint)
        flush_ms = self._config.log.flush_ms
        # A topic may have its own flush.ms, so there is a look at least every second.
        self._every(min(flush_ms / 1000, 1.0) if flush_ms < LONG_MAX else 1.0, self._flush_due)
        logger.info("listening on %s:%d, data in %s", self.broker.host, self.broker.port, self._data_dir)

    async def stop(self) -> None:
        """Close listener and connections, then bring everything onto the disk."""
        for timer in self._timers:
            timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)  # the transports' own callbacks come first
        if self.broker is not None:
            self.broker.close()
            logger.info("stopped cleanly")

    @property
    def host(self) -> str:
        """The host that is listened on and told to clients."""
        return self._config.host_name

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self.broker is not None
        return self.broker.port

    def _accept(self) -> asyncio.BaseProtocol:
        assert self.broker is not None
        if len(self._connections) >= self._config.max_connections:
            self.broker.note_refusal(f"connection refused: max.connections={self._config.max_connections} are open")
            return _Refusal()
        connection = Connection(self.broker, asyncio.get_running_loop(), self._connections.discard)
        self._connections.add(connection)
        return connection

    def _flush_due(self) -> None:
        assert self.broker is not None
        self.broker.logs.flush_due(self.broker.clock.now_ms())

    def _every(self, seconds: float, work: object) -> None:
        assert callable(work)
        loop = asyncio.get_running_loop()
        index = len(self._timers)

        def run() -> None:
            try:
                work()
            except OSError:
                logger.exception("housekeeping failed; it is tried again")
            self._timers[index] = loop.call_later(seconds, run)

        self._timers.append(loop.call_later(seconds, run))


class _Refusal(asyncio.Protocol):
    """A connection beyond the limit: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ServerError(f"host.name={host} cannot be resolved: {error}") from error
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
        except OSError as error:
            raise ServerError(f"cannot listen on {host}:{port} ({error}): choose another port, or 0 for any") from error
        sock.setblocking(False)
        undo.pop_all()
    return sock
