"""The servers of a simulated ZooKeeper together: one of them leads, a majority decides, and sessions run out.

Theory of operation: what has been decided is one list of transactions (`history`), which each server applies in order,
sooner or later. The leader puts into it what servers forward to it, and refuses what comes from a session that has
ended or has moved to another connection. It ends sessions of which it has heard nothing for their time-out. It hears
of a session from the server that the session's client is connected to, which tells it twice a tick.

A server that is cut off from the others goes on answering reads until `sync_limit_ms`; a leader that is cut off does
so, too, while the others elect another one. With a new leader each session has its full time-out again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.server.zookeeper_session import ConnectionGoneError, ZooKeeperError
from sparkonce.broker_lite.sim.scheduler import stream
from sparkonce.broker_lite.sim.zookeeper.server import Server
from sparkonce.broker_lite.sim.zookeeper.tree import Transaction, Tree
from sparkonce.broker_lite.sim.zookeeper.wire import FIRST_MACHINE, Roads

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.machine.sockets import Network
    from sparkonce.broker_lite.sim.plan import Plan
    from sparkonce.broker_lite.sim.scheduler import Scheduler
    from sparkonce.broker_lite.sim.zookeeper.plan import ZooKeeperPlan
    from sparkonce.broker_lite.sim.zookeeper.server import Connection

_FIRST_SESSION = 0x100


@dataclass(slots=True)
class Session:
    """A client's session, as the leader knows it."""

    number: int
    timeout_ms: int
    ends_ms: int
    connection: Connection
    """From where its requests come."""


class Ensemble:
    """All servers."""

    def __init__(self, scheduler: Scheduler, network: Network, seed: int, plan: ZooKeeperPlan) -> None:
        self.scheduler = scheduler
        self.roads = Roads(scheduler, network, seed)
        self.plan = plan
        self.tree = Tree()
        self.history: list[Transaction] = []
        self.sessions: dict[int, Session] = {}
        self.is_calm = True
        """Whether servers lag no more than the network makes them: until the cluster has come up, and at the end."""
        self.epoch = 1
        """How many leaders there were."""
        self.on_decided: list[Callable[[Transaction, ZooKeeperError | None], None]] = []
        """Called with each transaction, and why it was not done."""
        self.on_elected: list[Callable[[], None]] = []
        self.on_expired: list[Callable[[int], None]] = []
        """Called with each session that has had its time, when it ends."""
        self.lag = stream("lag", seed)
        self.servers = [Server(FIRST_MACHINE + each, self) for each in range(plan.servers)]
        self.leader: Server | None = self.servers[0]
        self._sessions = _FIRST_SESSION
        for server in self.servers:
            server.join()
        scheduler.after(plan.tick_ms, self._tick)

    @property
    def quorum(self) -> int:
        """How many servers decide."""
        return len(self.servers) // 2 + 1

    # What the leader does.

    def commit(self, transaction: Transaction) -> ZooKeeperError | None:
        """Decide a transaction; returns why it cannot be done."""
        error, _ = self.tree.apply(transaction)
        self.history.append(transaction)
        for server in self.servers:
            server.decided()
        for listener in self.on_decided:
            listener(transaction, error)
        return error

    def transact(self, connection: Connection, transaction: Transaction) -> ZooKeeperError | None:
        """Decide what has come from a client."""
        session = self.sessions.get(transaction.session)
        if session is None or session.connection is not connection:
            return ConnectionGoneError("the session has ended, or has moved to another connection")
        if transaction.operations is None:
            del self.sessions[transaction.session]
        return self.commit(transaction)

    def welcome(self, connection: Connection, wanted: int, timeout_ms: int) -> int:
        """Begin a session, or go on with one; returns its number, 0 if it has ended."""
        ends_ms = self.scheduler.now_ms + timeout_ms
        if not wanted:
            self._sessions += 1
            self.commit(Transaction(self._sessions, ()))
            self.sessions[self._sessions] = Session(self._sessions, timeout_ms, ends_ms, connection)
            return self._sessions
        session = self.sessions.get(wanted)
        if session is None:
            return 0
        session.connection, session.ends_ms = connection, ends_ms
        return wanted

    def touch(self, number: int) -> None:
        """Let a session begin its time anew."""
        session = self.sessions.get(number)
        if session is not None:
            session.ends_ms = self.scheduler.now_ms + session.timeout_ms

    def end_session(self, number: int) -> None:
        """End a session, whoever holds it, as an operator may."""
        if self.leader is not None and self.sessions.pop(number, None) is not None:
            self.commit(Transaction(number, None))

    def _tick(self) -> None:
        """End the sessions that have had their time."""
        self.scheduler.after(self.plan.tick_ms, self._tick)
        if self.leader is None:
            return
        for session in [each for each in self.sessions.values() if each.ends_ms <= self.scheduler.now_ms]:
            del self.sessions[session.number]
            self.commit(Transaction(session.number, None))
            for listener in self.on_expired:
                listener(session.number)

    # Who leads.

    def changed(self) -> None:
        """Look at who leads, after a server has come, gone, or was cut off."""
        leader = self.leader
        if leader is not None and leader.is_reachable and len(self._reachable()) >= self.quorum:
            return
        if leader is not None:
            self.leader = None
            for server in self._reachable():  # those that are cut off see it later
                server.leave()
        self.scheduler.after(self.plan.election_ms, self._elect, self.epoch)

    def _reachable(self) -> list[Server]:
        return [each for each in self.servers if each.is_reachable]

    def _elect(self, epoch: int) -> None:
        candidates = self._reachable()
        if self.leader is not None or epoch != self.epoch or len(candidates) < self.quorum:
            return
        self.epoch += 1
        self.leader = max(candidates, key=lambda each: (each.tree.zxid, each.machine))
        for session in self.sessions.values():
            session.ends_ms = self.scheduler.now_ms + session.timeout_ms
        for server in candidates:
            server.leave()
            server.join()
        for listener in self.on_elected:
            listener()

    # The way to the leader and back.

    def ask(self, server: Server, action: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Let the leader do something; `then` is called when the server has all that was decided up to then."""
        epoch = self.epoch

        def arrive() -> None:
            if self.leader is None or self.epoch != epoch:
                return  # the server leaves, and its connections end
            result = action()
            zxid = self.tree.zxid
            server.when_applied(zxid, lambda: then(result))

        server.send_to_leader(arrive)


def ensemble_of(plan: Plan, scheduler: Scheduler, network: Network) -> Ensemble | None:
    """Return the ZooKeeper that a cluster rests on, if it does."""
    return None if plan.zookeeper is None else Ensemble(scheduler, network, plan.seed, plan.zookeeper)
