"""Removed safeguards of clusters on ZooKeeper: only seeds that have one can notice.

See `planted/shell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from lab.sim.planted.state_machines import Planted
from lab.sim.replacing import replaced
from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.cluster.zookeeper_nodes import ANY_VERSION, Check, Operation, SetData
from sparkonce.broker_lite.replication.replicas import Replicas
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination
from sparkonce.broker_lite.server.zookeeper_session import NO_SESSION


def _any_version(operation: Operation) -> Operation:
    return operation._replace(version=ANY_VERSION) if isinstance(operation, SetData) else operation


def _decisions_without_versions() -> AbstractContextManager[None]:
    """Let a decision count whatever the versions of the log's head and of the state are."""
    divide = nodes.transactions

    def unguarded(
        check: Check, head: SetData, log: Sequence[Operation], state: Sequence[Operation]
    ) -> list[list[Operation]]:
        return [[*map(_any_version, part)] for part in divide(check, head, log, state)]

    return replaced(nodes, "transactions", unguarded)


def _epoch_unchecked() -> AbstractContextManager[None]:
    """Let a decision count in any controller epoch."""
    divide = nodes.transactions

    def unguarded(
        check: Check, head: SetData, log: Sequence[Operation], state: Sequence[Operation]
    ) -> list[list[Operation]]:
        return [[each for each in part if each != check] for part in divide(check, head, log, state)]

    return replaced(nodes, "transactions", unguarded)


def _session_kept() -> AbstractContextManager[None]:
    """Let a broker believe in its session until it is notified of the end."""
    return replaced(ZooKeeperCoordination, "in_session", property(lambda self: self._own.held_in != NO_SESSION))


def _beats_are_reads() -> AbstractContextManager[None]:
    """Let any server's response show that a broker is alive, also of a server that is cut off from the others."""

    async def read(self: ZooKeeperCoordination) -> None:
        await self._client.find(nodes.CHANGES)

    return replaced(ZooKeeperCoordination, "_show_life", read)


def _lease_from_last_sign() -> AbstractContextManager[None]:
    """Let a heartbeat count as soon as it is answered, though ZooKeeper's leader may not have received it."""

    def shown(self: ZooKeeperCoordination, sent_ms: int) -> None:
        self._lease_until_ms = sent_ms + self._client.timeout_ms

    return replaced(ZooKeeperCoordination, "_shown", shown)


def _decided_at_once() -> AbstractContextManager[None]:
    """Let a controller treat an unacknowledged decision as durable."""
    append = ZooKeeperCoordination.append

    def at_once(self: ZooKeeperCoordination, records: Sequence[Any], base_offset: int, now_ms: int) -> None:
        append(self, records, base_offset, now_ms)
        self.durable_offset = base_offset + len(records)
        self._notify()

    return replaced(ZooKeeperCoordination, "append", at_once)


def _lapses_unnoticed() -> AbstractContextManager[None]:
    """Do not retry what was rejected while a session lapsed for a moment."""
    return replaced(ClusterMember, "_is_in_session", lambda _, coordination: coordination.in_session)


def _proposals_forgotten() -> AbstractContextManager[None]:
    """Let a leader that leads again in the same epoch forget its proposals."""
    return replaced(Replicas, "_remember_proposal", lambda _self, _key: None)


OF_ZOOKEEPER = (
    Planted("decision-without-versions", "ZooKeeper's versions not compared", _decisions_without_versions),
    Planted("controller-epoch-unchecked", "a controller that was replaced is not fenced", _epoch_unchecked),
    Planted("decided-at-once", "decisions that ZooKeeper has not acknowledged", _decided_at_once),
    Planted("session-kept", "a session that is kept after its end", _session_kept),
    Planted("beats-are-reads", "signs of life that one server answers without the others", _beats_are_reads),
    Planted("lease-without-margin", "signs of life that ZooKeeper's leader has not heard of", _lease_from_last_sign),
    Planted("lapses-unnoticed", "a session that lapses for a moment hides a role", _lapses_unnoticed),
    Planted("proposals-forgotten", "a leader forgets what it proposed before it was out", _proposals_forgotten),
)
