"""What faults do to brokers and to the network between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World


class Strikes:
    """Strikes within the seed's budget."""

    def __init__(self, world: World) -> None:
        self._world = world

    def die(self, broker: Machine, down_ms: int, *, power: bool = False) -> None:
        """Kill a broker, or its machine, and start it again."""
        if not self._world.is_healed and broker.alive and broker.may_stop(power=power):
            broker.die(power=power)
            broker.start_later(down_ms)

    def pause_for(self, broker: Machine, duration_ms: int) -> None:
        """Pause a broker for a while."""
        if not self._world.is_healed and broker.alive and not broker.paused:
            broker.pause()
            self._world.scheduler.after(duration_ms, self._resume, broker, broker.incarnation)

    @staticmethod
    def _resume(broker: Machine, incarnation: int) -> None:
        if broker.incarnation == incarnation and broker.paused:
            broker.resume()

    def block(self, pairs: set[tuple[int, int]], duration_ms: int) -> None:
        """Block all traffic from the first to the second machine of each pair for a while."""
        network = self._world.network
        if not self._world.is_healed:
            network.blocked |= pairs
            self._world.scheduler.after(duration_ms, network.blocked.difference_update, pairs)
