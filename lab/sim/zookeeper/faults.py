"""Faults of a simulated ZooKeeper, and of the network between it and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.steps import Kind, Step
from lab.sim.zookeeper.aimed import AimedFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sim.clients.clients import Clients
    from lab.sim.faults.strikes import Strikes
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World
    from lab.sim.zookeeper.ensemble import Ensemble
    from lab.sim.zookeeper.server import Server
    from lab.sim.zookeeper.tree import Transaction
    from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperError


class ZooKeeperFaults:
    """Carries out steps of the kinds in `actions`."""

    def __init__(self, world: World, ensemble: Ensemble, clients: Clients, strikes: Strikes) -> None:
        self._world = world
        self._ensemble = ensemble
        self._hang_up: Step | None = None
        """Armed for the next decision: its controller loses its connection before the response."""
        self.actions: dict[Kind, Callable[[Step], None]] = {
            Kind.SERVER_DOWN: self._server_down,
            Kind.SERVER_CUT: self._server_cut,
            Kind.SERVERS_DOWN: self._servers_down,
            Kind.NO_WAY: self._no_way,
            Kind.SESSION_ENDS: self._session_ends,
            Kind.HANG_UP: self._arm,
            Kind.CONTROLLER_HANGS: self._controller_hangs,
        }
        self.aimed = AimedFaults(world, ensemble, clients, strikes)
        self.actions |= self.aimed.actions
        ensemble.on_decided.append(self._decided)

    def end(self) -> None:
        """Heal everything."""
        self.aimed.end()
        self._hang_up = None
        self._ensemble.is_calm = True
        for server in self._ensemble.servers:
            server.heal()
            server.start()

    def _machine(self, step: Step) -> Machine:
        """Return the controller's machine two times of three; otherwise the one that the step names."""
        holder = self._world.metadata.holder
        return self._world.brokers[holder if holder and step.amount % 3 else step.target]

    def _server(self, step: Step) -> Server:
        """Return the leader two times of three; otherwise some server."""
        servers = self._ensemble.servers
        leader = self._ensemble.leader
        return leader if leader is not None and step.amount % 3 else servers[step.amount // 3 % len(servers)]

    def _server_down(self, step: Step) -> None:
        server = self._server(step)
        server.crash()
        self._world.scheduler.after(step.duration_ms, server.start)

    def _server_cut(self, step: Step) -> None:
        server = self._server(step)
        server.cut()
        self._world.scheduler.after(step.duration_ms, server.heal)

    def _servers_down(self, step: Step) -> None:
        for server in self._ensemble.servers:
            server.crash()
            self._world.scheduler.after(step.duration_ms, server.start)

    def _no_way(self, step: Step) -> None:
        """Cut a broker off from ZooKeeper, in both directions or in one, but not from other brokers."""
        broker = self._machine(step).node_id
        servers = [each.machine for each in self._ensemble.servers]
        there, back = {(broker, each) for each in servers}, {(each, broker) for each in servers}
        pairs = (there | back, there, back)[step.amount % 4 % 3]
        self._world.network.blocked |= pairs
        self._world.scheduler.after(step.duration_ms, self._world.network.blocked.difference_update, pairs)

    def _session_ends(self, step: Step) -> None:
        """End a broker's session from outside: before its timeout, and without notifying the broker."""
        process = self._machine(step).process
        if process is not None and process.zookeeper is not None and process.zookeeper.session:
            self._ensemble.end_session(process.zookeeper.session)

    def _arm(self, step: Step) -> None:
        self._hang_up = step

    def _decided(self, transaction: Transaction, error: ZooKeeperError | None) -> None:
        step = self._hang_up
        if step is None or error is not None or not transaction.operations:
            return
        self._hang_up = None
        for machine in self._world.brokers.values():
            client = None if machine.process is None else machine.process.zookeeper
            if client is not None and client.session == transaction.session:
                # Every second time a little later, so that requests are in flight.
                self._world.scheduler.after(step.amount % 2 * (step.amount % 7), client.drop)

    def _controller_hangs(self, step: Step) -> None:
        """Pause the controller, mostly until another one has taken over."""
        holder = self._world.metadata.holder
        if holder:
            machine = self._world.brokers[holder]
            incarnation = machine.incarnation
            machine.pause()
            self._world.scheduler.after(step.duration_ms, self._goes_on, machine, incarnation)

    @staticmethod
    def _goes_on(machine: Machine, incarnation: int) -> None:
        if machine.incarnation == incarnation and machine.paused:
            machine.resume()
