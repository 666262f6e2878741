"""Run many seeds one after the other, add up their results, and shrink a failing seed.

Steps are left out as long as the same invariant is violated: halves first, then quarters, down to single steps, as in
Zeller's delta debugging. Leaving out a step changes what happens after it, so a step may be needed only for the
timing of another one: the result is small, not minimal.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from lab.sim.marks import Mark
from lab.sim.outcome import Outcome
from lab.sim.plan import Coordination, SeedPlan, plan_of
from lab.sim.planted.shell import PLANTED
from lab.sim.simulation import run_plan

BUGS: Final = tuple(each.name for each in PLANTED)
"""The names of the bugs that can be planted."""
MAX_RUNS: Final = 300
"""How many runs are spent on one seed."""


@dataclass(slots=True)
class Tally:
    """The results of some seeds."""

    seeds: int = 0
    simulated_ms: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)
    """Seeds, each with what was violated."""
    marks: Counter[Mark] = field(default_factory=Counter)
    """How often each was seen."""
    seeds_of_mark: Counter[Mark] = field(default_factory=Counter)
    """In how many seeds each was seen."""

    def add(self, outcome: Outcome) -> None:
        """Add the result of one seed."""
        self.seeds += 1
        self.simulated_ms += outcome.simulated_ms
        self.marks += outcome.marks
        self.seeds_of_mark.update(outcome.marks.keys())
        if outcome.violation is not None:
            self.violations.append((outcome.seed, outcome.violation))

    def join(self, other: Tally) -> None:
        """Add the results of other seeds."""
        self.seeds += other.seeds
        self.simulated_ms += other.simulated_ms
        self.violations += other.violations
        self.marks += other.marks
        self.seeds_of_mark += other.seeds_of_mark


@contextmanager
def quiet() -> Iterator[None]:
    """Silence recovery's warnings about damaged logs: logs are damaged here all the time."""
    logger = logging.getLogger("sparkonce.broker_lite")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Run the garbage collector less often: a world's objects live as long as it does and have reference cycles."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _with_bug(name: str | None) -> AbstractContextManager[None]:
    """Plant a bug, or none."""
    return nullcontext() if name is None else next(each for each in PLANTED if each.name == name).plant()


def run_seeds(seeds: Iterable[int], coordination: Coordination | None = None, beside: str | None = None) -> Tally:
    """Run the plans of seeds, `coordination` and `beside` as in `plan_of`."""
    tally = Tally()
    with quiet(), _few_collections():
        for seed in seeds:
            tally.add(run_plan(plan_of(seed, coordination, beside)))
    return tally


def ablate(bug: str, seeds: Iterable[int], coordination: Coordination | None = None) -> Tally:
    """Run seeds with a bug planted."""
    with _with_bug(bug):
        return run_seeds(seeds, coordination)


def search(bug: str, seeds: Iterable[int], coordination: Coordination | None = None) -> tuple[Outcome | None, int]:
    """Plant a bug and run seeds until one finds it; return that outcome and the number of seeds run."""
    tried = 0
    with quiet(), _few_collections(), _with_bug(bug):
        for seed in seeds:
            tried += 1
            outcome = run_plan(plan_of(seed, coordination))
            if outcome.violation is not None:
                return outcome, tried
    return None, tried


def run_one(plan: SeedPlan, bug: str | None) -> Outcome:
    """Run a plan with its trace, with a planted bug or without."""
    with quiet(), _with_bug(bug):
        return run_plan(plan, tracing=True)


def shrunk(plan: SeedPlan, bug: str | None, invariant: str | None) -> list[int]:
    """Return the plan reduced to a few steps that still violate the invariant."""
    with quiet(), _with_bug(bug):
        return shrink(plan, lambda smaller: run_plan(smaller).invariant == invariant)


def keep_steps(plan: SeedPlan, indexes: Collection[int]) -> SeedPlan:
    """Return the plan with only these of its steps."""
    return replace(plan, steps=tuple(step for index, step in enumerate(plan.steps) if index in indexes))


def shrink(plan: SeedPlan, fails: Callable[[SeedPlan], bool]) -> list[int]:
    """Return the indexes of a few steps with which the plan still fails."""
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
