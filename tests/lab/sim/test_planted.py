"""Each planted bug is found: those of the state machines, and those between them and the sockets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.sim.campaign import BUGS, keep_steps, run_one, run_seeds, search, shrunk
from lab.sim.plan import plan_of
from lab.sim.planted.zookeeper import OF_ZOOKEEPER
from tests.lab.sim.test_zookeeper import FOUND_BY as FOUND_ON_ZOOKEEPER

FOUND_BY = {
    "acks-before-safe": (0, "acknowledged-is-safe"),
    "acks-by-end": (0, "acknowledged-is-safe"),
    "leads-as-before-the-wait": (263, "error"),
    "coordinators-answer-at-once": (80, "fenced-for-cause"),
    "heartbeats-answered-at-once": (120, "member-stays"),
    "compacted-too-much": (2, "latest-kept"),
    "end-not-authorized": (0, "authorized"),
    "offsets-not-authorized": (0, "authorized"),
    "deletion-not-authorized": (0, "authorized"),
    "consumers-read-to-the-end": (1, "read-is-safe"),
    "offsets-outside-transaction": (21, "offsets-atomic"),
    "marker-sent-twice": (137, "transactions-atomic"),
    "malformed-sent-on": (118, "error"),
    "late-marker": (2, "transactions-atomic"),
    "error-silences-others": (0, "error"),
    "follower-waits-for-its-own": (21, "prompt"),
    "markers-answered-at-once": (16, "transactions-atomic"),
    "coordinators-not-unloaded": (16, "liveness"),
}
CORES_FOUND_BY = {
    "given-before-given-up": 37,
    "shares-told-at-once": 223,
    "truncate-to-high-watermark": 0,
    "confirmed-in-sync-only": 8,
    "expand-before-epoch-start": 120,
    "broker-epoch-not-told": 369,
    "same-leader-no-truncation": 183,
    "forgetful-stays-eligible": 18,
    "partition-epoch-not-compared": 3071,
    "ask-once": 41,
    "leads-by-old-log": 9,
    "advance-under-min": 0,
    "producers-not-rebuilt": 26,
    "late-verification-counts": 106,
    "ended-too-early-fences": 1,
}
"""A seed that finds each quickly. A change of the brokers may move them; then the next ones are searched."""
MORE_SEEDS = 40


def test_every_planted_bug_has_a_seed() -> None:
    """Those of clusters on ZooKeeper have theirs in `test_zookeeper.py`."""
    assert {*FOUND_BY, *CORES_FOUND_BY} == set(BUGS) - {each.name for each in OF_ZOOKEEPER}


def test_the_table_of_planted_bugs_has_these_seeds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "internals" / "simulator.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)`: .*\| (\d+(?:, on ZooKeeper)?) \|$", page, re.MULTILINE)
    seeds = {bug: str(seed) for bug, (seed, _) in FOUND_BY.items()}
    seeds |= {bug: str(seed) for bug, seed in CORES_FOUND_BY.items()}
    seeds |= {bug: f"{seed}, on ZooKeeper" for bug, (seed, _) in FOUND_ON_ZOOKEEPER.items()}
    assert dict(rows) == seeds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_bug_of_the_shell_is_found(bug: str) -> None:
    seed, invariant = FOUND_BY[bug]
    outcome, _ = search(bug, [seed, *range(MORE_SEEDS)])
    assert outcome is not None, f"{bug} is not found in {MORE_SEEDS} seeds"
    assert outcome.invariant == invariant
    assert not run_seeds([outcome.seed]).violations, "the seed fails without the bug, too"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", CORES_FOUND_BY)
def test_a_bug_of_the_state_machines_is_found(bug: str) -> None:
    outcome, _ = search(bug, [CORES_FOUND_BY[bug], *range(MORE_SEEDS)])
    assert outcome is not None, f"{bug} is not found in {MORE_SEEDS} seeds"
    assert not run_seeds([outcome.seed]).violations, "the seed fails without the bug, too"


@pytest.mark.timeout(600)
def test_a_failing_seed_shrinks_to_few_steps() -> None:
    kept = shrunk(plan_of(0), "acks-before-safe", "acknowledged-is-safe")
    again = run_one(keep_steps(plan_of(0), set(kept)), "acks-before-safe")
    assert again.invariant == "acknowledged-is-safe"
    assert len(kept) < len(plan_of(0).steps) // 2


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_found_within_a_thousand_seeds(bug: str) -> None:
    outcome, _ = search(bug, range(1_000))
    assert outcome is not None
