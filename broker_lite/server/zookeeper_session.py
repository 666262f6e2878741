"""A session with a ZooKeeper, as far as a broker uses one: requests in order, watches, and what may become of them.

`server/zookeeper_client.py` has it with a real ZooKeeper, the simulator with one that it plays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation

NO_SESSION: Final = 0


class ZooKeeperError(Exception):
    """A request that was refused, or of which it is not known what became of it, as the connection was lost."""


class ConnectionGoneError(ZooKeeperError):
    """It is not known what became of the request."""


class NoNodeError(ZooKeeperError):
    """There is no such node."""


class NodeExistsError(ZooKeeperError):
    """There is such a node already."""


class BadVersionError(ZooKeeperError):
    """The node has another version."""


class Node(NamedTuple):
    """What a node holds."""

    data: bytes
    version: int
    session: int
    """Whose it is, if it is ephemeral; else 0."""


class ZooKeeperSession(Protocol):
    """One client, from `start` to `close`, with one session after the other; used on the event loop only.

    Requests reach ZooKeeper in the order in which they were made. What comes unasked, a watch or a change of the
    connection, is one call of `on_event`: whoever is called looks at everything again.
    """

    on_event: Callable[[], None]
    """Called when a watch fires, or the connection or the session has changed."""
    session: int
    """The session's id; `NO_SESSION` before there is one, and after it has expired."""
    connected: bool
    timeout_ms: int
    """How long a session lasts without a sign of life, as ZooKeeper has granted it."""

    def start(self) -> None:
        """Connect, and keep connected until `close`."""

    def close(self) -> None:
        """End the session, if ZooKeeper answers soon; else it ends by its time-out. A second call does nothing."""

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """Return a node.

        Raises:
            NoNodeError: if there is none.
            ZooKeeperError: for all else; so it is for the other requests.
        """

    async def find(self, path: str, *, watch: bool = False) -> Node | None:
        """Return a node without its data; None if there is none. A watch sees it come, too."""

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of the nodes below one."""

    async def make_path(self, path: str) -> None:
        """Make a node and those above it, where they are missing; `/` is the chroot."""

    async def sync(self) -> None:
        """Wait until this server has what any other one has acknowledged."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[Any]:
        """Do all of them or none; returns a future.

        It fails with the error of the first that cannot be done.
        """
