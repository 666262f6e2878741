"""What a seed says about its ZooKeeper: how many servers, how far they lag behind, and what goes wrong with them."""

from __future__ import annotations

from typing import Final, NamedTuple

from lab.sim.scheduler import stream

_SEEDS: Final = 1 / 3
"""How many seeds have a ZooKeeper in place of files that all brokers share."""


class ZooKeeperPlan(NamedTuple):
    """A ZooKeeper; times in milliseconds."""

    servers: int
    tick_ms: int
    """How often sessions are looked at; twice as often a server tells the leader which of them it has heard."""
    sync_limit_ms: int
    """So long a server goes on answering reads without the others."""
    election_ms: int
    lag_ms: int
    """By how much a server may be behind what has been decided."""
    delivery_ms: int
    """By how much the client's threads may be late with what they bring to the event loop."""


def has_zookeeper(seed: int) -> bool:
    """Whether a seed has a ZooKeeper."""
    return stream("coordination", seed).random() < _SEEDS


def zookeeper_of(seed: int, session_ms: int) -> ZooKeeperPlan:
    """Return a seed's ZooKeeper; sessions last two ticks at least."""
    rng = stream("zookeeper", seed)
    return ZooKeeperPlan(
        servers=rng.choice((1, 3, 3)),
        tick_ms=session_ms // rng.choice((2, 2, 4, 10)),
        sync_limit_ms=rng.choice((100, 600, 2_500)),
        election_ms=rng.choice((20, 200, 600)),
        lag_ms=rng.choice((1, 10, session_ms // 20, session_ms // 8)),
        delivery_ms=rng.choice((0, 2, 15)),
    )
