"""Chance in tests: the same draws in each `make test`, new and more of them in `make soak`.

A test run that draws anew fails by chance on a change that has nothing to do with it. So the properties' examples and
the seeds of `make test` are fixed, and new ones are looked for where somebody waits for them: `EXAMPLES=20` draws 20
times as many, at random.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_FACTOR = int(os.environ.get("EXAMPLES", "0"))
"""How many times as many examples as usual are drawn, at random; 0 stands for the usual ones, always the same."""


def load_profile() -> None:
    """Have Hypothesis draw as `EXAMPLES` says, also where a test does not say how many."""
    settings.register_profile(
        "sparkonce",
        deadline=None,  # a test judges no times, and a busy machine is slow
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not _FACTOR,
        max_examples=examples(100),
        print_blob=True,  # what failed can be run again
    )
    settings.load_profile("sparkonce")


def examples(usual: int) -> int:
    """Return how many examples a property gets that usually has so many."""
    return usual * (_FACTOR or 1)


def new_seed() -> int:
    """Return a seed that no run had, and print it so that what failed can be run again."""
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    return seed
