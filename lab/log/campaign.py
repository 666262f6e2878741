"""Many seeds, and planted bugs."""

from __future__ import annotations

import gc
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context

from lab.log.planted import PLANTED
from lab.log.run import Outcome, run_seed

BLOCK = 500
"""Seeds that a process runs before it reports."""


@dataclass(slots=True)
class Tally:
    """What a block of seeds showed."""

    first: int
    seeds: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)
    hashes: str = ""
    """One hash of those of all seeds."""


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing, since what fails is planned, and collect garbage seldom."""
    logger, thresholds = logging.getLogger("sparkonce"), gc.get_threshold()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    gc.set_threshold(50_000)
    try:
        yield
    finally:
        logger.setLevel(level)
        gc.set_threshold(*thresholds)


def run_block(seeds: range) -> Tally:
    """Run some seeds."""
    tally, whole = Tally(seeds.start), hashlib.sha256()
    with quiet():
        for seed in seeds:
            outcome = run_seed(seed)
            tally.seeds += 1
            tally.seen += outcome.seen
            tally.failed += [(seed, outcome.violations[0])] if outcome.violations else []
            whole.update(outcome.trace_hash.encode())
    tally.hashes = whole.hexdigest()
    return tally


def search(name: str, seeds: Iterable[int]) -> Outcome | None:
    """Return the first seed's outcome that finds a planted bug."""
    plant = PLANTED[name]
    with quiet(), plant.planted():
        outcomes = (run_seed(seed, plant.wants) for seed in seeds)
        return next((outcome for outcome in outcomes if outcome.violations), None)


def tallies(seeds: range, jobs: int) -> Iterator[Tally]:
    """Run seeds in blocks, on several processes; the blocks' results come in order."""
    blocks = [range(at, min(at + BLOCK, seeds.stop)) for at in range(seeds.start, seeds.stop, BLOCK)]
    if jobs == 1:
        yield from map(run_block, blocks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(run_block, blocks)
