"""A session with a ZooKeeper on the broker's event loop; hides the threads of kazoo.

Theory of operation: every request is passed to kazoo at once, so they reach ZooKeeper in order, and its answer is
brought to the loop. Watches and changes of the connection are one callback: its receiver checks everything again.
kazoo reconnects by itself, and begins a new session when ZooKeeper reports that the last one has expired.

kazoo's thread would keep alive the session of a broker whose event loop is stuck, so that nobody could replace it. So
the thread shows that the broker is alive only while the loop was seen within a session timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from sparkonce.broker_lite.cluster.zookeeper_nodes import Check, Create, Operation, SetData
from sparkonce.broker_lite.server.zookeeper_session import (
    NO_SESSION,
    BadVersionError,
    ConnectionGoneError,
    Node,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
)

RECONNECT_S: Final = 0.05
MAX_RECONNECT_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 1.0
LOOKS_PER_TIMEOUT: Final = 6
"""How often per timeout the loop shows that it is running."""
_ERRORS: Final[dict[type[Exception], type[ZooKeeperError]]] = {
    exceptions.BadVersionError: BadVersionError,
    exceptions.ConnectionClosedError: ConnectionGoneError,
    exceptions.ConnectionLoss: ConnectionGoneError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.NoNodeError: NoNodeError,
    exceptions.SessionExpiredError: ConnectionGoneError,
}
"""By kazoo's errors; all others are a plain `ZooKeeperError`."""

logger = logging.getLogger(__name__)
# It logs each attempt to connect; the important ones are logged here and by the session's owner.
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.CRITICAL)


def _nothing() -> None:
    """Do nothing."""


class ZooKeeperClient:
    """See `ZooKeeperSession`."""

    def __init__(self, connect: str, timeout_ms: int, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare to connect.

        Args:
            connect: `host:port,host:port/chroot`.
            timeout_ms: how long a session lasts without a sign of life.
            loop: the event loop of the callbacks.
        """
        retry = KazooRetry(max_tries=-1, delay=RECONNECT_S, max_delay=MAX_RECONNECT_S, max_jitter=0)
        self._kazoo = KazooClient(connect, timeout_ms / 1000, connection_retry=retry, logger=_kazoo_logger)
        self._kazoo.add_listener(lambda state: self._on_loop(self._changed, state, self._session_of_kazoo()))
        self._loop = loop
        self.on_event = _nothing
        self._closing: threading.Thread | None = None
        self.session = NO_SESSION
        self.connected = False
        self.timeout_ms = timeout_ms
        self._loop_seen_s = time.monotonic()
        self._unresolved: set[str] = set()
        """The hosts that could not be resolved at the last attempt."""
        self._watch_connection()

    def start(self) -> None:
        """See `ZooKeeperSession`."""
        self._show_loop()
        self._kazoo.start_async()

    def _show_loop(self) -> None:
        self._loop_seen_s = time.monotonic()
        if self._closing is None:
            self._loop.call_later(self.timeout_ms / 1000 / LOOKS_PER_TIMEOUT, self._show_loop)

    def close(self) -> None:
        """See `ZooKeeperSession`; takes `CLOSE_TIMEOUT_S` at most."""
        if self._closing is None:
            self._closing = threading.Thread(target=self._close, name="zookeeper-close", daemon=True)
            self._closing.start()
            self._closing.join(CLOSE_TIMEOUT_S)

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """See `ZooKeeperSession`."""
        data, stat = await self._answer(self._kazoo.get_async(path, self._watched if watch else None))
        return Node(data, stat.version, stat.ephemeralOwner)

    async def find(self, path: str, *, watch: bool = False) -> Node | None:
        """See `ZooKeeperSession`."""
        stat = await self._answer(self._kazoo.exists_async(path, self._watched if watch else None))
        return None if stat is None else Node(b"", stat.version, stat.ephemeralOwner)

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """See `ZooKeeperSession`."""
        found: list[str] = await self._answer(self._kazoo.get_children_async(path, self._watched if watch else None))
        return found

    async def make_path(self, path: str) -> None:
        """See `ZooKeeperSession`."""
        await self._answer(self._kazoo.ensure_path_async(path))

    async def sync(self) -> None:
        """See `ZooKeeperSession`."""
        await self._answer(self._kazoo.sync_async("/"))

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[Any]:
        """See `ZooKeeperSession`."""
        transaction = self._kazoo.transaction()
        for each in operations:
            match each:
                case Create():
                    transaction.create(each.path, each.data, ephemeral=each.ephemeral)
                case SetData():
                    transaction.set_data(each.path, each.data, each.version)
                case Check():
                    transaction.check(each.path, each.version)
                case _:
                    transaction.delete(each.path, each.version)
        return self._answer(transaction.commit_async())

    def _answer(self, result: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        result.rawlink(lambda done: self._on_loop(_settle, future, done))
        return future

    def _watched(self, _: object) -> None:
        self._on_loop(self.on_event)

    def _changed(self, state: str, session: int) -> None:
        self.connected = state == KazooState.CONNECTED
        if state == KazooState.LOST:
            self.session = NO_SESSION
        elif session:
            self.session = session
        self.on_event()

    def _session_of_kazoo(self) -> int:
        known = self._kazoo.client_id
        return NO_SESSION if known is None else int(known[0])

    def _on_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _close(self) -> None:
        with contextlib.suppress(KazooException, KazooTimeoutError, OSError):
            self._kazoo.stop()
            self._kazoo.close()

    def _watch_connection(self) -> None:
        """Read what kazoo does not report: the granted timeout, unresolved hosts; end a stuck session.

        ZooKeeper has its own limits for timeouts. kazoo returns two thirds of it: how long it waits for a
        sign of life.
        """
        connection = self._kazoo._connection
        connect, ping, expand = connection._connect, connection._send_ping, connection._expand_client_hosts

        def connecting(*arguments: Any) -> Any:
            self._check_loop()
            read_timeout_ms, connect_timeout_ms = connect(*arguments)
            self.timeout_ms = int(read_timeout_ms * 3 / 2)
            return read_timeout_ms, connect_timeout_ms

        def pinging(*arguments: Any) -> Any:
            self._check_loop()
            return ping(*arguments)

        def expanding() -> Any:
            found = expand()
            self._report_unresolved({host.strip() for host, _ in self._kazoo.hosts} - {each[0] for each in found})
            return found

        connection._connect, connection._send_ping, connection._expand_client_hosts = connecting, pinging, expanding

    def _report_unresolved(self, hosts: set[str]) -> None:
        for host in sorted(hosts - self._unresolved):
            logger.warning("ZooKeeper: the host %s cannot be resolved; it is tried again", host)
        self._unresolved = hosts

    def _check_loop(self) -> None:
        if time.monotonic() - self._loop_seen_s > self.timeout_ms / 1000:
            raise ConnectionDropped("the broker's event loop is stuck")


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if not result.successful():
        future.set_exception(_error(result.exception))
        return
    found = result.value
    errors = [each for each in found if isinstance(each, Exception)] if isinstance(found, list) else []
    caused = [each for each in errors if not isinstance(each, RolledBackError | RuntimeInconsistency)]
    if errors:
        future.set_exception(_error((caused or errors)[0]))
    else:
        future.set_result(found)


def _error(error: Exception) -> ZooKeeperError:
    return _ERRORS.get(type(error), ZooKeeperError)(f"{type(error).__name__} {error}".rstrip())
