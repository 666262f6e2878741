"""Carries out a plan's steps, within what its seed may do to durability.

The budget (`Durability.BUDGETED`): records are acknowledged when all in sync, min.insync.replicas at least, have them
in their page caches. A broker that stops uncleanly is struck off the in-sync and the eligible replicas when it
registers again, whether it has lost anything or not: the controller cannot tell. So with a minimum of two, one loss of
power is made up for by the other copy, as long as that one is not struck off too. While a broker that has lost power is
not in sync again everywhere, no more than min.insync.replicas - 1 may be back from an unclean stop, itself included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_LEADER, PartitionState
from sparkonce.broker_lite.replication.leader import Proposal
from sparkonce.broker_lite.sim.machine.sockets import CLIENT
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.plan import CLIENTS, MINIMUMS, Durability, Kind, Step

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.machine.machine import Machine
    from sparkonce.broker_lite.sim.world import World

_RESTART_MS = 200
_MOST_BROKEN = 2
_REPLICAS = 3
_DUEL_MS = 60
"""How long a leader in a duel goes on alone."""


class Faults:
    """What goes wrong, and what may."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._unclean: dict[int, int] = {}
        """Brokers that have stopped uncleanly, with the epoch they had, until they are in sync again everywhere."""
        self._lost_power: set[int] = set()
        self.over = False
        """Whether everything is healed, and nothing goes wrong any more."""
        self._ambush: Step | None = None
        self._duel_ms = _DUEL_MS
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

    def carry_out(self, step: Step) -> None:
        """Let a step of the plan happen, unless it needs more than there is in this simulation."""
        if step.kind not in CLIENTS:
            self._world.trace(lambda: f"step: {step}")
        action = self._actions.get(step.kind)
        if action is not None:
            action(step)

    def end(self) -> None:
        """Heal everything: from now on nothing goes wrong."""
        world = self._world
        self.over, self._ambush = True, None
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
                world.start_later(broker, _RESTART_MS)

    def proposed(self, leader: Machine, proposals: Sequence[tuple[PartitionKey, Proposal]]) -> int:
        """Strike while a leader asks for more replicas in sync, if a fault is armed for that.

        Returns after how many milliseconds the request comes to the controller a second time, 0 for never.
        """
        step = self._ambush
        world, holder = self._world, self._world.metadata.holder
        joins = [each for key, proposal in proposals for each in self._joins(leader, key, proposal)]
        if step is None or not joins or holder == leader.node_id:
            return 0
        self._ambush = None
        world.trace(lambda: f"ambush: broker {leader.node_id} asks for {joins}")
        settings, joining = world.plan.settings, world.brokers[joins[0]]
        if step.amount % 4 == 0:
            # Once in sync, it falls behind; when it is out of sync again, the request comes once more.
            world.scheduler.after(100, self._pause_for, joining, settings.lag_ms * 3)
            self._falls_behind([key for key, _ in proposals])
            return settings.lag_ms * 2 + 100
        # The request waits, but not until its sender is fenced; what it is about does not fetch in the meantime.
        self._block({(leader.node_id, holder)}, settings.session_ms // 2)
        self._block({(joining.node_id, leader.node_id)}, settings.session_ms + 2 * settings.timeout_ms)
        victims = (joining, joining, joining, joining, world.brokers.get(holder), leader)
        victim = victims[step.amount % len(victims)]
        if victim is not None:
            # Later, as this may be in the middle of what the victim does.
            world.scheduler.after(0, self._strike, victim, step.amount % 5 != 0)
        return 0

    def _falls_behind(self, keys: Sequence[PartitionKey]) -> None:
        """Take partitions of which a follower is about to fall behind."""

    def _strike(self, victim: Machine, power: bool) -> None:
        self._die(victim, 30, power=power)

    @staticmethod
    def _joins(leader: Machine, key: PartitionKey, proposal: Proposal) -> list[int]:
        in_sync = leader.replicas.leader(key).in_sync_replicas
        return [broker_id for broker_id, _ in proposal.in_sync_replicas if broker_id not in in_sync]

    def _duel(self, step: Step) -> None:
        """Let a partition's leaders die one after the other, each with records that it alone has (KIP-279).

        Every second time two replicas have it out among themselves, as the third one is down all the while.
        """
        key, state = self._some_partition(step)
        if key is None or state is None:
            return
        apart_ms = 150 + step.duration_ms // 3
        rounds = 2 + step.amount % 4
        if step.amount % 2:
            third = next(each for each in reversed(state.replicas) if each != state.leader)
            self._die(self._world.brokers[third], rounds * apart_ms, power=False)
        for round_number in range(rounds):
            self._world.scheduler.after(round_number * apart_ms, self._duel_round, key, apart_ms)

    def _some_partition(self, step: Step) -> tuple[PartitionKey | None, PartitionState | None]:
        """Return a partition with all its replicas, of a topic with unclean elections if there is one."""
        image = self._world.metadata.image
        keys = [key for key, state in image.partitions() if len(state.replicas) >= _REPLICAS]
        keys = [key for key in keys if self._world.topic_of(key).unclean] or keys
        key = keys[step.amount // 2 % len(keys)] if keys else None
        return key, None if key is None else image.partition(key)

    def _duel_round(self, key: PartitionKey, apart_ms: int) -> None:
        state = self._world.metadata.image.partition(key)
        if self.over or state is None or state.leader == NO_LEADER:
            return
        leader = self._world.brokers[state.leader]
        self._block({(state.leader, each) for each in state.replicas if each != state.leader}, self._duel_ms)
        self._world.produce_to(key)
        self._world.scheduler.after(self._duel_ms, self._die_in_duel, leader, apart_ms + apart_ms // 2)

    def _die_in_duel(self, broker: Machine, down_ms: int) -> None:
        if not self.over:
            self._die(broker, down_ms, power=False)

    def _there_and_back(self, step: Step) -> None:
        """Let leadership go to another broker and back, while a third one with records of its own hears of neither.

        This is what KAFKA-7164 needs: to the third one the leader seems never to have changed.
        """
        key, state = self._some_partition(step)
        if key is None or state is None or state.leader == NO_LEADER:
            return
        first = state.leader
        second, third, *_ = (each for each in state.replicas if each != first)
        self._block({(first, second)}, self._duel_ms)
        self._world.produce_to(key)
        self._world.scheduler.after(self._duel_ms, self._change_leaders, first, second, third)

    def _change_leaders(self, first: int, second: int, third: int) -> None:
        world = self._world
        apart_ms = world.plan.settings.session_ms + 700
        world.brokers[third].blind_until_ms = world.scheduler.now_ms + 2 * apart_ms
        self._die(world.brokers[first], 100, power=False)
        world.scheduler.after(apart_ms, self._die_in_duel, world.brokers[second], 300)

    def _leave_behind(self, step: Step) -> None:
        """Fence a replica that has everything, then start all others again, not knowing what is safe (KAFKA-7128)."""
        key, state = self._some_partition(step)
        if key is None or state is None or state.leader == NO_LEADER:
            return
        laggard = [each for each in state.replicas if each != state.leader][-1]
        others = [each for each in self._world.brokers if each != laggard]
        apart_ms = self._world.plan.settings.session_ms + 300
        self._block({(laggard, each) for each in others}, apart_ms + self._duel_ms)
        # What comes at the end is safe soon, but no high watermark on a disk says so yet.
        self._world.scheduler.after(apart_ms, self._world.produce_to, key)
        for each in others:
            self._world.scheduler.after(apart_ms + self._duel_ms, self._die_in_duel, self._world.brokers[each], 100)

    def _lie_in_wait(self, step: Step) -> None:
        """Strike at the next proposal, and let a follower fall behind for a while, so that there will be one."""
        self._ambush = step
        for _, state in self._world.metadata.image.partitions():
            if state.leader not in (NO_LEADER, self._world.metadata.holder) and len(state.replicas) >= _REPLICAS:
                follower = [each for each in state.replicas if each != state.leader][step.amount % 2]
                self._pause_for(self._world.brokers[follower], self._world.plan.settings.lag_ms * 2)
                return

    # What may happen to durability.

    def may_stop(self, broker_id: int, *, power: bool) -> bool:
        """Whether a broker may stop uncleanly now."""
        world = self._world
        if world.plan.durability is not Durability.BUDGETED:
            return True
        least = [min(topic.minimums) for topic in world.plan.topics if not topic.flushed]
        if not least:
            return True
        self._forgive()
        lost_power = self._lost_power | ({broker_id} if power else set())
        if not lost_power:
            return True
        if power and any(each.disk.room is not None or each.disk.broken for each in world.brokers.values()):
            return False  # a full or broken disk may stop another one at any time
        return len(self._unclean.keys() | {broker_id}) < min(least)

    def stopped_uncleanly(self, broker_id: int, power: bool) -> None:
        """Note what has happened."""
        self._forgive()
        self._unclean[broker_id] = self._world.metadata.image.broker_epoch(broker_id)
        if power:
            self._lost_power.add(broker_id)

    def _forgive(self) -> None:
        """Forget the stops of brokers that are in sync again everywhere."""
        image = self._world.metadata.image
        for broker_id, epoch in list(self._unclean.items()):
            if image.broker_epoch(broker_id) > epoch and all(
                broker_id in state.in_sync_replicas for _, state in image.partitions() if broker_id in state.replicas
            ):
                del self._unclean[broker_id]
                self._lost_power.discard(broker_id)

    # The steps.

    def _produce(self, step: Step) -> None:
        self._world.produce(step.target, step.amount)

    def _transact(self, step: Step) -> None:
        self._world.transact(step.target, step.amount)

    def _member(self, step: Step) -> None:
        self._world.members[step.target].happen(step.amount, step.duration_ms)

    def _broker(self, step: Step) -> Machine:
        return self._world.brokers[step.target]

    def _die(self, broker: Machine, down_ms: int, *, power: bool) -> None:
        if broker.alive and self.may_stop(broker.node_id, power=power):
            broker.die(power=power)
            self._world.start_later(broker, down_ms)

    def _crash(self, step: Step) -> None:
        self._die(self._broker(step), step.duration_ms, power=False)

    def _power(self, step: Step) -> None:
        self._die(self._broker(step), step.duration_ms, power=True)

    def _cut_short(self, step: Step) -> None:
        broker = self._broker(step)
        if broker.alive:
            broker.disk.fuse = step.amount // 2
            self._world.start_later(broker, step.duration_ms + 300)

    def _led(self, step: Step) -> tuple[PartitionKey, Machine] | None:
        """Return some partition that has a leader, and that."""
        found = [(key, state.leader) for key, state in self._world.metadata.image.partitions()]
        found = [(key, leader) for key, leader in found if leader != NO_LEADER]
        if not found:
            return None
        key, leader = found[step.amount % len(found)]
        return key, self._world.brokers[leader]

    def _strike_leader(self, step: Step, key: PartitionKey, strike: Callable[[], None]) -> None:
        """Strike at the leader of a partition."""
        del step, key
        strike()

    def _crash_leader(self, step: Step) -> None:
        led = self._led(step)
        if led is not None:
            key, broker = led
            down_ms = step.duration_ms if step.amount % 2 else 30
            self._strike_leader(step, key, lambda: self._die(broker, down_ms, power=step.amount % 3 == 0))

    def _crash_controller(self, step: Step) -> None:
        holder = self._world.metadata.holder
        if holder:
            self._die(self._world.brokers[holder], step.duration_ms, power=step.amount % 4 == 0)

    def _crash_all(self, step: Step) -> None:
        for index, broker in enumerate(self._world.brokers.values()):
            self._die(broker, 50 + step.amount * index * 10, power=False)

    def _stop(self, step: Step) -> None:
        broker = self._broker(step)
        broker.stop()
        self._world.start_later(broker, step.duration_ms + 1_600)

    def _pause(self, step: Step) -> None:
        self._pause_for(self._broker(step), step.duration_ms)

    def _pause_leader(self, step: Step) -> None:
        led = self._led(step)
        if led is not None:
            key, broker = led
            self._strike_leader(step, key, lambda: self._pause_for(broker, step.duration_ms))

    def _pause_for(self, broker: Machine, duration_ms: int) -> None:
        if broker.alive and not broker.paused:
            broker.pause()
            self._world.scheduler.after(duration_ms, self._resume, broker, broker.incarnation)

    @staticmethod
    def _resume(broker: Machine, incarnation: int) -> None:
        if broker.incarnation == incarnation and broker.paused:
            broker.resume()

    def _blind(self, step: Step) -> None:
        self._broker(step).blind_until_ms = self._world.scheduler.now_ms + step.duration_ms

    def _split(self, step: Step) -> None:
        """Part the brokers in two groups; every third time the clients are with one of them."""
        ids = list(self._world.brokers)
        one = {each for each in ids if (each * step.amount) % 5 < 2} or {step.target}
        if step.amount % 3 == 0:
            one.add(CLIENT)
        other = {CLIENT, *ids} - one if step.amount % 3 == 0 else set(ids) - one
        self._block({(a, b) for a in one for b in other} | {(b, a) for a in one for b in other}, step.duration_ms)

    def _deaf(self, step: Step) -> None:
        """Let a broker hear nothing of the others, or the others nothing of it."""
        others = [each for each in self._world.brokers if each != step.target]
        if step.amount % 2:
            self._block({(each, step.target) for each in others}, step.duration_ms)
        else:
            self._block({(step.target, each) for each in others}, step.duration_ms)

    def _block(self, pairs: set[tuple[int, int]], duration_ms: int) -> None:
        self._world.network.blocked |= pairs
        self._world.scheduler.after(duration_ms, self._world.network.blocked.difference_update, pairs)

    def _storm(self, step: Step) -> None:
        weather = self._world.network.weather
        weather.delay_ms, weather.loss, weather.doubling = 20 + step.amount * 3, 0.01 * (step.amount % 30), 0.2
        self._world.scheduler.after(step.duration_ms, self._clear_up)

    def _clear_up(self) -> None:
        if not self.over:
            self._world.network.clear_up()

    def _clock(self, step: Step) -> None:
        ahead = step.amount * 60
        self._broker(step).clock_ahead_ms += ahead if step.amount % 2 else -ahead

    def _full(self, step: Step) -> None:
        self._forgive()
        broker = self._broker(step)
        if self._world.plan.durability is Durability.BUDGETED and self._lost_power:
            return
        broker.disk.room = step.amount * 4
        self._world.scheduler.after(step.duration_ms, setattr, broker.disk, "room", None)

    def _lie(self, step: Step) -> None:
        """Let a disk flush nothing for a while, and say that it has."""
        disk = self._broker(step).disk
        disk.lies = True
        self._world.mark(Mark.LIED)
        self._world.scheduler.after(step.duration_ms, setattr, disk, "lies", False)

    def _break(self, step: Step) -> None:
        """Let the disk of a leader fail for good, unless two have failed already."""
        self._forgive()
        broken = [each for each in self._world.brokers.values() if each.disk.broken]
        led = self._led(step)
        if led is None or len(broken) >= _MOST_BROKEN:
            return
        broker = led[1]
        if self._world.plan.durability is not Durability.BUDGETED or not self._lost_power:
            broker.disk.broken = True

    def _change_settings(self, step: Step) -> None:
        """Change a topic's settings; every third time the controller dies right then."""
        topics = [each for each in self._world.plan.topics if each.unclean or len(each.minimums) > 1]
        if topics:
            topic = topics[step.target % len(topics)]
            minimum = topic.minimums[step.amount % len(topic.minimums)]
            self._world.change_settings(topic, minimum, unclean=topic.unclean and step.amount % 4 < 2)
            self._maybe_crash_controller(step)

    def _change_default(self, step: Step) -> None:
        self._world.change_default(MINIMUMS[step.amount % len(MINIMUMS)])
        self._maybe_crash_controller(step)

    def _maybe_crash_controller(self, step: Step) -> None:
        if step.amount % 3 == 0:
            self._world.scheduler.after(step.duration_ms // 10, self._crash_holder, step)

    def _crash_holder(self, step: Step) -> None:
        if not self.over:
            self._crash_controller(step)

    def _move(self, step: Step) -> None:
        """Let a partition move to other replicas, or give a move up.

        Not where losses of power are budgeted: at the end of a move fewer than `min.insync.replicas` may have all that
        is safe, as nothing in Kafka asks for more.
        """
        world = self._world
        budgeted = world.plan.durability is Durability.BUDGETED
        keys = [key for key, _ in world.metadata.image.partitions() if world.topic_of(key).flushed or not budgeted]
        if not keys:
            return
        key, ids = keys[step.amount % len(keys)], list(world.brokers)
        first = (step.target + step.amount) % len(ids)
        target = tuple((ids[first:] + ids[:first])[:_REPLICAS])
        world.reassign(key, None if step.amount % 5 == 0 else target)
        self._maybe_crash_controller(step)

    def _elect(self, step: Step) -> None:
        keys = [key for key, _ in self._world.metadata.image.partitions()]
        if keys:
            self._world.elect(keys[step.amount % len(keys)])
