"""The machines of brokers: a disk, a clock, an address, and one process after the other.

Theory of operation: a process is the production `Server` on a `SimulatedLoop` (`process.py`), of this version or
a former one. It ends in one of three ways: orderly (`Server.stop`), killed (its callbacks and connections
end, its files stay), or with its machine (unflushed data may be lost). All machines share one disk
for `metadata.log.dir`, as the brokers of a cluster do; a process's locks on it end with the process.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Protocol

from lab.sim.disk import CutShort, SimulatedDisk
from lab.sim.machine.damage import damage, has_damage
from lab.sim.machine.process import DATA, SHARED, Process
from lab.sim.machine.watches import LATE_MS, Reader
from lab.sim.marks import Mark
from lab.sim.scheduler import stream
from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.replication.replicas import Replicas

if TYPE_CHECKING:
    from lab.sim.machine.loop import SimulatedLoop
    from lab.sim.run import Run
    from sparkonce.broker_lite.controller.image import PartitionKey

METADATA: Final = f"{SHARED}/metadata"
EPOCH_MS: Final = 1_700_000_000_000
"""The time of day when a simulation begins."""
_FLUSHES_MS: Final = 100
_START_AGAIN_MS: Final = 500


class Owner(Protocol):
    """The owner of machines: it configures their brokers, and is notified of what happens to them."""

    def config_of(self, node_id: int) -> BrokerConfig:
        """Return the settings of a broker."""

    def broker_epoch(self, node_id: int) -> int:
        """Return the epoch with which a broker is registered."""

    def joined(self, machine: Machine, member: ClusterMember) -> None:
        """Note that a broker joins its cluster."""

    def leads(self, machine: Machine, key: PartitionKey) -> None:
        """Note that a broker leads a partition."""

    def may_stop(self, node_id: int, *, power: bool) -> bool:
        """Whether a broker may die now."""

    def stopped_uncleanly(self, node_id: int, *, power: bool) -> None:
        """Note that a broker has died."""

    def disk_replaced(self, node_id: int) -> None:
        """Note that a broker has a new, empty disk."""


class Machine:
    """A broker's machine."""

    def __init__(self, node_id: int, run: Run, owner: Owner) -> None:
        self.node_id = node_id
        self.run = run
        self.owner = owner
        self.address = f"10.0.0.{node_id}"
        self.disk = SimulatedDisk()
        self.disk.blown = self._is_cut_short
        self.disk.directories.add(DATA)
        self.rng: random.Random = stream("machine", run.plan.seed, node_id)
        self.version: type[Process] = Process
        """The version of its broker from the next start on."""
        self.process: Process | None = None
        self.clock_ahead_ms = 0
        self.booted_ms = 1_000_000 * node_id
        self.incarnation = 0
        self.forgot_epoch: int | None = None
        """The broker epoch during which it last lost power."""
        self.blind_until_ms = 0
        self.learns_ms = 0
        """When its broker receives the controller's latest decision."""
        self._hearing = stream("hearing", run.plan.seed, node_id)
        self._damaging = stream("damaging", run.plan.seed, node_id) if has_damage(run.plan.seed) else None
        self.reporting = stream("reporting", run.plan.seed, node_id)
        self._graveyard: list[Process] = []
        """Referenced so that no process is garbage-collected, and thereby executed, during the run."""
        run.network.know(self.address, node_id)
        run.scheduler.after(_FLUSHES_MS, self._flush)

    def config(self) -> BrokerConfig:
        """Return the settings of its broker."""
        return self.owner.config_of(self.node_id)

    def now_ms(self) -> int:
        """Return the time of day by its clock."""
        return EPOCH_MS + self.run.scheduler.now_ms + self.clock_ahead_ms

    def hear_later(self) -> None:
        """Delay the broker's reads of the controller's decisions, while there are faults."""
        run = self.run
        if not run.is_healed and self.learns_ms < run.scheduler.now_ms:
            self.learns_ms = run.scheduler.now_ms + int(self._hearing.random() ** 2 * run.plan.settings.image_lag_ms)

    def reads_reports(self, loop: SimulatedLoop) -> Reader:
        """Return how a broker here reads the reports of a watch: soon, once all is healed."""
        return Reader(
            lambda: 0 if self.run.is_healed else self.reporting.choice(LATE_MS),
            lambda: self.deaf_until_ms,
            loop.call_soon,
        )

    @property
    def deaf_until_ms(self) -> int:
        """Until when its broker does not read the controller's decisions."""
        return max(self.blind_until_ms, self.learns_ms)

    def _flush(self) -> None:
        """Complete the disk's pending flushes."""
        self.run.scheduler.after(_FLUSHES_MS, self._flush)
        if self.alive and not self.paused and not self.disk.broken:
            try:
                self.disk.settle()
            except CutShort:
                self.die()

    # Life and death.

    @property
    def alive(self) -> bool:
        """Whether its broker runs."""
        return self.process is not None

    @property
    def paused(self) -> bool:
        """Whether its broker is paused."""
        return self.process is not None and self.process.loop.paused

    def start(self) -> None:
        """Start the broker, unless it runs."""
        if self.process is not None:
            return
        self.run.trace(lambda: f"broker {self.node_id} starts{self.version.version}")
        self.incarnation += 1
        self.run.network.down.discard(self.node_id)
        if self._graveyard and type(self._graveyard[-1]) is not self.version:
            self.run.mark(Mark.UPGRADED if self.version is Process else Mark.DOWNGRADED)
        self.process = self.version(self)
        self.process.start()

    def start_later(self, delay_ms: int) -> None:
        """Start the broker after a while, if it is still down then."""
        self.run.scheduler.after(delay_ms, self.start)

    def stop(self) -> None:
        """Stop the broker in order."""
        if self.process is not None:
            self.process.stop()

    def joined(self, member: ClusterMember) -> None:
        """See `ProcessOwner`."""
        self.owner.joined(self, member)

    def leads(self, key: PartitionKey) -> None:
        """See `ProcessOwner`."""
        self.owner.leads(self, key)

    def stopped(self, *, clean: bool) -> None:
        """Note that the broker has stopped."""
        self.run.trace(lambda: f"broker {self.node_id} has stopped{'' if clean else ', not cleanly'}")
        if clean:
            self.run.mark(Mark.STOPPED)
        else:
            self.owner.stopped_uncleanly(self.node_id, power=False)
        self._end(power=False)
        self.start_later(_START_AGAIN_MS)

    def note_unwritable(self) -> None:
        """Mark that the broker failed to write, if that is why it has ended."""
        if self.disk.broken:
            self.run.mark(Mark.BROKEN)
        elif self.disk.room is not None:
            self.run.mark(Mark.HALTED)

    def could_not_start(self, *, refused: bool) -> None:
        """Retry after a while; with a new disk, if this one has lost what it reported as flushed and is rejected."""
        self._end(power=False)
        if refused and self.disk.has_lost:
            self.run.trace(lambda: f"broker {self.node_id} gets another disk")
            self.run.mark(Mark.DISK_REPLACED)
            self.disk.replace()
            self.disk.directories.add(DATA)
            self.owner.disk_replaced(self.node_id)
        self.start_later(_START_AGAIN_MS)

    def die(self, *, power: bool = False) -> None:
        """Kill the broker, or the whole machine."""
        if self.process is None:
            return
        self.run.trace(lambda: f"broker {self.node_id} dies{', with its machine' if power else ''}")
        self.owner.stopped_uncleanly(self.node_id, power=power)
        self._end(power=power)
        if power:
            self.run.network.down.add(self.node_id)
            self.forgot_epoch = self.owner.broker_epoch(self.node_id)
            self.disk.lose_power(self.rng, self.run.plan.settings.torn)
            self.run.mark(Mark.POWER_LOST)
        if self._damaging is not None:
            self.damage(self._damaging)

    def damage(self, chance: random.Random) -> None:
        """Damage files that the dead broker can rebuild."""
        for _ in range(damage(self.disk, chance)):
            self.run.mark(Mark.FILE_DAMAGED)

    def _end(self, *, power: bool) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.end(power=power)
            self._graveyard.append(process)
        self.disk.process_died()

    def pause(self) -> None:
        """Pause the broker."""
        if self.process is not None:
            self.run.trace(lambda: f"broker {self.node_id} is paused")
            self.process.loop.pause()

    def resume(self) -> None:
        """Resume the broker."""
        if self.process is not None:
            self.run.trace(lambda: f"broker {self.node_id} goes on")
            self.process.loop.resume()

    def _is_cut_short(self) -> bool:
        """Whether the broker may die now, during a change; it dies when its current callback is over."""
        process = self.process
        if process is None or not self.may_stop(power=False):
            return False
        process.alive = process.loop.alive = False
        power = self.rng.random() < 0.5 and self.may_stop(power=True)
        self.run.scheduler.after(0, self._cut_short, process, power)
        return True

    def may_stop(self, *, power: bool) -> bool:
        """Whether its broker may die now."""
        return self.owner.may_stop(self.node_id, power=power)

    def _cut_short(self, process: Process, power: bool) -> None:
        if self.process is process:
            self.run.mark(Mark.CUT_SHORT)
            self.die(power=power)

    @property
    def replicas(self) -> Replicas:
        """The replicas of its broker, if that is a member."""
        assert self.process is not None
        assert self.process.member is not None
        return self.process.member.replicas
