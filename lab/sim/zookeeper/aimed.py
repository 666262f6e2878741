"""ZooKeeper faults that wait for their moment: each tests one safeguard, which random faults hardly reach.

- `lose-decision`: a decision is lost with its connection, and the controller notices only after it has sent
  others, over the next connection of the same session. They must fail, too: the log's head has another version.
- `depose`: an operator deletes `/controller`, to have another broker elected, while a decision is in flight, which
  arrives when the next controller has claimed its epoch. Its session continues, so only that epoch fences it.
- `rack`: a heartbeat was answered which the servers' leader has not received, when the broker and its
  server are cut off from all others; or the broker is paused, and resumes just before its
  session ends, so that the leader does not receive the next heartbeat in time.
- `lapse-in-proposal`: a leader that has just proposed a replica for the ISR is out of its session for a moment, and
  leads again in the same epoch, before it learns that the replica has joined.
- `lapse-in-role`: a controller that has just made itself a leader is out of its session, for less than a check
  interval, when it takes that role.

In a lapse the client's thread is held up until the session may have ended, and then delivers what has waited.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lab.sim.plan import MINIMUMS
from lab.sim.steps import Kind, Step
from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import Check, Create, SetData
from sparkonce.broker_lite.controller.records import NO_LEADER, PartitionChanged
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.sim.clients.clients import Clients
    from lab.sim.faults.strikes import Strikes
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World
    from lab.sim.zookeeper.client import SimulatedClient
    from lab.sim.zookeeper.ensemble import Ensemble
    from lab.sim.zookeeper.server import Server
    from lab.sim.zookeeper.tree import Transaction
    from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.broker_lite.replication.leader import Proposal
    from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperError

_MORE_DECISIONS: Final = 3
_MOST_TRIPS: Final = 8
"""The trips through the network within which a new controller has read the state, and begins to decide."""
_LOOK_MS: Final = 25
"""Those within which a broker checks whether it is in its session."""
_UNHEARD_MS: Final = 800
"""How long a returning leader does not receive decisions: its other followers are back by then."""
_NEWS_MS: Final = (30, 100, 200, 400, 600)
"""When records arrive there."""


class AimedFaults:
    """Carries out steps of the kinds in `actions`."""

    def __init__(self, world: World, ensemble: Ensemble, clients: Clients, strikes: Strikes) -> None:
        self._world = world
        self._clients = clients
        self._strikes = strikes
        self._ensemble = ensemble
        self._armed: dict[Kind, Step] = {}
        self._deposed: Callable[[], None] | None = None
        """Lets the deposed controller receive messages again; called when the next one has claimed its epoch."""
        self.actions: dict[Kind, Callable[[Step], None]] = {
            Kind.LOSE_DECISION: self._arm,
            Kind.DEPOSE: self._arm,
            Kind.RACK: self._arm_rack,
            Kind.LAPSE_IN_PROPOSAL: self._let_one_join,
            Kind.LAPSE_IN_ROLE: self._make_controller_lead,
        }
        ensemble.on_sent.append(self._sent)
        ensemble.on_decided.append(self._decided)

    def end(self) -> None:
        """Inject no more faults."""
        self._armed.clear()
        self._deposed = None

    def _arm(self, step: Step) -> None:
        self._armed[step.kind] = step

    # Requests in flight.

    def _sent(self, broker_id: int, operations: Sequence[Operation], answer: asyncio.Future[Any]) -> None:
        process = self._world.brokers[broker_id].process
        client = None if process is None else process.zookeeper
        if client is None:
            return
        if Kind.RACK in self._armed and all(isinstance(each, Check) for each in operations):
            self._sent_sign(broker_id, client, answer)
            return
        if not any(isinstance(each, SetData) and each.path == nodes.CHANGES for each in operations):
            return
        if (step := self._armed.pop(Kind.LOSE_DECISION, None)) is not None:
            self._lose_decision(client, step)
        elif (step := self._armed.pop(Kind.DEPOSE, None)) is not None:
            self._depose(broker_id, step)

    def _lose_decision(self, client: SimulatedClient, step: Step) -> None:
        world = self._world
        client.lose()
        client.hold(world.scheduler.now_ms + world.plan.settings.session_ms // 4)
        for each in range(_MORE_DECISIONS):
            minimum = MINIMUMS[(step.amount + each) % len(MINIMUMS)]
            world.scheduler.after(each * world.plan.settings.delay_ms, self._clients.change_default, minimum)

    def _depose(self, broker_id: int, step: Step) -> None:
        scheduler, settings = self._world.scheduler, self._world.plan.settings
        pairs = self._between(broker_id, [each.machine for each in self._ensemble.servers])
        self._strikes.block(pairs, settings.session_ms // 2)
        trips_ms = step.amount % _MOST_TRIPS * settings.delay_ms
        self._deposed = lambda: scheduler.after(trips_ms, self._world.network.blocked.difference_update, pairs)
        scheduler.after(0, self._ensemble.remove, nodes.CONTROLLER)

    def _decided(self, transaction: Transaction, error: ZooKeeperError | None) -> None:
        if error is not None:
            return
        for each in transaction.operations or ():
            if isinstance(each, SetData) and each.path == nodes.CONTROLLER_EPOCH and self._deposed is not None:
                self._deposed()
                self._deposed = None
            elif isinstance(each, Create) and each.path.startswith(nodes.CHANGES) and Kind.LAPSE_IN_ROLE in self._armed:
                self._lapse_in_role(transaction.session, each)

    # Heartbeats.

    def _arm_rack(self, step: Step) -> None:
        self._arm(step)
        self._world.scheduler.after(self._world.plan.settings.session_ms, self._cut_some_rack, step)

    def _cut_some_rack(self, step: Step) -> None:
        """Cut a rack off although no heartbeat fits."""
        if self._armed.get(Kind.RACK) is not step:
            return
        for broker_id, machine in self._world.brokers.items():
            client = None if machine.process is None else machine.process.zookeeper
            server = None if client is None else client.server
            if server is not None and server is not self._ensemble.leader:
                del self._armed[Kind.RACK]
                self._cut_rack(broker_id, server)
                return

    def _sent_sign(self, broker_id: int, client: SimulatedClient, answer: asyncio.Future[Any]) -> None:
        """Cut a rack off when a heartbeat is answered after which the session would otherwise last longer."""
        ends_ms = self._end_of_session(client)
        if ends_ms is not None and ends_ms < self._world.scheduler.now_ms + client.timeout_ms:
            answer.add_done_callback(lambda done: self._answered_sign(broker_id, client, done))

    def _answered_sign(self, broker_id: int, client: SimulatedClient, answer: asyncio.Future[Any]) -> None:
        if Kind.RACK in self._armed and not answer.cancelled() and answer.exception() is None:
            server = client.server
            if server is not None and server is not self._ensemble.leader:
                step = self._armed.pop(Kind.RACK)
                if step.amount % 2:
                    self._cut_rack(broker_id, server)
                else:
                    self._hold_up(broker_id, client, step)

    def _end_of_session(self, client: SimulatedClient) -> int | None:
        """Return when ZooKeeper ends a client's session, by what its leader has received so far."""
        session, tick_ms = self._ensemble.sessions.get(client.session), self._ensemble.plan.tick_ms
        return None if session is None else -(-session.ends_ms // tick_ms) * tick_ms

    def _hold_up(self, broker_id: int, client: SimulatedClient, step: Step) -> None:
        """Pause a broker until just before its session ends: its server does not tell the leader in time."""
        machine, scheduler = self._world.brokers[broker_id], self._world.scheduler
        incarnation = machine.incarnation

        def stop() -> None:
            if machine.incarnation == incarnation:
                machine.pause()

        def go_on() -> None:
            if machine.incarnation == incarnation and machine.paused:
                machine.resume()

        def look() -> None:
            ends_ms = self._end_of_session(client)
            trips_ms = (1 + step.amount % _MOST_TRIPS) * self._world.plan.settings.delay_ms
            left_ms = 0 if ends_ms is None else ends_ms - trips_ms - scheduler.now_ms
            scheduler.after(max(left_ms, 0), go_on)

        scheduler.after(1, stop)  # the broker has received the response by then
        scheduler.after(client.timeout_ms // 2, look)  # the leader has received the last heartbeat by then

    def _cut_rack(self, broker_id: int, server: Server) -> None:
        others = [each.machine for each in self._ensemble.servers if each is not server]
        apart_ms = 2 * self._world.plan.settings.session_ms
        self._strikes.block(self._between(broker_id, others), apart_ms)
        server.cut()
        self._world.scheduler.after(apart_ms, server.heal)

    @staticmethod
    def _between(broker: int, servers: Sequence[int]) -> set[tuple[int, int]]:
        return {(broker, each) for each in servers} | {(each, broker) for each in servers}

    # Lapses.

    def _let_one_join(self, step: Step) -> None:
        """Keep a follower from its leader until it is out of sync; on its return the leader proposes it for the ISR."""
        self._arm(step)
        image = self._world.image
        led = [key for key, state in image.partitions() if state.leader != NO_LEADER and self._is_written(key)]
        if led:
            key = led[step.amount % len(led)]
            state = image.partition(key)
            assert state is not None
            *_, follower = (each for each in state.replicas if each != state.leader)
            self._strikes.block({(follower, state.leader)}, self._world.plan.settings.lag_ms * 2)
            self._produce_to(key)

    def proposed(self, leader: Machine, proposals: Sequence[tuple[PartitionKey, Proposal]]) -> None:
        """Strike while a leader proposes one more replica for the ISR, if that is armed."""
        if Kind.LAPSE_IN_PROPOSAL not in self._armed:
            return
        for key, proposal in proposals:
            role = leader.replicas.roles[key]
            if isinstance(role, PartitionLeader) and self._is_written(key):
                for broker_id, _ in proposal.in_sync_replicas:
                    if broker_id not in role.in_sync_replicas:
                        self._lapse_in_proposal(leader, key, broker_id)
                        return

    def _lapse_in_proposal(self, leader: Machine, key: PartitionKey, joining: int) -> None:
        lapse_ms = self._lapse(leader, _LOOK_MS)
        if lapse_ms is None:
            return
        del self._armed[Kind.LAPSE_IN_PROPOSAL]
        leader.blind_until_ms = self._world.scheduler.now_ms + lapse_ms + _UNHEARD_MS
        self._strikes.block({(joining, leader.node_id)}, lapse_ms + _UNHEARD_MS)
        for each in _NEWS_MS:
            self._world.scheduler.after(lapse_ms + each, self._produce_to, key)

    def _is_written(self, key: PartitionKey) -> bool:
        topic = self._world.topic_of(key)
        return topic.partitions > 0 and not topic.name.startswith("__")

    def _produce_to(self, key: PartitionKey) -> None:
        if not self._world.is_healed:
            self._clients.produce_to(key)

    def _make_controller_lead(self, step: Step) -> None:
        """Let the controller make itself the leader of an internal topic's partition, and so its coordinator."""
        world, holder = self._world, self._world.metadata.holder
        led = [key for key, state in world.image.partitions() if holder in state.replicas and holder != state.leader]
        found = [key for key in led if world.topic_of(key).name.startswith("__")]
        if found:
            self._arm(step)
            self._clients.lead(found[step.amount % len(found)], holder)

    def _lapse_in_role(self, session: int, created: Create) -> None:
        machine = self._world.brokers.get(self._world.metadata.holder)
        client = None if machine is None or machine.process is None else machine.process.zookeeper
        if machine is None or client is None or client.session != session:
            return
        for record in nodes.decode_change(created.path, created.data).records:
            if isinstance(record, PartitionChanged) and record.state.leader == machine.node_id:
                role = machine.replicas.roles.get((record.topic_id, record.partition))
                if not isinstance(role, PartitionLeader) and self._lapse(machine, 1) is not None:
                    del self._armed[Kind.LAPSE_IN_ROLE]
                    return

    def _lapse(self, machine: Machine, length_ms: int) -> int | None:
        """Take a broker out of its session for a moment, although that continues; return for how many milliseconds."""
        process = machine.process
        coordination = None if process is None else process.coordination
        if process is None or process.zookeeper is None or not isinstance(coordination, ZooKeeperCoordination):
            return None
        left_ms = coordination._lease_until_ms - coordination._monotonic_ms()
        if left_ms <= 0:
            return None
        process.zookeeper.hold(self._world.scheduler.now_ms + left_ms + length_ms)
        return left_ms + length_ms
