"""Brokers of a former version: which ones start with it, and which are restarted with the other version, and when."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lab.sim.former import former_version
from lab.sim.machine.process import Process
from lab.sim.steps import Kind, Step
from lab.sim.upgrade_plan import STANDALONE_BROKER, FormerPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sim.faults.strikes import Strikes
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World

_RESTART_MS = 200


class Upgrades:
    """Starts brokers with one version or the other."""

    def __init__(self, world: World, strikes: Strikes, plan: FormerPlan, standalone: Machine | None) -> None:
        self._machines = world.brokers if standalone is None else {**world.brokers, STANDALONE_BROKER: standalone}
        self._strikes = strikes
        former = former_version(plan.directory).process
        world.versions.append(former)
        for each in (*plan.brokers, STANDALONE_BROKER):
            if each in self._machines:
                self._machines[each].version = former
        self.actions: dict[Kind, Callable[[Step], None]] = {
            Kind.UPGRADE: partial(self._change, Process),
            Kind.DOWNGRADE: partial(self._change, former),
        }

    def _change(self, version: type[Process], step: Step) -> None:
        """Restart a broker with a version, mostly after an orderly stop."""
        broker = self._machines.get(step.target)
        if broker is None:
            return
        broker.version = version
        if step.amount % 4 == 0:
            self._strikes.die(broker, _RESTART_MS)
        broker.stop()
