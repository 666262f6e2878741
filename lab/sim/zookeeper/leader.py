"""Decisions of the leader of a simulated ZooKeeper, and its sessions.

Theory of operation: the decided transactions are one list (`history`), which each server applies in order,
sooner or later. The leader appends what servers forward to it, and rejects requests of a session that has
ended or has moved to another connection. It expires sessions that were silent for their timeout. It learns
of a session's activity from the server that the session's client is connected to, which reports it twice a tick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.sim.scheduler import stream
from lab.sim.zookeeper.tree import Transaction, Tree
from lab.sim.zookeeper.wire import Roads
from sparkonce.broker_lite.cluster.zookeeper_nodes import ANY_VERSION, Delete
from sparkonce.broker_lite.server.zookeeper_session import NO_SESSION, ConnectionGoneError, ZooKeeperError

if TYPE_CHECKING:
    from lab.sim.scheduler import Scheduler
    from lab.sim.zookeeper.plan import ZooKeeperPlan

_FIRST_SESSION = 0x100


@dataclass(slots=True)
class Session:
    """A client's session, as the leader knows it."""

    number: int
    timeout_ms: int
    ends_ms: int
    connection: object
    """The connection from which its requests come."""
    client: object
    """Who began it: each start of a broker has one client, with one session after the other."""


class Leadership:
    """The state that each leader takes over from the previous one."""

    def __init__(self, scheduler: Scheduler, roads: Roads, seed: int, plan: ZooKeeperPlan) -> None:
        self.scheduler = scheduler
        self.roads = roads
        self.plan = plan
        self.lag = stream("lag", seed)
        self.tree = Tree()
        self.history: list[Transaction] = []
        self.sessions: dict[int, Session] = {}
        self.is_calm = True
        """Whether servers lag only by the network: until the cluster has started, and at the end."""
        self.epoch = 1
        """The number of leaders so far."""
        self.machine: int | None = None
        """The machine of the leader; None while there is none."""
        self.on_decided: list[Callable[[Transaction, ZooKeeperError | None], None]] = []
        """Called with each transaction, and why it failed; servers come first."""
        self.on_expired: list[Callable[[int], None]] = []
        """Called with each session when it expires."""
        self._sessions = _FIRST_SESSION
        scheduler.after(plan.tick_ms, self._tick)

    def commit(self, transaction: Transaction) -> ZooKeeperError | None:
        """Apply a transaction; return why it fails, or None."""
        error, _ = self.tree.apply(transaction)
        self.history.append(transaction)
        for listener in self.on_decided:
            listener(transaction, error)
        return error

    def transact(self, connection: object, transaction: Transaction) -> ZooKeeperError | None:
        """Apply a client's transaction."""
        session = self.sessions.get(transaction.session)
        if session is None or session.connection is not connection:
            return ConnectionGoneError("the session has ended, or has moved to another connection")
        if transaction.operations is None:
            del self.sessions[transaction.session]
        return self.commit(transaction)

    def welcome(self, connection: object, client: object, wanted: int, timeout_ms: int) -> int:
        """Begin or resume a session; return its number, 0 if it has ended."""
        ends_ms = self.scheduler.now_ms + timeout_ms
        if not wanted:
            self._sessions += 1
            self.commit(Transaction(self._sessions, ()))
            self.sessions[self._sessions] = Session(self._sessions, timeout_ms, ends_ms, connection, client)
            return self._sessions
        session = self.sessions.get(wanted)
        if session is None:
            return 0
        session.connection, session.ends_ms = connection, ends_ms
        return wanted

    def touch(self, number: int) -> None:
        """Restart a session's timeout."""
        session = self.sessions.get(number)
        if session is not None:
            session.ends_ms = self.scheduler.now_ms + session.timeout_ms

    def remove(self, path: str) -> None:
        """Delete a node of any owner, as an operator may."""
        if self.machine is not None and self.tree.find(path) is not None:
            self.commit(Transaction(NO_SESSION, (Delete(path, ANY_VERSION),)))

    def end_session(self, number: int) -> None:
        """End any session, as an operator may."""
        if self.machine is not None and self.sessions.pop(number, None) is not None:
            self.commit(Transaction(number, None))

    def _tick(self) -> None:
        """Expire sessions."""
        self.scheduler.after(self.plan.tick_ms, self._tick)
        if self.machine is None:
            return
        for session in [each for each in self.sessions.values() if each.ends_ms <= self.scheduler.now_ms]:
            del self.sessions[session.number]
            self.commit(Transaction(session.number, None))
            for listener in self.on_expired:
                listener(session.number)
