"""The servers of a simulated ZooKeeper: one of them leads, and a majority decides (`leader.py`).

A server that is cut off from the others answers reads until `sync_limit_ms`, and so does a leader, while the others
elect another one. A new leader restarts the timeout of each session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lab.sim.zookeeper.leader import Leadership
from lab.sim.zookeeper.server import Server
from lab.sim.zookeeper.wire import FIRST_MACHINE, Roads

if TYPE_CHECKING:
    from lab.sim.machine.sockets import Network
    from lab.sim.plan import SeedPlan
    from lab.sim.scheduler import Scheduler
    from lab.sim.zookeeper.plan import ZooKeeperPlan
    from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation


class Ensemble(Leadership):
    """All servers."""

    def __init__(self, scheduler: Scheduler, network: Network, seed: int, plan: ZooKeeperPlan) -> None:
        super().__init__(scheduler, Roads(scheduler, network, seed), seed, plan)
        self.on_elected: list[Callable[[], None]] = []
        self.on_sent: list[Callable[[int, Sequence[Operation], asyncio.Future[Any]], None]] = []
        """Called with each transaction of a machine's client, and its result."""
        self.servers = [Server(FIRST_MACHINE + each, self, self._changed) for each in range(plan.servers)]
        self.machine = FIRST_MACHINE
        for server in self.servers:
            server.join()

    @property
    def leader(self) -> Server | None:
        """The leading server, or None."""
        return next((each for each in self.servers if each.machine == self.machine), None)

    def _changed(self) -> None:
        """Elect a leader, after a server has come, gone, or was cut off."""
        leader = self.leader
        reachable = self._reachable()
        if leader is not None and leader.is_reachable and self._is_quorum(reachable):
            return
        if leader is not None:
            self.machine = None
            for server in reachable:  # those cut off notice later
                server.leave()
        self.scheduler.after(self.plan.election_ms, self._elect, self.epoch)

    def _reachable(self) -> list[Server]:
        return [each for each in self.servers if each.is_reachable]

    def _is_quorum(self, servers: list[Server]) -> bool:
        return len(servers) > len(self.servers) // 2

    def _elect(self, epoch: int) -> None:
        candidates = self._reachable()
        if self.machine is not None or epoch != self.epoch or not self._is_quorum(candidates):
            return
        self.epoch += 1
        self.machine = max(candidates, key=lambda each: (each.tree.zxid, each.machine)).machine
        for session in self.sessions.values():
            session.ends_ms = self.scheduler.now_ms + session.timeout_ms
        for server in candidates:
            server.leave()
            server.join()
        for listener in self.on_elected:
            listener()


def ensemble_of(plan: SeedPlan, scheduler: Scheduler, network: Network) -> Ensemble | None:
    """Return a cluster's ZooKeeper, or None."""
    return None if plan.zookeeper is None else Ensemble(scheduler, network, plan.seed, plan.zookeeper)
