"""Some hundred seeds: nothing is violated, and everything rare has been seen. Many thousands: `make soak`.

A failure names the seed; `sparkonce sim --seed N` shows it again.
"""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.sim.campaign import Tally, run_seeds
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.jobs.lab.sim_workers import tallies

SEEDS = 300
SOAK_SEEDS = 20_000
UNNOTED = frozenset(
    {
        Mark.SEVERAL_ROUNDS,
        Mark.FENCED_FETCH,
        Mark.EARLY_FETCH,
        Mark.UNDER_MIN,
        Mark.SHRUNK,
        Mark.EXPANDED,
        Mark.REFUSED_INELIGIBLE,
        Mark.REFUSED_EPOCH,
        Mark.REFUSED_LEADER,
        Mark.STALE_BROKER,
        Mark.STALE_FETCH,
        Mark.TWO_REGISTRATIONS,
        Mark.SESSION_ENDED,
        Mark.FAILOVER_IN_PROPOSAL,
        Mark.BALANCED,
        Mark.TORN,
        Mark.CUT_SHORT,
        Mark.STOPPED,
        Mark.DISK_FULL,
        Mark.HALTED,
        Mark.DUPLICATE,
        Mark.OUT_OF_ORDER,
        Mark.TIMED_OUT,
        Mark.ACK_LOST,
        Mark.OLD_LEADER,
        Mark.BROKEN,
        Mark.ELIGIBLE_NO_MORE,
        Mark.SAFE_AGAIN,
        Mark.TRANSACTION_TIMED_OUT,
        Mark.PRODUCER_FENCED,
        Mark.ENDED_BY_EARLIER,
        Mark.ENDED_TOO_EARLY,
        Mark.ENDED_TOO_EARLY_BY_NEXT_ID,
        Mark.DECISION_TAKEN_OVER,
        Mark.MARKER_UNDER_MIN,
        Mark.MARKER_AGAIN,
        Mark.VERIFIED_TOO_LATE,
        Mark.MOVED_WITH_JOINS,
        Mark.GROUP_READ_BACK,
        Mark.CONSUMER_GROUP_READ_BACK,
        Mark.GROUP_NOT_WRITTEN,
        Mark.NEVER_SAFE,
        Mark.OLD_GENERATION,
        Mark.COMMIT_KEPT,
        Mark.COMMIT_LOST,
    }
)
"""What nothing looks for yet where whole brokers run; to become none."""


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_seeds(range(SEEDS))


@pytest.mark.timeout(900)
def test_no_invariant_is_violated(tally: Tally) -> None:
    assert tally.seeds == SEEDS
    assert not tally.violations, "again: sparkonce sim --seed N"


@pytest.mark.timeout(900)
def test_every_rare_thing_is_seen(tally: Tally) -> None:
    assert not [mark.value for mark in set(Mark) - UNNOTED if not tally.marks[mark]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [18574, 22265, 30618, 35154, 42144, 48697, 57783, 69820, 76186, 76783, 99751])
def test_a_plan_that_judges_were_wrong_about(seed: int) -> None:
    """Late words, ends that are decided twice, coordinators that are replaced without their knowledge."""
    assert not run_seeds([seed]).violations


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    found = Tally()
    for part in tallies(range(SEEDS, SEEDS + SOAK_SEEDS), 2):
        found.join(part)
    assert found.seeds == SOAK_SEEDS
    assert not found.violations, "again: sparkonce sim --seed N"
