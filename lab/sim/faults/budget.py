"""How many brokers may stop uncleanly if losses of power are budgeted (`Durability.BUDGETED`).

Records are acknowledged when all in-sync replicas, at least min.insync.replicas, have them in their page caches. A
broker that stops uncleanly is removed from the in-sync and eligible replicas when it registers again, whether it has
lost anything or not: the controller cannot know. So with a minimum of two, the other copy makes up for one loss of
power, unless that one is removed too. While a broker that has lost power is not in sync again everywhere, at most
min.insync.replicas - 1 brokers may have stopped uncleanly, itself included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.plan import Durability, SeedPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.sim.machine.machine import Machine
    from sparkonce.broker_lite.controller.image import ClusterImage


class Budget:
    """Tracks unclean stops; without a budget all are allowed."""

    def __init__(self, plan: SeedPlan, brokers: Mapping[int, Machine], image: Callable[[], ClusterImage]) -> None:
        """`image` returns the cluster by the durable log."""
        self._brokers = brokers
        self._image = image
        self._is_limited = plan.durability is Durability.BUDGETED
        self._least = min((min(topic.minimums) for topic in plan.topics if not topic.flushed), default=None)
        self._unclean: dict[int, int] = {}
        """Brokers that have stopped uncleanly, with their epochs then, until they are in sync again everywhere."""
        self._lost_power: set[int] = set()

    def may_stop(self, broker_id: int, *, power: bool) -> bool:
        """Whether a broker may stop uncleanly now."""
        if not self._is_limited or self._least is None:
            return True
        self._forgive()
        if not self._lost_power and not power:
            return True
        if power and any(each.disk.room is not None or each.disk.broken for each in self._brokers.values()):
            return False  # a full or broken disk may stop another one at any time
        return len(self._unclean.keys() | {broker_id}) < self._least

    def stopped_uncleanly(self, broker_id: int, *, power: bool) -> None:
        """Note an unclean stop."""
        self._forgive()
        self._unclean[broker_id] = self._image().broker_epoch(broker_id)
        if power:
            self._lost_power.add(broker_id)

    @property
    def is_used(self) -> bool:
        """Whether a loss of power is not made up for yet."""
        self._forgive()
        return self._is_limited and bool(self._lost_power)

    def _forgive(self) -> None:
        """Forget the stops of brokers that are in sync again everywhere."""
        image = self._image()
        for broker_id, epoch in list(self._unclean.items()):
            if image.broker_epoch(broker_id) > epoch and all(
                broker_id in state.in_sync_replicas for _, state in image.partitions() if broker_id in state.replicas
            ):
                del self._unclean[broker_id]
                self._lost_power.discard(broker_id)
