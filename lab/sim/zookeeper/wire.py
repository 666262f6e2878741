"""A connection between a client and a server of ZooKeeper: it carries messages in order, both ways, until it breaks.

A partition delays messages, as TCP retransmits. When it breaks, messages in flight to the
server may still arrive, up to some message; those to the client do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lab.sim.machine.sockets import CUTS_OF_LOSSES, LOST_MS, SEND_AGAIN_MS
from lab.sim.scheduler import stream

if TYPE_CHECKING:
    import random

    from lab.sim.machine.sockets import Network
    from lab.sim.scheduler import Scheduler

FIRST_MACHINE: Final = 101
"""The number of the first server's machine; brokers' begin with 1."""


class Roads:
    """What connections use: the network of the brokers."""

    def __init__(self, scheduler: Scheduler, network: Network, seed: int) -> None:
        self.scheduler = scheduler
        self.rng: random.Random = stream("roads", seed)
        self._network = network

    def delay_ms(self) -> int:
        """Return a message's delay: mostly short, sometimes many times as long."""
        drawn = self.rng.random()
        factor = 1.0 if drawn < 0.9 else 10.0 * (drawn - 0.8)
        return int(self._network.weather.delay_ms * factor * self.rng.random())

    def is_lost(self) -> bool:
        """Whether a message must be retransmitted."""
        loss = self._network.weather.loss
        return loss > 0 and self.rng.random() < loss

    def is_blocked(self, sender: int, receiver: int) -> bool:
        """Whether nothing gets through."""
        return (sender, receiver) in self._network.blocked


class Direction:
    """One direction of a connection."""

    def __init__(
        self,
        roads: Roads,
        sender: int,
        receiver: int,
        deliver: Callable[[Any], None],
        broken: Callable[[], None],
    ) -> None:
        self._roads = roads
        self._way = (sender, receiver)
        self._deliver = deliver
        self._broken = broken
        self._queue: deque[tuple[int, Any]] = deque()
        self._last_ms = 0
        self._busy = False
        self._open = True

    def send(self, message: Any) -> None:
        """Deliver a message later, in order."""
        if not self._open:
            return
        scheduler = self._roads.scheduler
        delay_ms = self._roads.delay_ms()
        if self._roads.is_lost():
            delay_ms += LOST_MS
            if self._roads.rng.random() < CUTS_OF_LOSSES:
                scheduler.after(delay_ms, self._broken)
        self._last_ms = max(self._last_ms, scheduler.now_ms + delay_ms)
        self._queue.append((self._last_ms, message))
        if not self._busy:
            self._busy = True
            scheduler.after(self._last_ms - scheduler.now_ms, self._pump)

    def close(self, *, some: bool) -> None:
        """Deliver nothing any more, or only some of what is in flight, now."""
        if not self._open:
            return
        self._open = False
        some = some and not self._roads.is_blocked(*self._way)
        arriving = self._roads.rng.randrange(len(self._queue) + 1) if some else 0
        messages = [message for _, message in self._queue][:arriving]
        self._queue.clear()
        for message in messages:
            self._deliver(message)

    def _pump(self) -> None:
        queue, scheduler = self._queue, self._roads.scheduler
        blocked = self._roads.is_blocked(*self._way)
        while queue and queue[0][0] <= scheduler.now_ms and not blocked:
            self._deliver(queue.popleft()[1])
        self._busy = bool(queue)
        if queue:
            scheduler.after(SEND_AGAIN_MS if blocked else queue[0][0] - scheduler.now_ms, self._pump)
