"""Whole brokers, simulated: the same seed is the same run, and nothing is violated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparkonce.broker_lite.sim.plan import plan_of
from sparkonce.broker_lite.sim.whole.world import run_plan

SEEDS = 12
PRINT_DIGESTS = (
    "from sparkonce.broker_lite.sim.plan import plan_of\n"
    "from sparkonce.broker_lite.sim.whole.world import run_plan\n"
    "print([run_plan(plan_of(seed), tracing=True).digest for seed in (17, 6)])\n"
)


@pytest.mark.timeout(300)
def test_no_invariant_is_violated() -> None:
    outcomes = [run_plan(plan_of(seed)) for seed in range(SEEDS)]
    assert not [(each.seed, each.violation) for each in outcomes if each.violation is not None]


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """With other hashes of strings, and other runs before it."""
    here = [run_plan(plan_of(seed), tracing=True).digest for seed in (6, 17)]
    environment = {**os.environ, "PYTHONHASHSEED": "99"}
    there = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS], capture_output=True, text=True, check=True, env=environment
    )
    assert there.stdout.strip() == str(here[::-1])
