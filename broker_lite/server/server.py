"""One broker on one event loop: listens, accepts, flushes periodically, stops cleanly.

One loop with inline reads and writes replaces Kafka's acceptor, processors, request queue and handler pool:
in Python a pool costs more than it gains, since one thread computes at a time anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.log.config import LONG_MAX
from sparkonce.broker_lite.log.housekeeping import Housekeeping, HousekeepingSettings
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Endpoint
from sparkonce.broker_lite.security.authorizer import SecurityFileError
from sparkonce.broker_lite.server.connection import ClientConnection
from sparkonce.broker_lite.server.connections import ConnectionTable
from sparkonce.broker_lite.server.host import Host, SystemHost
from sparkonce.broker_lite.server.limits import (
    HOUSEKEEPING_PAUSE_MS,
    HOUSEKEEPING_SLICE_MS,
    LISTEN_BACKLOG,
    SWEEP_INTERVAL_S,
)
from sparkonce.broker_lite.server.listener import Listener, ServerError
from sparkonce.broker_lite.server.mode import enter_mode

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.metrics import Metrics
    from sparkonce.broker_lite.server.metrics import MetricsServer
    from sparkonce.broker_lite.server.mode import Cluster, ServerMode

__all__ = ["Server", "ServerError"]

logger = logging.getLogger(__name__)

ACCEPT_TURNS = 4
"""Turns of the loop in which an accepted connection is made, and closed again."""

MAX_LOOK_INTERVAL_MS = 1_000
MIN_LOOK_INTERVAL_MS = 50
"""The minimum interval between checks whether housekeeping is due."""


class Server:
    """A broker that listens. `start` and `stop` run on the loop."""

    def __init__(self, config: BrokerConfig, data_dir: str, host: Host | None = None) -> None:
        """`host` is the machine to run on; None for this one."""
        self._config = config
        self._data_dir = data_dir
        self._host = host or SystemHost()
        self.write_gate = self._host.write_gate
        """May delay or reject the broker's writes."""
        self._connections: ConnectionTable | None = None
        self._servers: list[asyncio.Server] = []
        self._listeners: list[Listener] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._housekeeper: Housekeeper | None = None
        self._metrics: MetricsServer | None = None
        self._cluster: Cluster
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Open the data directory and listen; when this returns, clients are served.

        Raises:
            ServerError: if an address cannot be bound, a file of keys or in the data directory cannot be read, or
                the cluster does not accept this broker.
            LogDirectoryError: if the data directory cannot be used.
        """
        with contextlib.ExitStack() as undo:
            bound = []
            for each in self._config.listener_configs:
                sock, listener = self._host.bind(each)
                undo.callback(sock.close)
                bound.append((sock, listener))
            listeners = [listener for _, listener in bound]
            mode = await enter_mode(self._config, self._host, self._data_dir, listeners)
            undo.callback(mode.close)
            try:
                self.broker = self._open(mode)
            except SecurityFileError as error:
                raise ServerError(str(error)) from error
            except OSError as error:  # such as a file without read permission
                text = f"{self._data_dir} cannot be used ({error}): choose another data directory"
                raise ServerError(text) from error
            undo.callback(self.broker.close)
            undo.callback(self._release_all)
            self._cluster = self._join(self.broker, mode, listeners)
            undo.callback(self._cluster.leave)
            await self._listen(self.broker, bound)
            self._start_periodic_work(self.broker)
            await self._cluster.register()
            undo.pop_all()
        for sock, listener in bound:
            _log_address(listener, Endpoint(*sock.getsockname()[:2]))
        logger.info("data in %s", self._data_dir)

    def _open(self, mode: ServerMode) -> Broker:
        host, loop, config = self._host, asyncio.get_running_loop(), mode.config
        metrics = self._new_metrics() if config.metrics_port >= 0 else None
        return Broker(config, host.storage, self._data_dir, host.clock, loop, mode.broker_mode, host.new_uuid, metrics)

    def _new_metrics(self) -> Metrics:
        from sparkonce.broker_lite.node.metrics import Metrics  # few brokers need it

        return Metrics(self._host.perf_counter_ns)

    def _join(self, broker: Broker, mode: ServerMode, listeners: list[Listener]) -> Cluster:
        return mode.join(broker, listeners)

    def _start_periodic_work(self, broker: Broker) -> None:
        """Start the periodic work."""
        assert self._connections is not None
        self._every(SWEEP_INTERVAL_S, self._connections.sweep)
        flush_ms = self._config.log.flush_ms
        # A topic may have its own flush.ms, so check at least every second.
        self._every(min(flush_ms / 1000, 1.0) if flush_ms < LONG_MAX else 1.0, self._flush_due)
        self._housekeeper = Housekeeper(asyncio.get_running_loop(), broker)

    async def _listen(self, broker: Broker, bound: list[tuple[socket.socket, Listener]]) -> None:
        """Serve clients, and requests for metrics."""
        loop = asyncio.get_running_loop()
        self._connections = ConnectionTable(self._config, loop, broker.clock.monotonic_ms, broker.note_refusal)
        broker.on_settings_changed.append(self._connections.reconfigure)
        if self._config.metrics_port >= 0:
            await self._serve_metrics(broker, self._connections)
        for sock, listener in bound:
            accept = functools.partial(self._accept, listener)
            try:
                self._servers.append(await loop.create_server(accept, sock=sock, backlog=LISTEN_BACKLOG))
            except OSError as error:  # two sockets may be bound to one port; only one of them may listen
                port = sock.getsockname()[1]
                also = "it is metrics.port too: " if port == self._config.metrics_port else ""
                where = f"listener {listener.config.name}: cannot listen on port {port} ({error})"
                raise ServerError(f"{where}: {also}choose another port") from error
            self._listeners.append(listener)

    def _release_all(self) -> None:
        """Release every address and timer of a broker that failed to start."""
        for timer in self._timers:
            timer.cancel()
        for server in self._servers:
            server.close()
        if self._metrics is not None:
            self._metrics.stop()

    async def stop(self) -> None:
        """Hand over leadership, close listeners and connections, then flush everything to the disk."""
        await self._cluster.hand_over()
        for timer in self._timers:
            timer.cancel()
        if self._housekeeper is not None:
            self._housekeeper.stop()
        await self._stop_listening()
        if self._metrics is not None:
            self._metrics.stop()
        self._cluster.leave()
        if self.broker is not None:
            self.broker.close()
            logger.info("stopped cleanly")

    async def _stop_listening(self) -> None:
        """Close listeners and connections, including those being accepted.

        asyncio forgets such a connection without closing it, if its server is closed before the connection is made.
        """
        loop = asyncio.get_running_loop()
        for server in self._servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        if self._connections is not None:
            self._connections.close()
        for _ in range(ACCEPT_TURNS):  # the transports' own callbacks come first
            await asyncio.sleep(0)
        for server in self._servers:
            server.close()

    async def _serve_metrics(self, broker: Broker, connections: ConnectionTable) -> None:
        from sparkonce.broker_lite.server.metrics import MetricsServer, render  # few brokers need it

        def page() -> str:
            return render(broker, Counter(each.listener_name for each in connections), self._host.usage())

        host, port = self._config.host_name, self._config.metrics_port
        try:
            self._metrics = await MetricsServer.start(host, port, page)
        except OSError as error:
            text = f"metrics.port={port}: cannot listen on {host}:{port} ({error}): choose another port, or 0 for any"
            raise ServerError(text) from error
        logger.info("metrics on http://%s:%d/metrics", *self._metrics.address)

    @property
    def addresses(self) -> dict[str, str]:
        """The advertised host:port of each listener, in the order of the settings."""
        return {
            listener.config.name: f"{_in_url(listener.endpoint.host)}:{listener.endpoint.port}"
            for listener in self._listeners
        }

    def _accept(self, listener: Listener) -> asyncio.BaseProtocol:
        assert self.broker is not None
        assert self._connections is not None
        if not self._connections.has_room():
            return _Refusal()
        return self._kind_of(listener)(self.broker, asyncio.get_running_loop(), self._connections, listener)

    def _kind_of(self, listener: Listener) -> type[ClientConnection]:
        return _tls_connection() if listener.context is not None else ClientConnection

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
            finally:  # other errors are logged by the loop
                self._timers[index] = loop.call_later(seconds, run)

        self._timers.append(loop.call_later(seconds, run))


class _Refusal(asyncio.Protocol):
    """A connection beyond the limit: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _tls_connection() -> type[ClientConnection]:
    # Imported on first use: most brokers have no TLS listener, and start faster without.
    from sparkonce.broker_lite.server.tls import TlsConnection

    return TlsConnection


