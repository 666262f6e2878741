"""Some hundred seeds: nothing is violated, and everything rare has been seen. Many thousands: `make soak`.

A failure names the seed; `sparkonce sim --seed N` shows it again.
"""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.sim.campaign import Tally, run_seeds
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.jobs.lab.sim_workers import tallies

SEEDS = 198
RARE_SEEDS = (431,)
"""What they have is in one seed of some hundred: answers to markers in the middle of the next transaction."""
SOAK_SEEDS = 20_000
UNNOTED = frozenset(
    {
        Mark.DISK_REPLACED,
        Mark.EARLY_FETCH,
        Mark.GAVE_UP,
        Mark.HALTED,
        Mark.ELIGIBLE_NO_MORE,
        Mark.ENDED_TOO_EARLY_BY_NEXT_ID,
        Mark.INSTANCE_FENCED,
        Mark.UPGRADED,
        Mark.DOWNGRADED,
    }
)
"""What so few seeds may not have."""


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_seeds([*range(SEEDS), *RARE_SEEDS])


@pytest.mark.timeout(1800)
def test_no_invariant_is_violated(tally: Tally) -> None:
    assert tally.seeds == SEEDS + len(RARE_SEEDS)
    assert not tally.violations, "again: sparkonce sim --seed N"


@pytest.mark.timeout(1800)
def test_every_rare_thing_is_seen(tally: Tally) -> None:
    assert not [mark.value for mark in set(Mark) - UNNOTED if not tally.marks[mark]]


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    found = Tally()
    for part in tallies(range(SEEDS, SEEDS + SOAK_SEEDS), 2):
        found.join(part)
    assert found.seeds == SOAK_SEEDS
    assert not found.violations, "again: sparkonce sim --seed N"
