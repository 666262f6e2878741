"""Writers of a Delta log in a store that fails: some seeds, and that bugs are found. Many more: `make lab`."""

from __future__ import annotations

import pytest

from lab.log.campaign import run_block, search
from lab.log.run import run_seed

SEEDS = range(60)


def test_seeds_without_a_violation() -> None:
    tally = run_block(SEEDS)
    assert tally.failed == [], "again: python -m lab.log --seed N"
    assert tally.seen.keys() >= {"crash", "late", "lost", "never", "repeated", "told-landed", "told-not-landed", "drop"}


def test_a_seed_is_the_same_again() -> None:
    first, again, other = (run_seed(seed) for seed in (5, 5, 6))
    assert list(first.events) == list(again.events)
    assert first.trace_hash == again.trace_hash != other.trace_hash


@pytest.mark.parametrize("name", ["txn-ignored", "put-over"])
def test_a_planted_bug_is_found(name: str) -> None:
    assert search(name, range(50)) is not None
