"""A broker's own node in ZooKeeper: while it exists, others know that the broker is alive, and its address."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import Create, Delete
from sparkonce.broker_lite.server.zookeeper_session import (
    NO_SESSION,
    BadVersionError,
    Node,
    NodeExistsError,
    NoNodeError,
    ZooKeeperSession,
)

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence


class OwnNode:
    """The ephemeral node of one broker: it ends with the session that created it."""

    def __init__(self, client: ZooKeeperSession, broker_id: int) -> None:
        self.path = f"{nodes.BROKER_IDS}/{broker_id}"
        self.held_in = NO_SESSION
        """The session in which this broker created it."""
        self._client = client
        self._broker_id = broker_id
        self._data: bytes | None = None
        self._lock_id = ""

    def announce(self, incarnation: uuid.UUID, addresses: Sequence[tuple[str, str, int]], lock_id: str) -> None:
        """Set its content; before that it is not created."""
        self._lock_id = lock_id
        listeners = [{"name": name, "host": host, "port": port} for name, host, port in addresses]
        document = {"incarnation": str(incarnation), "lock": lock_id, "listeners": listeners}
        self._data = json.dumps(document).encode()

    def is_missing(self, session: int) -> bool:
        """Whether it must still be created in a session."""
        return self._data is not None and self.held_in != session

    def is_lost(self, found: Node | None, session: int) -> bool:
        """Check the node; returns whether this broker has just lost it.

        If it was removed or replaced by hand, others count this broker as dead, whatever its session does.
        """
        if self.held_in != session or (found is not None and found.session == session):
            return False
        self.held_in = NO_SESSION
        return True

    async def make(self, session: int) -> str:
        """Create it, replacing one that an earlier session or start of this broker has left.

        Returns what to wait for; if that is empty and the node is still missing, call this again.
        """
        assert self._data is not None
        create = Create(self.path, self._data, ephemeral=True)
        try:
            await self._client.commit([create])
        except NodeExistsError:
            try:
                found = await self._client.get(self.path)
                if found.session != session:
                    if not self._is_own(found.data):
                        another = f"another broker with node.id={self._broker_id}, at {_where(found.data)}"
                        return f"the end of the session of {another}: give each broker its own"
                    await self._client.commit([Delete(self.path, found.version), create])
            except (NoNodeError, BadVersionError):  # it was removed meanwhile
                return ""
        self.held_in = session
        return ""

    def _is_own(self, data: bytes) -> bool:
        """Whether a broker's node is of this start of the broker, or of an earlier one with the same lock.

        The earlier one is dead, as this one has the lock. A copy of its directory has another lock.
        """
        return data == self._data or _field(data, "lock") == self._lock_id != ""


def incarnation_of(data: bytes) -> str:
    """Return the incarnation in a broker's node; empty if there is none."""
    return _field(data, "incarnation")


def _field(data: bytes, name: str) -> str:
    try:
        return str(json.loads(data)[name])
    except (ValueError, KeyError, TypeError):
        return ""


def _where(data: bytes) -> str:
    try:
        return ", ".join(f"{each['host']}:{each['port']}" for each in json.loads(data)["listeners"])
    except (ValueError, KeyError, TypeError):
        return "an unknown address"
