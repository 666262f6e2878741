"""Makes a failing seed smaller: leaves out steps as long as the same invariant is violated.

Halves first, then quarters, down to single steps, as in Zeller's delta debugging. What is left out changes what happens
after it, so that a step may be needed for no other reason than the timing of another one; what remains is small, not
smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from sparkonce.broker_lite.sim.plan import Plan

MAX_RUNS: Final = 300
"""How many runs are spent on one seed."""


def keep_steps(plan: Plan, indexes: Collection[int]) -> Plan:
    """Return the plan with these of its steps only."""
    return replace(plan, steps=tuple(step for index, step in enumerate(plan.steps) if index in indexes))


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> list[int]:
    """Return the indexes of steps with which the plan still fails, few of them."""
    kept = list(range(len(plan.steps)))
    size, runs = max(len(kept) // 2, 1), 0
    while runs < MAX_RUNS:
        dropped = False
        start = 0
        while start < len(kept) and runs < MAX_RUNS:
            tried = kept[:start] + kept[start + size :]
            runs += 1
            if fails(keep_steps(plan, set(tried))):
                kept, dropped = tried, True
            else:
                start += size
        if size == 1 and not dropped:
            break
        size = max(size // 2, 1)
    return kept
