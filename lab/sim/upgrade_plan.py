"""Which brokers of a seed have a former version, and when they change it."""

from __future__ import annotations

from typing import Final, NamedTuple

from lab.sim.scheduler import stream

STANDALONE_BROKER: Final = 0
"""The standalone broker's number among the brokers that change their version."""
_LEFT_BEHIND: Final = 0.3
"""The share of seeds with a broker that is not upgraded."""
_DOWNGRADES: Final = 0.4
"""The share of seeds in which one is downgraded."""


class FormerPlan(NamedTuple):
    """Brokers of another version beside those of this one."""

    directory: str
    """A checkout of that version."""
    brokers: tuple[int, ...]
    """The brokers that start with it, besides the standalone broker, if there is one."""


class Change(NamedTuple):
    """A broker is restarted with the other version."""

    at_ms: int
    broker: int
    is_upgrade: bool
    amount: int = 1
    """The step's argument."""


def former_of(directory: str, seed: int, brokers: int, begin_ms: int, end_ms: int) -> tuple[FormerPlan, list[Change]]:
    """Return the brokers of the former version, upgraded one after the other; in some seeds one is downgraded."""
    rng, middle_ms = stream("upgrade", seed), end_ms // 2
    chosen = rng.sample(range(1, brokers + 1), rng.choice((1, brokers - 1, brokers)))
    at_ms, apart_ms = rng.randrange(begin_ms, middle_ms), rng.choice((100, 400, 900))
    changes = [
        Change(at_ms + index * apart_ms, broker, True, rng.randrange(60))
        for index, broker in enumerate(chosen[rng.random() < _LEFT_BEHIND :])
    ]
    changes.append(Change(rng.randrange(begin_ms, middle_ms), STANDALONE_BROKER, True))
    if rng.random() < _DOWNGRADES:
        at_ms = rng.randrange(middle_ms, end_ms)
        changes.append(Change(at_ms, rng.choice(chosen), False, rng.randrange(60)))
        changes.append(Change(at_ms, STANDALONE_BROKER, False))
    return FormerPlan(directory, tuple(sorted(chosen))), changes
