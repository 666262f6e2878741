"""A session with a ZooKeeper, as far as a broker uses one: requests in order, watches, and their errors.

`server/zookeeper_client.py` implements it with a real ZooKeeper, the simulator with a simulated one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation

NO_SESSION: Final = 0


class ZooKeeperError(Exception):
    """A request failed, or its connection was lost, so that its outcome is unknown."""


class ConnectionGoneError(ZooKeeperError):
    """A request whose outcome is unknown, as the connection was lost."""


class NoNodeError(ZooKeeperError):
    """The node does not exist."""


class NodeExistsError(ZooKeeperError):
    """The node already exists."""


class BadVersionError(ZooKeeperError):
    """The node has another version."""


class Node(NamedTuple):
    """A node's content."""

    data: bytes
    version: int
    session: int
    """The session of an ephemeral node; else 0."""


class ZooKeeperSession(Protocol):
    """One client, from `start` to `close`, with one session after the other; used on the event loop only.

    Requests reach ZooKeeper in order. Watches and changes of the connection are one callback, `on_event`: its
    receiver checks everything again.
    """

    on_event: Callable[[], None]
    """Called when a watch fires, or the connection or the session has changed."""
    session: int
    """The session's id; `NO_SESSION` before there is one, and after it has expired."""
    connected: bool
    timeout_ms: int
    """The granted session timeout: how long a session lasts without a sign of life."""

    def start(self) -> None:
        """Connect, and stay connected until `close`."""

    def close(self) -> None:
        """End the session, if ZooKeeper answers soon; else it ends by its timeout. A second call does nothing."""

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """Return a node.

        Raises:
            NoNodeError: if there is none.
            ZooKeeperError: for all other errors; so for the other requests.
        """

    async def find(self, path: str, *, watch: bool = False) -> Node | None:
        """Return a node without its data; None if there is none. A watch also fires when it is created."""

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of the nodes below one."""

    async def make_path(self, path: str) -> None:
        """Create a node and its missing parents; `/` is the chroot."""

    async def sync(self) -> None:
        """Wait until this server has all changes that any other one has acknowledged."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[Any]:
        """Execute all operations or none; returns a future, which fails with the error of the first that fails."""
