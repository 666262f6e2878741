"""Faults of coordinators: leadership that moves away and back, and delayed responses to markers.

A jam tests markers that have waited too long (`node/markers.py`): a leader answers slowly, while its partition moves
to another broker, the transaction ends there, the partition moves back, and the producer is in the middle of the next
transaction when the response finally arrives. It waits for its moment, as an ambush does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.sim.marks import Mark
from lab.sim.steps import Kind, Step
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.offsets import partition_of
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sim.clients.clients import Clients
    from lab.sim.clients.transactional import TransactionalProducer
    from lab.sim.faults.strikes import Strikes
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey

_LOOK_MS: Final = 10
_AWAY_MS: Final = 300
"""How long another broker leads a partition: markers are sent to that one after 100 ms."""
_ROUNDS: Final = 2
_LEAVES: Final = 1
"""The argument with which `happen` lets a member leave."""
_BACK_MS: Final = 150
"""The time after which it returns."""


class CoordinatorFaults:
    """Carries out steps of the kinds in `actions`."""

    def __init__(self, world: World, clients: Clients, strikes: Strikes) -> None:
        self._world = world
        self._clients = clients
        self._strikes = strikes
        self._jam: _Jam | None = None
        self._loss: Step | None = None
        """Armed for the next marker sent."""
        self._dying: tuple[int, int, Step] | None = None
        """Coordinator and leader of the one under way: the leader dies after it has answered."""
        self._lost_member: Step | None = None
        """Armed for the next KIP-848 member that joins."""
        self._dying_coordinator: tuple[int, Step] | None = None
        """The broker separated from its followers meanwhile: it dies after it has sent a member a new epoch."""
        self.actions: dict[Kind, Callable[[Step], None]] = {
            Kind.FLIP: self._flip,
            Kind.LOSE_HEARTBEAT: self._lose_heartbeat,
            Kind.LOSE_MARKER: self._lose_marker,
            Kind.JAM: self._begin_jam,
        }
        world.on_member_joins.append(self._joins)
        world.on_epoch_told.append(self._is_told_an_epoch)

    def end(self) -> None:
        """Heal everything."""
        self._loss = self._dying = self._lost_member = self._dying_coordinator = None
        if self._jam is not None:
            self._jam.release()

    def sends_markers(self, broker_id: int, leader: int) -> None:
        """If a loss is armed, block markers from the leader to its followers, except to the requesting broker."""
        step, self._loss = self._loss, None
        if step is not None:
            self._dying = (broker_id, leader, step)
            others = self._world.brokers.keys() - {broker_id, leader}
            self._strikes.block({(leader, each) for each in others}, 2 * self._world.plan.settings.session_ms)

    def answered(self, broker_id: int, leader: int, then: Callable[[], object]) -> None:
        """Deliver a response to WriteTxnMarkers, now or when a jam is over; the leader may die of it."""
        if self._dying is not None and self._dying[:2] == (broker_id, leader):
            step, self._dying = self._dying[2], None
            self._world.mark(Mark.MARKER_ALONE)
            self._world.scheduler.after(0, self._strikes.die, self._world.brokers[leader], step.duration_ms)
        if self._jam is None or not self._jam.holds(broker_id, leader, then):
            then()

    def _joins(self, coordinator: int) -> None:
        """If a loss is armed, separate a group's coordinator from its followers: a member is about to join."""
        step, self._lost_member = self._lost_member, None
        if step is not None and coordinator != NO_LEADER:
            self._dying_coordinator = (coordinator, step)
            others = self._world.brokers.keys() - {coordinator}
            self._strikes.block({(coordinator, each) for each in others}, self._world.plan.settings.session_ms)

    def _is_told_an_epoch(self, coordinator: int) -> None:
        """Kill a coordinator that has sent a member a new epoch."""
        if self._dying_coordinator is not None and self._dying_coordinator[0] == coordinator:
            step, self._dying_coordinator = self._dying_coordinator[1], None
            self._world.mark(Mark.EPOCH_ALONE)
            self._world.scheduler.after(0, self._strikes.die, self._world.brokers[coordinator], step.duration_ms)

    def _lose_heartbeat(self, step: Step) -> None:
        members = [each for each in self._clients.members if each.plan.by_heartbeats and each.alive]
        if members:
            self._lost_member = step
            members[step.target % len(members)].happen(_LEAVES, _BACK_MS)

    def _lose_marker(self, step: Step) -> None:
        self._loss = step

    def _flip(self, step: Step) -> None:
        """Let another replica lead a partition for a while, mostly one of an internal topic."""
        world = self._world
        keys = [key for key, state in world.image.partitions() if len(state.replicas) > 1]
        internal = [key for key in keys if world.topic_of(key).name.startswith("__")]
        keys = internal if internal and step.amount % 4 else keys
        key = keys[step.amount // 4 % len(keys)]
        state = world.image.partition(key)
        if state is None or state.leader == NO_LEADER or state.adding_replicas or state.removing_replicas:
            return
        other = [each for each in state.replicas if each != state.leader][step.amount % (len(state.replicas) - 1)]
        self._clients.lead(key, other)
        world.scheduler.after(step.duration_ms, self._flip_back, key, state.leader)

    def _flip_back(self, key: PartitionKey, leader: int) -> None:
        if not self._world.is_healed:
            self._clients.lead(key, leader)

    def _begin_jam(self, step: Step) -> None:
        if self._jam is not None:
            self._jam.release()
        producers = [each for each in self._clients.transactional if not each.has_epochs]
        if producers:
            self._jam = _Jam(self._world, self._clients, producers[step.target % len(producers)], step)
            self._jam.begin()


class _Jam:
    """A leader whose responses to one coordinator's markers are held back."""

    def __init__(self, world: World, clients: Clients, producer: TransactionalProducer, step: Step) -> None:
        self._world = world
        self._clients = clients
        self._producer = producer
        self._until_ms = world.scheduler.now_ms + step.duration_ms
        self._held: list[Callable[[], object]] = []
        self._coordinator = self._leader = NO_LEADER
        self._key: PartitionKey | None = None
        self._rounds = 0
        self._is_over = False
        self._flipped_ms = world.scheduler.now_ms

    def begin(self) -> None:
        """Choose a partition that the coordinator does not lead, and let the producer write to it."""
        world = self._world
        topic = world.image.topics[world.image.topic_ids[TRANSACTIONS_TOPIC]]
        place = partition_of(self._producer.name, len(topic.partitions))
        self._coordinator = topic.partitions[place].leader
        led = [
            (key, state)
            for key in self._producer.keys
            if (state := world.image.partition(key)) is not None
            and state.leader not in (NO_LEADER, self._coordinator)
            and not state.adding_replicas
        ]
        if self._coordinator == NO_LEADER or not led:
            self.release()
            return
        self._key, state = led[self._until_ms % len(led)]
        self._leader = state.leader
        self._transact(committed=True)
        self._look()

    def holds(self, broker_id: int, leader: int, then: Callable[[], object]) -> bool:
        """Hold a response back, if it belongs to this jam."""
        if self._is_over or (broker_id, leader) != (self._coordinator, self._leader):
            return False
        self._held.append(then)
        return True

    def release(self) -> None:
        """Deliver all that was held back."""
        self._is_over = True
        held, self._held = self._held, []
        for then in held:
            then()

    def _transact(self, *, committed: bool) -> None:
        """Let the producer write a transaction with this partition, the first one if possible."""
        amount = self._producer.amount_of(self._key, committed=committed)
        if amount is not None:
            self._producer.transact(amount)

    def _look(self) -> None:
        """Check whether the next phase can begin."""
        world = self._world
        now_ms = world.scheduler.now_ms
        if self._is_over or now_ms >= self._until_ms:
            self.release()
            return
        world.scheduler.after(_LOOK_MS, self._look)
        assert self._key is not None
        state = world.image.partition(self._key)
        if state is None or now_ms - self._flipped_ms < _AWAY_MS:
            return
        if state.leader != self._leader:
            self._flip(self._leader)
            self._rounds += 1
            self._transact(committed=self._rounds < _ROUNDS)
        elif self._rounds < _ROUNDS and self._held and not self._producer.pending:
            self._flip(next(each for each in state.replicas if each != self._leader))
        elif self._rounds >= _ROUNDS and self._producer.is_amid(self._key):
            self._world.mark(Mark.JAMMED)
            self.release()

    def _flip(self, leader: int) -> None:
        self._flipped_ms = self._world.scheduler.now_ms
        assert self._key is not None
        self._clients.lead(self._key, leader)
