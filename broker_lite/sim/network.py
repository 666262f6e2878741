"""The network between brokers and clients: it delays, loses, doubles and reorders, and parts can be cut off.

A request that finds no process is refused at once, as by a real machine; one that is lost is answered by nothing, and
the sender goes by its own time-out. Each sender draws from its own stream of chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkonce.broker_lite.sim.plan import Settings
from sparkonce.broker_lite.sim.scheduler import Scheduler, stream

CLIENT = 0
"""The side that all clients are on."""
_STRAY_MS = 2_500
_LATE_WORDS = 0.15


@dataclass(slots=True)
class Weather:
    """What the network is like now."""

    delay_ms: int
    loss: float
    doubling: float
    late_words: float
    """How often what a coordinator says of a partition reaches its leader much later."""


@dataclass(slots=True)
class Network:
    """Delivers what is sent."""

    scheduler: Scheduler
    seed: int
    settings: Settings
    blocked: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of sender and receiver between which nothing goes through."""
    weather: Weather = field(init=False)
    _streams: dict[int, random.Random] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clear_up()

    def clear_up(self) -> None:
        """Let the weather be what the settings say."""
        self.weather = Weather(self.settings.delay_ms, self.settings.loss, self.settings.doubling, _LATE_WORDS)

    def calm(self) -> None:
        """Stop all losses, delays and partitions from now on."""
        self.weather = Weather(2, loss=0.0, doubling=0.0, late_words=0.0)
        self.blocked.clear()

    def send(self, sender: int, receiver: int, deliver: Callable[[], None], *, may_double: bool = False) -> None:
        """Send something; `deliver` may be called later, now and then twice if it may."""
        if (sender, receiver) in self.blocked:
            return
        chance = self._stream(sender).random
        weather = self.weather
        if weather.loss and chance() < weather.loss:
            return
        self.scheduler.after(self._delay(chance), deliver)
        if may_double and weather.doubling and chance() < weather.doubling:
            strays = chance() < 0.5  # it has waited long in some buffer
            self.scheduler.after(int(chance() * _STRAY_MS) if strays else self._delay(chance) * 8, deliver)

    def delay_ms(self, sender: int) -> int:
        """Draw how long something takes that is not lost."""
        return self._delay(self._stream(sender).random)

    def is_lost(self, sender: int, receiver: int) -> bool:
        """Draw whether something gets lost."""
        return (sender, receiver) in self.blocked or self._stream(sender).random() < self.weather.loss

    def _delay(self, chance: Callable[[], float]) -> int:
        """Mostly short, now and then many times as long."""
        drawn = chance()
        factor = 1.0 if drawn < 0.9 else 10.0 * (drawn - 0.8)
        return 1 + int(self.weather.delay_ms * factor * chance())

    def _stream(self, sender: int) -> random.Random:
        known = self._streams.get(sender)
        if known is None:
            known = self._streams[sender] = stream("network", self.seed, sender)
        return known
