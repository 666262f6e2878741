"""Faults as those of `steps.py`, with records under way where a fault needs them to do harm.

A record needs some trips through the network, and a fault that strikes when nothing is under way proves little. So a
fault first lets records be sent, and then waits for some trips: which ones were made, of request, copies and high
watermark, is another each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.sim.faults.steps import Faults
from sparkonce.broker_lite.sim.plan import Step

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.broker_lite.sim.machine.machine import Machine
    from sparkonce.broker_lite.sim.world import World

_TRIPS: Final = 5
"""How many trips a leader in a duel has more time for: to connect, to send, and to be heard."""
_MOST_TRIPS: Final = 7
"""After that many trips a record is safe, and all know it."""
_NEWS: Final = 5
"""How many records come while a replica is left behind."""


class WholeFaults(Faults):
    """What goes wrong, and what may."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._duel_ms += _TRIPS * world.plan.settings.delay_ms

    def _produce_to(self, key: PartitionKey) -> None:
        if not self.over:
            self._world.produce_to(key)

    def _falls_behind(self, keys: Sequence[PartitionKey]) -> None:
        """Let records become safe that the follower does not have."""
        for key in keys:
            self._world.scheduler.after(self._world.plan.settings.lag_ms, self._produce_to, key)

    def _strike_leader(self, step: Step, key: PartitionKey, strike: Callable[[], None]) -> None:
        """Strike, every second time while a record is on its way through the leader."""
        if step.target % 2:
            strike()
            return
        self._world.produce_to(key)
        trips = 1 + step.amount % _MOST_TRIPS
        self._world.scheduler.after(trips * self._world.plan.settings.delay_ms + step.amount % 5, strike)

    def _leave_behind(self, step: Step) -> None:
        """Fence a replica that has everything, then start all others again, not knowing what is safe (KAFKA-7128).

        Every third time the power of one other is lost in their place: what it had of that is gone, and with it the
        right to be elected (KIP-966).
        """
        key, state = self._some_partition(step)
        if key is None or state is None or state.leader == NO_LEADER:
            return
        scheduler, settings = self._world.scheduler, self._world.plan.settings
        *between, laggard = (each for each in state.replicas if each != state.leader)
        others = [each for each in self._world.brokers if each != laggard]
        apart_ms = max(settings.session_ms + 300, settings.lag_ms * 3 // 2 + 200)
        end_ms = apart_ms + self._duel_ms
        self._block({(laggard, each) for each in others}, end_ms)
        # What comes at the end is safe soon, but no high watermark on a disk says so yet.
        for _ in range(_NEWS):
            scheduler.after(apart_ms, self._produce_to, key)
        if step.target % 3 == 0:
            scheduler.after(end_ms, self._strike, self._world.brokers[between[0]], True)
            return
        for each in others:
            scheduler.after(end_ms, self._die_in_duel, self._world.brokers[each], 100)
        # The replica that has everything returns later, so that the other one fetches first.
        scheduler.after(end_ms, self._block, {(each, state.leader) for each in between}, 2 * settings.session_ms)

    # Nothing of all that once all faults are over.

    def _die(self, broker: Machine, down_ms: int, *, power: bool) -> None:
        if not self.over:
            super()._die(broker, down_ms, power=power)

    def _pause_for(self, broker: Machine, duration_ms: int) -> None:
        if not self.over:
            super()._pause_for(broker, duration_ms)

    def _block(self, pairs: set[tuple[int, int]], duration_ms: int) -> None:
        if not self.over:
            super()._block(pairs, duration_ms)
