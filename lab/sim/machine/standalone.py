"""A standalone broker beside the cluster, on a machine of its own that often dies, and finds its files damaged.

Its client checks its logs (`clients/retention_checker.py`); all its topics are flushed at each batch, so no
acknowledged record may ever be lost. Between two starts, files that a broker can rebuild are deleted or
overwritten: indexes, producer snapshots, checkpoints. Unless it has stopped in order, it must notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.sim.clients.client import Address
from lab.sim.clients.retention_checker import RetentionChecker
from lab.sim.machine.machine import Machine
from lab.sim.machine.settings import FIRST_PORT, broker_config
from lab.sim.plan import SAFETY_MS
from lab.sim.scheduler import stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from lab.sim.world import World
    from sparkonce.broker_lite.config import BrokerConfig
    from sparkonce.broker_lite.log.partition_log import PartitionLog

STANDALONE: Final = 9
"""Its node id."""
_SEEDS: Final = 0.3
_DEATHS: Final = (1, 2, 4)


def has_standalone(seed: int) -> bool:
    """Whether a seed has one."""
    return stream("standalone", seed).random() < _SEEDS


class StandaloneMachine(Machine):
    """The machine of a standalone broker."""

    def __init__(self, world: World) -> None:
        super().__init__(STANDALONE, world, world)
        self.chance = stream("standalone-broker", world.plan.seed)
        self.retention_checker = _StandaloneRetentionChecker(world, self)
        self._is_over = False

    def config(self) -> BrokerConfig:
        """See `Machine`."""
        return broker_config(self.run.plan, self.node_id, None)

    def begin(self) -> None:
        """Start it, and let it die from time to time."""
        self.start()
        self.retention_checker.begin()
        for _ in range(self.chance.choice(_DEATHS)):
            self.run.scheduler.after(self.chance.randrange(500, SAFETY_MS - 1_000), self._strike)

    def end(self) -> None:
        """Stop killing it."""
        self._is_over = True
        self.disk.fuse = None
        self.retention_checker.end()
        self.start()

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        return self.process is not None and self.process.started

    def _strike(self) -> None:
        if self.process is None or self._is_over:
            return
        kind = self.chance.randrange(4)
        if kind == 0:
            self.stop()
        elif kind == 1:
            self.disk.fuse = self.chance.randrange(40)
        else:
            self.die(power=kind == 2)
        self.start_later(300)

    def die(self, *, power: bool = False) -> None:
        """See `Machine`; no cluster depends on it."""
        if self.process is None:
            return
        self.run.trace(lambda: f"the standalone broker dies{', with its machine' if power else ''}")
        self._end(power=power)
        if power:
            self.run.network.down.add(self.node_id)
            self.disk.lose_power(self.rng, self.run.plan.settings.torn)
        self.damage(self.chance)

    def stopped(self, *, clean: bool) -> None:
        """See `Machine`."""
        self.run.trace(lambda: f"the standalone broker has stopped{'' if clean else ', not cleanly'}")
        self._end(power=False)
        self.start_later(300)

    def may_stop(self, *, power: bool) -> bool:
        """See `Machine`."""
        del power
        return True


class _StandaloneRetentionChecker(RetentionChecker):
    """The client that writes to a standalone broker's topics."""

    replicas = 1

    def __init__(self, world: World, machine: StandaloneMachine) -> None:
        super().__init__(world)
        self._machine = machine

    def some_broker(self) -> Address:
        """See `Client`."""
        return Address(self._machine.address, FIRST_PORT)

    @property
    def is_judged(self) -> bool:
        """See `RetentionChecker`."""
        return True

    def logs(self, topic: str) -> Iterator[tuple[int, UUID, PartitionLog]]:
        """See `RetentionChecker`."""
        process = self._machine.process
        broker = None if process is None else process.server.broker
        found = None if broker is None else broker.topic(topic)
        if found is not None:
            yield STANDALONE, found.topic_id, found.logs[0]
