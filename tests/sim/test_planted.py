"""Each planted bug is found, and the cores are themselves again after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import Record
from sparkonce.broker_lite.coordinators import reconciliation
from sparkonce.broker_lite.coordinators.consumer_group_messages import Heartbeat
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import Answer
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.sim.campaign import BUGS, keep_steps, quiet, run_one, search, shrunk
from sparkonce.broker_lite.sim.controller_host import ControllerHost
from sparkonce.broker_lite.sim.coordinating import Coordinators
from sparkonce.broker_lite.sim.grouping import Caller, GroupCoordinator, GroupService
from sparkonce.broker_lite.sim.node import Call
from sparkonce.broker_lite.sim.ownership import Commit
from sparkonce.broker_lite.sim.plan import plan_of
from sparkonce.broker_lite.sim.planted import replaced
from sparkonce.broker_lite.sim.world import run_plan

MOST_SEEDS = 1_000
FOUND_BY = {
    "truncate-to-high-watermark": 3,
    "ask-once": 10,
    "confirmed-in-sync-only": 6,
    "expand-before-epoch-start": 46,
    "broker-epoch-not-told": 191,
    "advance-under-min": 0,
    "same-leader-no-truncation": 0,
    "forgetful-stays-eligible": 249,
    "partition-epoch-not-compared": 283,
    "late-verification-counts": 120,
    "ended-too-early-fences": 5,
    "leads-by-old-log": 4,
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
    assert len(BUGS) == 13


def test_a_controller_that_answers_before_its_records_are_durable_is_found() -> None:
    """Not one of the thirteen: nothing but the simulator's own host of the controller would have this bug."""
    commit = ControllerHost.commit

    def commit_later(self: ControllerHost, records: list[Record], then: Callable[[], None]) -> None:
        commit(self, records, lambda: None)
        then()

    with quiet(), replaced(ControllerHost, "commit", commit_later):
        assert any(run_plan(plan_of(seed)).violation is not None for seed in range(MOST_SEEDS))


GROUP_SEEDS = 500
"""Enough for what is wrong with groups, which a quarter of these has; most is found in the first hundred."""


def found_by() -> str | None:
    """Return the invariant that is violated in the first of the seeds with groups that violates any."""
    with quiet():
        plans = (plan_of(seed) for seed in range(GROUP_SEEDS))
        found = (run_plan(plan).invariant for plan in plans if plan.groups)
        return next((each for each in found if each is not None), None)


def test_commits_that_are_acknowledged_before_they_are_safe_are_found() -> None:
    commit = GroupService.commit

    def commit_at_once(self: GroupService, call: Call, caller: Caller, commit_: Commit) -> None:
        with replaced(GroupCoordinator, "when_told", lambda _, then: then(ErrorCode.NONE)):
            commit(self, call, caller, commit_)

    with replaced(GroupService, "commit", commit_at_once):
        assert found_by() in {"commits-kept", "generations-rise"}


def test_shares_that_are_told_before_they_are_safe_are_found() -> None:
    def send_at_once(self: GroupCoordinator, group: ClassicGroup, answers: list[Answer]) -> None:
        with replaced(GroupCoordinator, "when_told", lambda _, then: then(ErrorCode.NONE)):
            carry_out(self, group, answers)

    carry_out = GroupCoordinator.carry_out
    with replaced(GroupCoordinator, "carry_out", send_at_once):
        assert found_by() in {"one-owner", "generations-rise", "commits-kept"}


def test_groups_that_are_served_by_a_former_coordinator_are_found() -> None:
    """It keeps what it knew when it has lost its leadership, and goes on with that when it leads again."""
    leads = Coordinators.leads

    def lead_again(self: Coordinators[GroupCoordinator], key: PartitionKey, epoch: int) -> None:
        if self._begin is not GroupCoordinator or key[1] not in self._of:
            leads(self, key, epoch)

    def lose(self: Coordinators[GroupCoordinator], key: PartitionKey) -> None:
        if self._begin is not GroupCoordinator:
            lost(self, key)

    lost = Coordinators.lost
    with replaced(Coordinators, "leads", lead_again), replaced(Coordinators, "lost", lose):
        assert found_by() in {"one-owner", "generations-rise", "commits-kept"}


def test_partitions_that_are_given_on_before_they_are_given_up_are_found() -> None:
    with replaced(reconciliation, "_still_owns", lambda *_: False):
        assert found_by() == "one-holder"


def test_heartbeats_that_are_answered_before_that_is_safe_are_found() -> None:
    heartbeat = GroupService.consumer_heartbeat

    def answer_at_once(self: GroupService, call: Call, group_id: str, request: Heartbeat) -> None:
        with replaced(GroupCoordinator, "when_told", lambda _, then: then(ErrorCode.NONE)):
            heartbeat(self, call, group_id, request)

    with replaced(GroupService, "consumer_heartbeat", answer_at_once):
        assert found_by() == "one-holder"


def test_a_failing_seed_shrinks_to_a_few_steps_that_fail_alike() -> None:
    bug, seed = "truncate-to-high-watermark", FOUND_BY["truncate-to-high-watermark"]
    whole = run_one(plan_of(seed), bug)
    kept = shrunk(seed, bug, whole.invariant)
    again = run_one(keep_steps(plan_of(seed), set(kept)), bug)
    assert again.invariant == whole.invariant
    assert len(kept) < len(plan_of(seed).steps) // 2
    assert run_one(keep_steps(plan_of(seed), set(kept)), bug).digest == again.digest
