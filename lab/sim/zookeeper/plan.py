"""The ZooKeeper of a seed: the number of servers, their lag, and their faults."""

from __future__ import annotations

from typing import Final, NamedTuple

from lab.sim.scheduler import stream

_SEEDS: Final = 1 / 3
"""The share of seeds with a ZooKeeper in place of shared files."""


class ZooKeeperPlan(NamedTuple):
    """A ZooKeeper; times in milliseconds."""

    servers: int
    tick_ms: int
    """The interval of session checks; a server reports active sessions to the leader twice as often."""
    sync_limit_ms: int
    """How long a server answers reads without the others."""
    election_ms: int
    lag_ms: int
    """The maximal lag of a server behind what has been decided."""
    delivery_ms: int
    """The maximal delay of what the client's threads deliver to the event loop."""


def has_zookeeper(seed: int) -> bool:
    """Whether a seed has a ZooKeeper."""
    return stream("coordination", seed).random() < _SEEDS


def zookeeper_of(seed: int, session_ms: int) -> ZooKeeperPlan:
    """Return a seed's ZooKeeper; sessions last at least two ticks."""
    rng = stream("zookeeper", seed)
    return ZooKeeperPlan(
        servers=rng.choice((1, 3, 3)),
        tick_ms=session_ms // rng.choice((2, 2, 4, 10)),
        sync_limit_ms=rng.choice((100, 600, 2_500)),
        election_ms=rng.choice((20, 200, 600)),
        lag_ms=rng.choice((1, 10, session_ms // 20, session_ms // 8)),
        delivery_ms=rng.choice((0, 2, 15)),
    )
