"""Some eighty seeds: nothing is violated, and everything rare has been seen. Many thousands: `make soak`.

A failure names the seed; `sparkonce sim --seed N` shows it again.
"""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.sim.campaign import Tally, run_seeds
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.plan import Coordination
from sparkonce.jobs.lab.sim_workers import tallies

SEEDS = 80
RARE_SEEDS = (91, 136, 158, 261, 269, 431)
"""These have what the first ones lack. Where a change of the plans moves it, `sparkonce sim --seeds 1 --first N` shows
what seed N has."""
SOAK_SEEDS = 20_000
ZOOKEEPER_SEEDS = (1, 15, 27, 112, 285, 298)
"""In 112 ZooKeeper's leader has not heard of a heartbeat that was answered. In 285 a member joins again and then hears
what was sent before; in 298 clocks pass the retention while one member is away."""
ONLY_BESIDE = frozenset({Mark.UPGRADED, Mark.DOWNGRADED})
"""Seen only with `sparkonce sim --beside`, with brokers of another commit."""


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_seeds([*range(SEEDS), *RARE_SEEDS])


@pytest.mark.timeout(1800)
def test_no_invariant_is_violated(tally: Tally) -> None:
    assert tally.seeds == SEEDS + len(RARE_SEEDS)
    assert not tally.violations, "again: sparkonce sim --seed N"


@pytest.mark.timeout(1800)
def test_every_rare_thing_is_seen(tally: Tally) -> None:
    assert not [mark.value for mark in set(Mark) - ONLY_BESIDE if not tally.marks[mark]]


@pytest.mark.timeout(600)
def test_no_invariant_is_violated_on_zookeeper() -> None:
    assert not run_seeds(ZOOKEEPER_SEEDS, Coordination.ZOOKEEPER).violations


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    found = Tally()
    for part in tallies(range(SEEDS, SEEDS + SOAK_SEEDS), 2):
        found.join(part)
    assert found.seeds == SOAK_SEEDS
    assert not found.violations, "again: sparkonce sim --seed N"
