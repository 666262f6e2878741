"""Each planted bug is found, and the cores are themselves again after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_lite.controller.records import Record
from broker_lite.sim.campaign import BUGS, quiet, run_one, search, shrunk
from broker_lite.sim.controller_host import ControllerHost
from broker_lite.sim.plan import plan_of
from broker_lite.sim.planted import replaced
from broker_lite.sim.shrinking import keep_steps
from broker_lite.sim.world import run_plan

MOST_SEEDS = 1_000
FOUND_BY = {
    "truncate-to-high-watermark": 3,
    "ask-once": 10,
    "confirmed-in-sync-only": 4,
    "expand-before-epoch-start": 67,
    "broker-epoch-not-told": 191,
    "advance-under-min": 0,
    "same-leader-no-truncation": 0,
    "forgetful-stays-eligible": 179,
    "partition-epoch-not-compared": 283,
    "late-verification-counts": 100,
    "leads-by-old-log": 18,
    "producers-not-rebuilt": 48,
}
"""Where to look first: seeds that find each quickly. A change of the cores may move them; then all are searched."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    outcome, _ = search(bug, [FOUND_BY[bug], *range(MOST_SEEDS)])
    assert outcome is not None, f"{bug} is not found in {MOST_SEEDS} seeds"
    with quiet():
        assert run_plan(plan_of(outcome.seed)).violation is None, "the seed fails without the bug, too"


def test_every_planted_bug_has_a_seed() -> None:
    assert set(FOUND_BY) == set(BUGS)
    assert len(BUGS) == 12


def test_a_controller_that_answers_before_its_records_are_durable_is_found() -> None:
    """Not one of the twelve: nothing but the simulator's own host of the controller would have this bug."""
    commit = ControllerHost.commit

    def commit_later(self: ControllerHost, records: list[Record], then: Callable[[], None]) -> None:
        commit(self, records, lambda: None)
        then()

    with quiet(), replaced(ControllerHost, "commit", commit_later):
        assert any(run_plan(plan_of(seed)).violation is not None for seed in range(MOST_SEEDS))


def test_a_failing_seed_shrinks_to_a_few_steps_that_fail_alike() -> None:
    bug, seed = "truncate-to-high-watermark", FOUND_BY["truncate-to-high-watermark"]
    whole = run_one(plan_of(seed), bug)
    kept = shrunk(seed, bug, whole.invariant)
    again = run_one(keep_steps(plan_of(seed), set(kept)), bug)
    assert again.invariant == whole.invariant
    assert len(kept) < len(plan_of(seed).steps) // 2
    assert run_one(keep_steps(plan_of(seed), set(kept)), bug).digest == again.digest
