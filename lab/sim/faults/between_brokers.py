"""Faults between brokers: delayed reads of the controller's log, and faults of requests between them.

Most faults are in the network; here are those of certain requests and responses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.sim.faults.strangers import beside_strangers, has_strangers
from lab.sim.marks import Mark
from sparkonce.broker_lite.replication.leader import Proposal
from sparkonce.kafka.protocol.apis import ApiKey

if TYPE_CHECKING:
    from lab.sim.faults.faults import Faults
    from lab.sim.machine.machine import Machine
    from lab.sim.machine.process import Process
    from lab.sim.world import World
    from sparkonce.broker_lite.cluster.member import ClusterMember


class BetweenBrokers:
    """Intercepts what a broker reads and sends, from when it is a member."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults
        self.has_strangers = has_strangers(world.plan.seed)

    def joined(self, machine: Machine, member: ClusterMember) -> None:
        """Intercept what a broker reads and sends."""
        world, poll, peers = self._world, member.poll, member._peers
        assert peers is not None
        send = peers.send
        process = machine.process

        def late_poll() -> None:
            if world.scheduler.now_ms >= machine.deaf_until_ms:
                poll()

        def sent(broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
            again_ms = self._proposes(machine, request) if request.API_KEY == ApiKey.ALTER_PARTITION else 0
            if request.API_KEY == ApiKey.WRITE_TXN_MARKERS and process is not None:
                self._faults.coordinators.sends_markers(machine.node_id, broker_id)
                then = self._answered_late(process, broker_id, then)
            elif request.API_KEY == ApiKey.ADD_PARTITIONS_TO_TXN and process is not None:
                then = world.words.late(process.loop, request, then, calm=world.is_healed)
            if again_ms and process is not None:
                process.loop.call_later(again_ms / 1000, send, broker_id, request, lambda _: None)
            send(broker_id, request, then)

        member.poll = late_poll  # type: ignore[method-assign]
        if self.has_strangers and hasattr(member, "safe"):  # brokers of former versions have none
            failing = partial(world.mark, Mark.STRANGER)
            both = beside_strangers(member.safe, world.plan.seed, machine.node_id, failing)
            member.safe = both  # type: ignore[assignment]  # names of parameters
        peers.send = sent  # type: ignore[method-assign]

    def _answered_late(self, process: Process, leader: int, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """Deliver a leader's response to markers, delayed if a fault says so."""

        def answered(answer: Any) -> None:
            arrive = partial(process.loop.call_soon, then, answer)
            self._faults.coordinators.answered(process.machine.node_id, leader, arrive)

        return answered

    def _proposes(self, machine: Machine, request: Any) -> int:
        led = () if machine.process is None else machine.process.led
        proposals = [
            (
                (topic.topic_id, each.partition_index),
                Proposal(
                    each.leader_epoch,
                    each.partition_epoch,
                    tuple((member.broker_id, member.broker_epoch) for member in each.new_isr_with_epochs),
                ),
            )
            for topic in request.topics
            for each in topic.partitions
            if (topic.topic_id, each.partition_index) in led
        ]
        return self._faults.proposed(machine, proposals)