def _log_address(listener: Listener, bound: Endpoint) -> None:
    """Log the address that a listener is bound to, and the advertised one, if it differs."""
    own, advertised = (f"{_in_url(each)}:{at}" for each, at in (bound, listener.endpoint))
    config = listener.config
    protocol = "" if config.name == config.protocol else f" ({config.protocol})"
    clients = "" if own == advertised else f"; advertised to clients as {advertised}"
    logger.info("listening on %s://%s%s%s", config.name, own, protocol, clients)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Housekeeper:
    """Runs one broker's retention and compaction beside the clients' requests, on the same loop, until stopped.

    Once a second, or as often as a setting requires, it checks whether work is due. The work is done in slices of at
    most `HOUSEKEEPING_SLICE_MS`, with a pause at least as long in between, so that a request waits for one slice at
    most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        self._loop = loop
        self._broker = broker
        self._config = broker.config
        self._work = Housekeeping(broker.logs, housekeeping_settings(broker.config), broker.clock.monotonic_ms())
        self._timer = loop.call_later(self._look_interval_s, self._run)

    def stop(self) -> None:
        """Cancel the work under way."""
        self._timer.cancel()
        self._work.close()

    def _run(self) -> None:
        broker, clock = self._broker, self._broker.clock
        if broker.config is not self._config:  # a setting has been changed
            self._config = broker.config
            self._work.settings = housekeeping_settings(self._config)
        until_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        more = True
        try:
            while more and clock.monotonic_ms() < until_ms:
                more = self._work.step(clock.now_ms(), clock.monotonic_ms())
        except Exception:
            # After any error clients can still be served; the work under way must be cancelled.
            logger.exception("housekeeping failed; it is tried again")
            self._work.close()
            more = False
        busy = more or self._work.busy
        self._timer = self._loop.call_later(HOUSEKEEPING_PAUSE_MS / 1000 if busy else self._look_interval_s, self._run)

    @property
    def _look_interval_s(self) -> float:
        settings = self._work.settings
        asked_for = min(settings.retention_check_interval_ms, settings.cleaner_backoff_ms, MAX_LOOK_INTERVAL_MS)
        return max(asked_for, MIN_LOOK_INTERVAL_MS) / 1000


def housekeeping_settings(config: BrokerConfig) -> HousekeepingSettings:
    """Return the housekeeping settings from the broker's."""
    return HousekeepingSettings(
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        cleaner_enable=config.log_cleaner_enable,
        cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        cleaner_dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        cleaner_load_factor=config.log_cleaner_io_buffer_load_factor,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
    )
