"""Carries out a plan's steps, within the seed's limits of durability (`budget.py`).

A record takes some trips through the network, and a fault while nothing is in flight proves little. So many faults
first let records be sent, and then wait for some trips: whether request, copies or high watermark have arrived differs
each time. After `end` no fault happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lab.sim.faults.coordinators import CoordinatorFaults
from lab.sim.faults.strikes import Strikes
from lab.sim.faults.upgrades import Upgrades
from lab.sim.machine.sockets import CLIENT
from lab.sim.marks import Mark
from lab.sim.plan import MINIMUMS, Durability
from lab.sim.steps import CLIENTS, Kind, Step
from lab.sim.zookeeper.faults import ZooKeeperFaults
from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_LEADER, PartitionState
from sparkonce.broker_lite.replication.leader import Proposal

if TYPE_CHECKING:
    from lab.sim.clients.clients import Clients
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World

_RESTART_MS = 200
_MOST_BROKEN = 2
_REPLICAS = 3
_DUEL_MS = 60
"""How long a leader in a duel goes on alone, besides the trips to connect, to send, and to be heard."""
_DUEL_TRIPS = 5
_MOST_TRIPS = 7
"""After that many trips a record is safe, and all replicas know it."""
_NEWS = 5
"""How many records are written while a replica is left behind."""


class Faults:
    """The faults of a run, and which of them are allowed."""

    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._clients = clients
        self._strikes = strikes = Strikes(world)
        self._ambush: Step | None = None
        self._duel_ms = _DUEL_MS + _DUEL_TRIPS * world.plan.settings.delay_ms
        self._actions: dict[Kind, Callable[[Step], None]] = {
            Kind.PRODUCE: self._produce,
            Kind.TRANSACT: self._transact,
            Kind.MEMBER: self._member,
            Kind.CRASH: self._crash,
            Kind.POWER: self._power,
            Kind.CUT_SHORT: self._cut_short,
            Kind.CRASH_LEADER: self._crash_leader,
            Kind.CRASH_CONTROLLER: self._crash_controller,
            Kind.CRASH_ALL: self._crash_all,
            Kind.STOP: self._stop,
            Kind.PAUSE: self._pause,
            Kind.PAUSE_LEADER: self._pause_leader,
            Kind.BLIND: self._blind,
            Kind.SPLIT: self._split,
            Kind.DEAF: self._deaf,
            Kind.STORM: self._storm,
            Kind.CLOCK: self._clock,
            Kind.FULL: self._full,
            Kind.ELECT: self._elect,
            Kind.AMBUSH: self._lie_in_wait,
            Kind.DUEL: self._duel,
            Kind.THERE_AND_BACK: self._there_and_back,
            Kind.LAGGARD: self._leave_behind,
            Kind.BROKEN: self._break,
            Kind.LIE: self._lie,
            Kind.SETTINGS: self._change_settings,
            Kind.DEFAULTS: self._change_default,
            Kind.MOVE: self._move,
        }
        self.coordinators = CoordinatorFaults(world, clients, strikes)
        self._actions |= self.coordinators.actions
        self._zookeeper = None if world.ensemble is None else ZooKeeperFaults(world, world.ensemble, clients, strikes)
        if self._zookeeper is not None:
            self._actions |= self._zookeeper.actions
        if world.plan.former is not None:
            self._actions |= Upgrades(world, strikes, world.plan.former, clients.standalone).actions

    def carry_out(self, step: Step) -> None:
        """Carry out a step of the plan, unless it needs what this simulation lacks."""
        if step.kind not in CLIENTS:
            self._world.trace(lambda: f"step: {step}")
        action = self._actions.get(step.kind)
        if action is not None:
            action(step)

    def end(self) -> None:
        """Heal everything: no fault happens from now on."""
        world = self._world
        world.is_healed, self._ambush = True, None
        world.network.calm()
        for broker in world.brokers.values():
            broker.disk.room = broker.disk.fuse = None
            broker.disk.lies = False
            broker.blind_until_ms = 0
            if broker.paused:
                broker.resume()
            if broker.disk.broken:
                broker.disk.broken = False
                broker.die()
            if not broker.alive:
                broker.start_later(_RESTART_MS)
        if self._zookeeper is not None:
            self._zookeeper.end()
        self.coordinators.end()

    def proposed(self, leader: Machine, proposals: Sequence[tuple[PartitionKey, Proposal]]) -> int:
        """Strike while a leader asks to expand the ISR, if a fault is armed for that.

        Returns after how many milliseconds the controller receives the request a second time, 0 for never.
        """
        if self._zookeeper is not None:
            self._zookeeper.aimed.proposed(leader, proposals)
        step = self._ambush
        world, holder = self._world, self._world.metadata.holder
        joins = [each for key, proposal in proposals for each in self._joins(leader, key, proposal)]
        if step is None or not joins or holder == leader.node_id:
            return 0
        self._ambush = None
        world.trace(lambda: f"ambush: broker {leader.node_id} asks for {joins}")
        settings, joining = world.plan.settings, world.brokers[joins[0]]
        if step.amount % 4 == 0:
            # Once in sync, it falls behind; when it is out of sync again, the request arrives a second time.
            world.scheduler.after(100, self._strikes.pause_for, joining, settings.lag_ms * 3)
            self._falls_behind([key for key, _ in proposals])
            return settings.lag_ms * 2 + 100
        # The request waits, but not until its sender is fenced; the replica in question does not fetch meanwhile.
        self._strikes.block({(leader.node_id, holder)}, settings.session_ms // 2)
        self._strikes.block({(joining.node_id, leader.node_id)}, settings.session_ms + 2 * settings.timeout_ms)
        victims = (joining, joining, joining, joining, world.brokers.get(holder), leader)
        victim = victims[step.amount % len(victims)]
        if victim is not None:
            # Later, as the victim may be in the middle of an action.
            world.scheduler.after(0, partial(self._strikes.die, victim, 30, power=step.amount % 5 != 0))
        return 0

    def _falls_behind(self, keys: Sequence[PartitionKey]) -> None:
        """Let records become safe that the follower lacks which is about to fall behind."""
        for key in keys:
            self._world.scheduler.after(self._world.plan.settings.lag_ms, self._produce_to, key)

    def _produce_to(self, key: PartitionKey) -> None:
        if not self._world.is_healed:
            self._clients.produce_to(key)

    @staticmethod
    def _joins(leader: Machine, key: PartitionKey, proposal: Proposal) -> list[int]:
        in_sync = leader.replicas.leader(key).in_sync_replicas
        return [broker_id for broker_id, _ in proposal.in_sync_replicas if broker_id not in in_sync]

    def _duel(self, step: Step) -> None:
        """Let a partition's leaders die one after the other, each with records that only it has (KIP-279).

        Every second time only two replicas take turns, as the third one is down throughout.
        """
        key, state = self._some_partition(step)
        if key is None or state is None:
            return
        apart_ms = 150 + step.duration_ms // 3
        rounds = 2 + step.amount % 4
        if step.amount % 2:
            third = next(each for each in reversed(state.replicas) if each != state.leader)
            self._strikes.die(self._world.brokers[third], rounds * apart_ms)
        for round_number in range(rounds):
            self._world.scheduler.after(round_number * apart_ms, self._duel_round, key, apart_ms)

    def _some_partition(self, step: Step) -> tuple[PartitionKey | None, PartitionState | None]:
        """Return a partition with all its replicas, of a topic with unclean elections if there is one."""
        image = self._world.image
        keys = [key for key, state in image.partitions() if len(state.replicas) >= _REPLICAS]
        keys = [key for key in keys if self._world.topic_of(key).unclean] or keys
        key = keys[step.amount // 2 % len(keys)] if keys else None
        return key, None if key is None else image.partition(key)

    def _duel_round(self, key: PartitionKey, apart_ms: int) -> None:
        state = self._world.image.partition(key)
        if self._world.is_healed or state is None or state.leader == NO_LEADER:
            return
        leader = self._world.brokers[state.leader]
        self._strikes.block({(state.leader, each) for each in state.replicas if each != state.leader}, self._duel_ms)
        self._clients.produce_to(key)
        self._world.scheduler.after(self._duel_ms, self._strikes.die, leader, apart_ms + apart_ms // 2)

    def _there_and_back(self, step: Step) -> None:
        """Move leadership to another broker and back, while a third one with its own records sees neither.

        This is what KAFKA-7164 needs: for the third one the leader seems never to have changed.
        """
        key, state = self._some_partition(step)
        if key is None or state is None or state.leader == NO_LEADER:
            return
        first = state.leader
        second, third, *_ = (each for each in state.replicas if each != first)
        self._strikes.block({(first, second)}, self._duel_ms)
        self._clients.produce_to(key)
        self._world.scheduler.after(self._duel_ms, self._change_leaders, first, second, third)

    def _change_leaders(self, first: int, second: int, third: int) -> None:
        world = self._world
        apart_ms = world.plan.settings.session_ms + 700
        world.brokers[third].blind_until_ms = world.scheduler.now_ms + 2 * apart_ms
        self._strikes.die(world.brokers[first], 100)
        world.scheduler.after(apart_ms, self._strikes.die, world.brokers[second], 300)

    def _leave_behind(self, step: Step) -> None:
        """Fence a fully caught-up replica, then restart all others, which do not know what is safe (KAFKA-7128).

        Every third time one other loses power instead: its unflushed records are gone, and with them its eligibility
        (KIP-966).
        """
        key, state = self._some_partition(step)
        if key is None or state is None or state.leader == NO_LEADER:
            return
        scheduler, settings = self._world.scheduler, self._world.plan.settings
        *between, laggard = (each for each in state.replicas if each != state.leader)
        others = [each for each in self._world.brokers if each != laggard]
        apart_ms = max(settings.session_ms + 300, settings.lag_ms * 3 // 2 + 200)
        end_ms = apart_ms + self._duel_ms
        self._strikes.block({(laggard, each) for each in others}, end_ms)
        # The last records are safe soon, but no high watermark on disk includes them yet.
        for _ in range(_NEWS):
            scheduler.after(apart_ms, self._produce_to, key)
        if step.target % 3 == 0:
            scheduler.after(end_ms, partial(self._strikes.die, self._world.brokers[between[0]], 30, power=True))
            return
        for each in others:
            scheduler.after(end_ms, self._strikes.die, self._world.brokers[each], 100)
        # The caught-up replica returns later, so that the other one fetches first.
        scheduler.after(
            end_ms, self._strikes.block, {(each, state.leader) for each in between}, 2 * settings.session_ms
        )

    def _lie_in_wait(self, step: Step) -> None:
        """Strike at the next ISR expansion, and let a follower fall behind for a while, so that there is one."""
        self._ambush = step
        for _, state in self._world.image.partitions():
            if state.leader not in (NO_LEADER, self._world.metadata.holder) and len(state.replicas) >= _REPLICAS:
                follower = [each for each in state.replicas if each != state.leader][step.amount % 2]
                self._strikes.pause_for(self._world.brokers[follower], self._world.plan.settings.lag_ms * 2)
                return

    # The steps.

    def _produce(self, step: Step) -> None:
        self._clients.producers[step.target].send(step.amount)

    def _transact(self, step: Step) -> None:
        self._clients.transactional[step.target].transact(step.amount)

    def _member(self, step: Step) -> None:
        self._clients.members[step.target].happen(step.amount, step.duration_ms)

    def _broker(self, step: Step) -> Machine:
        return self._world.brokers[step.target]

    def _crash(self, step: Step) -> None:
        self._strikes.die(self._broker(step), step.duration_ms)

    def _power(self, step: Step) -> None:
        self._strikes.die(self._broker(step), step.duration_ms, power=True)

    def _cut_short(self, step: Step) -> None:
        broker = self._broker(step)
        if broker.alive:
            broker.disk.fuse = step.amount // 2
            broker.start_later(step.duration_ms + 300)

    def _led(self, step: Step) -> tuple[PartitionKey, Machine] | None:
        """Return some partition that has a leader, and the leader."""
        found = [(key, state.leader) for key, state in self._world.image.partitions()]
        found = [(key, leader) for key, leader in found if leader != NO_LEADER]
        if not found:
            return None
        key, leader = found[step.amount % len(found)]
        return key, self._world.brokers[leader]

    def _strike_leader(self, step: Step, key: PartitionKey, strike: Callable[[], None]) -> None:
        """Strike at a partition's leader, every second time while a record is in flight."""
        if step.target % 2:
            strike()
            return
        self._clients.produce_to(key)
        trips = 1 + step.amount % _MOST_TRIPS
        self._world.scheduler.after(trips * self._world.plan.settings.delay_ms + step.amount % 5, strike)

    def _crash_leader(self, step: Step) -> None:
        led = self._led(step)
        if led is not None:
            key, broker = led
            down_ms = step.duration_ms if step.amount % 2 else 30
            self._strike_leader(step, key, lambda: self._strikes.die(broker, down_ms, power=step.amount % 3 == 0))

    def _crash_controller(self, step: Step) -> None:
        holder = self._world.metadata.holder
        if holder:
            self._strikes.die(self._world.brokers[holder], step.duration_ms, power=step.amount % 4 == 0)

    def _crash_all(self, step: Step) -> None:
        for index, broker in enumerate(self._world.brokers.values()):
            self._strikes.die(broker, 50 + step.amount * index * 10)

    def _stop(self, step: Step) -> None:
        broker = self._broker(step)
        broker.stop()
        broker.start_later(step.duration_ms + 1_600)

    def _pause(self, step: Step) -> None:
        self._strikes.pause_for(self._broker(step), step.duration_ms)

    def _pause_leader(self, step: Step) -> None:
        led = self._led(step)
        if led is not None:
            key, broker = led
            self._strike_leader(step, key, lambda: self._strikes.pause_for(broker, step.duration_ms))

    def _blind(self, step: Step) -> None:
        self._broker(step).blind_until_ms = self._world.scheduler.now_ms + step.duration_ms

    def _split(self, step: Step) -> None:
        """Split the brokers into two groups; every third time the clients are with one of them."""
        ids = list(self._world.brokers)
        one = {each for each in ids if (each * step.amount) % 5 < 2} or {step.target}
        if step.amount % 3 == 0:
            one.add(CLIENT)
        other = {CLIENT, *ids} - one if step.amount % 3 == 0 else set(ids) - one
        self._strikes.block(
            {(a, b) for a in one for b in other} | {(b, a) for a in one for b in other}, step.duration_ms
        )

    def _deaf(self, step: Step) -> None:
        """Block a broker's traffic in one direction, to or from the others."""
        others = [each for each in self._world.brokers if each != step.target]
        if step.amount % 2:
            self._strikes.block({(each, step.target) for each in others}, step.duration_ms)
        else:
            self._strikes.block({(step.target, each) for each in others}, step.duration_ms)

    def _storm(self, step: Step) -> None:
        weather = self._world.network.weather
        weather.delay_ms, weather.loss = 20 + step.amount * 3, 0.01 * (step.amount % 30)
        self._world.scheduler.after(step.duration_ms, self._clear_up)

    def _clear_up(self) -> None:
        if not self._world.is_healed:
            self._world.network.clear_up()

    def _clock(self, step: Step) -> None:
        ahead = step.amount * 60
        self._broker(step).clock_ahead_ms += ahead if step.amount % 2 else -ahead

    def _full(self, step: Step) -> None:
        if self._world.budget.is_used:
            return
        broker = self._broker(step)
        broker.disk.room = step.amount * 4
        self._world.scheduler.after(step.duration_ms, setattr, broker.disk, "room", None)

    def _lie(self, step: Step) -> None:
        """Let a disk report flushes for a while that it does not do."""
        disk = self._broker(step).disk
        disk.lies = True
        self._world.mark(Mark.LIED)
        self._world.scheduler.after(step.duration_ms, setattr, disk, "lies", False)

    def _break(self, step: Step) -> None:
        """Let a leader's disk fail for good, unless two have failed already."""
        is_budget_used = self._world.budget.is_used
        broken = [each for each in self._world.brokers.values() if each.disk.broken]
        led = self._led(step)
        if led is None or len(broken) >= _MOST_BROKEN:
            return
        if not is_budget_used:
            led[1].disk.broken = True

    def _change_settings(self, step: Step) -> None:
        """Change a topic's settings; every third time the controller dies at that moment."""
        topics = [each for each in self._world.plan.topics if each.unclean or len(each.minimums) > 1]
        if topics:
            topic = topics[step.target % len(topics)]
            minimum = topic.minimums[step.amount % len(topic.minimums)]
            self._clients.change_settings(topic, minimum, unclean=topic.unclean and step.amount % 4 < 2)
            self._maybe_crash_controller(step)

    def _change_default(self, step: Step) -> None:
        self._clients.change_default(MINIMUMS[step.amount % len(MINIMUMS)])
        self._maybe_crash_controller(step)

    def _maybe_crash_controller(self, step: Step) -> None:
        if step.amount % 3 == 0:
            self._world.scheduler.after(step.duration_ms // 10, self._crash_holder, step)

    def _crash_holder(self, step: Step) -> None:
        if not self._world.is_healed:
            self._crash_controller(step)

    def _move(self, step: Step) -> None:
        """Reassign a partition, or cancel a reassignment.

        Not if losses of power are budgeted: at the end of a reassignment fewer than `min.insync.replicas` may have all
        safe records, as Kafka does not require more.
        """
        world = self._world
        budgeted = world.plan.durability is Durability.BUDGETED
        keys = [key for key, _ in world.image.partitions() if world.topic_of(key).flushed or not budgeted]
        if not keys:
            return
        key, ids = keys[step.amount % len(keys)], list(world.brokers)
        first = (step.target + step.amount) % len(ids)
        target = tuple((ids[first:] + ids[:first])[:_REPLICAS])
        self._clients.reassign(key, None if step.amount % 5 == 0 else target)
        self._maybe_crash_controller(step)

    def _elect(self, step: Step) -> None:
        keys = [key for key, _ in self._world.image.partitions()]
        if keys:
            self._clients.elect(keys[step.amount % len(keys)])
