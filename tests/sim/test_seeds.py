"""Some hundred seeds: nothing is violated, and everything rare has been seen. Many thousands: `make soak`.

A failure names the seed; `sparkonce sim --seed N` shows it again.
"""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.sim.campaign import Tally, run_seeds
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.jobs.lab.sim_workers import tallies

SEEDS = 180
RARE_SEEDS = (213,)
"""What they have is in one seed of some hundred: a coordinator that dies right after it has told a KIP-848 epoch."""
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


@pytest.mark.timeout(900)
def test_no_invariant_is_violated(tally: Tally) -> None:
    assert tally.seeds == SEEDS + len(RARE_SEEDS)
    assert not tally.violations, "again: sparkonce sim --seed N"


@pytest.mark.timeout(900)
def test_every_rare_thing_is_seen(tally: Tally) -> None:
    assert not [mark.value for mark in set(Mark) - UNNOTED if not tally.marks[mark]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed",
    [
        184,
        281,
        1082,
        1100,
        1324,
        1331,
        2860,
        18574,
        22265,
        30618,
        35154,
        42144,
        48697,
        57783,
        69820,
        76186,
        76783,
        99751,
    ],
)
def test_a_plan_that_judges_were_wrong_about(seed: int) -> None:
    """Late words, ends that are decided twice, coordinators that are replaced without their knowledge, lying disks."""
    assert not run_seeds([seed]).violations


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    found = Tally()
    for part in tallies(range(SEEDS, SEEDS + SOAK_SEEDS), 2):
        found.join(part)
    assert found.seeds == SOAK_SEEDS
    assert not found.violations, "again: sparkonce sim --seed N"
