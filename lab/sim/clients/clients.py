"""All clients of a run, and what steps make them do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.clients.admin import Admin
from lab.sim.clients.admin_checker import AdminChecker, has_admin_checker
from lab.sim.clients.bulk import BulkClient, has_bulk
from lab.sim.clients.groups import ClassicMember, GroupClient
from lab.sim.clients.heartbeats import HeartbeatMember
from lab.sim.clients.inspector import Inspector, has_inspector
from lab.sim.clients.intruder import Intruder
from lab.sim.clients.offsets_checker import OffsetsChecker, has_offsets_checker
from lab.sim.clients.operator import Operator, has_operator
from lab.sim.clients.producers import Consumer, Herald, Producer
from lab.sim.clients.retention_checker import RetentionChecker
from lab.sim.clients.scraper import Scraper
from lab.sim.clients.transactional import TransactionalProducer
from lab.sim.machine.settings import has_cleaning, has_intruder, has_metrics
from lab.sim.machine.standalone import StandaloneMachine, has_standalone
from lab.sim.marks import Mark
from lab.sim.world import INTERNAL
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.sim.clients.client import Guest
    from lab.sim.plan import TopicPlan
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey


class Clients:
    """The clients of a cluster, and of a standalone broker beside it if there is one."""

    def __init__(self, world: World) -> None:
        seed = world.plan.seed
        self._world = world
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.transactional: list[TransactionalProducer] = []
        self.members: list[GroupClient] = []
        self.admin = Admin(world)
        self.intruder = Intruder(world) if has_intruder(seed) else None
        self.operator = Operator(world) if has_operator(seed) else None
        self.retention_checker = RetentionChecker(world) if has_cleaning(seed) else None
        self.standalone = StandaloneMachine(world) if has_standalone(seed) else None
        self._herald: Herald | None = None
        self.guests = list(self._guests())

    def _guests(self) -> Iterator[Guest]:
        """Return the clients that own resources."""
        world, standalone = self._world, self.standalone
        seed = world.plan.seed
        if has_bulk(seed):
            yield BulkClient(world)
        if has_metrics(seed):
            yield Scraper(world)
        if has_admin_checker(seed):
            yield AdminChecker(world)
        if world.plan.groups and has_inspector(seed):
            yield Inspector(world, self.members)
        if OFFSETS_TOPIC in {topic.name for topic in world.plan.topics} and has_offsets_checker(seed):
            yield OffsetsChecker(world)
        if standalone is not None and has_offsets_checker(seed, standalone.node_id):
            yield OffsetsChecker(world, [standalone])
        if standalone is not None and has_admin_checker(seed, standalone.node_id):
            yield AdminChecker(world, [standalone])

    def begin(self) -> None:
        """Start all of them, now that the topics exist."""
        world = self._world
        for number in range(len(world.plan.producers)):
            self.producers.append(Producer(world, number))
        keys = [key for key, _ in world.image.partitions() if world.topic_of(key).name not in INTERNAL]
        for key in keys:
            self.consumers.append(Consumer(world, key))
            if world.plan.transactional:
                self.consumers.append(Consumer(world, key, committed=True))
        for number in range(len(world.plan.transactional)):
            self.transactional.append(TransactionalProducer(world, number, keys))
        for each in (self.intruder, self.operator, self.retention_checker, self.standalone, *self.guests):
            if each is not None:
                each.begin()
        for group in world.plan.groups:
            kind = HeartbeatMember if group.by_heartbeats else ClassicMember
            for index in range(group.members):
                self.members.append(kind(world, self.members, group, index))

    def calm(self) -> None:
        """Stop changes; members of groups stay in their groups."""
        for each in (self.operator, self.retention_checker, self.standalone, *self.guests):
            if each is not None:
                each.end()
        for member in self.members:
            member.calm()

    # Called by steps.

    def produce_to(self, key: PartitionKey) -> None:
        """Let all producers of a partition send, and the herald send without looking up the leader first."""
        for producer in self.producers:
            if producer.key == key:
                producer.send(1)
        if self._world.topic_of(key).name not in INTERNAL:
            if self._herald is None:
                self._herald = Herald(self._world)
            self._herald.send(key)

    def elect(self, key: PartitionKey) -> None:
        """Request the election of the preferred leader."""
        self.admin.run(self.admin.elect(self._world.topic_of(key).name, key[1]))

    def change_settings(self, topic: TopicPlan, minimum: int, *, unclean: bool) -> None:
        """Change settings of a topic."""
        self._world.mark(Mark.SETTINGS)
        self.admin.run(self.admin.change_settings(topic, minimum, unclean=unclean))

    def change_default(self, minimum: int) -> None:
        """Change the `min.insync.replicas` of the cluster."""
        self._world.mark(Mark.SETTINGS)
        self.admin.run(self.admin.change_default(minimum))

    def reassign(self, key: PartitionKey, target: tuple[int, ...] | None) -> None:
        """Request a reassignment of a partition; None cancels one."""
        self._world.mark(Mark.MOVE if target is not None else Mark.MOVE_GIVEN_UP)
        self.admin.run(self.admin.reassign(self._world.topic_of(key).name, key[1], target))

    def lead(self, key: PartitionKey, broker_id: int) -> None:
        """Request that one of its replicas leads a partition."""
        state = self._world.image.partition(key)
        if state is not None and broker_id in state.replicas:
            self._world.mark(Mark.FLIP)
            others = [each for each in state.replicas if each != broker_id]
            self.admin.run(self.admin.lead(self._world.topic_of(key).name, key[1], (broker_id, *others)))
