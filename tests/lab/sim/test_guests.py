"""Clients with things of their own: what they believe, and that they notice what a broker does wrong."""

from __future__ import annotations

from typing import Any

import pytest

from lab.sim.campaign import run_one, run_seeds
from lab.sim.clients.admin_checker import has_admin_checker
from lab.sim.clients.belief import Belief
from lab.sim.clients.bulk import has_bulk
from lab.sim.clients.inspector import has_inspector
from lab.sim.clients.offsets_checker import has_offsets_checker
from lab.sim.machine.settings import has_metrics
from lab.sim.machine.standalone import STANDALONE, has_standalone
from lab.sim.plan import plan_of
from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.coordinators.offsets import PendingOffsets
from sparkonce.broker_lite.handlers import describe_groups
from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator
from sparkonce.broker_lite.server.connection import ClientConnection
from sparkonce.broker_lite.server.metrics import MetricsProtocol


def seeds_with(has: Any, enough: int) -> list[int]:
    return [seed for seed in range(100) if has(seed)][:enough]


def violated(seeds: list[int]) -> str | None:
    """Return the invariant that the first of some seeds violates that violates one."""
    return next((found for seed in seeds if (found := run_one(plan_of(seed), None).invariant)), None)


def test_what_is_acknowledged_is_so() -> None:
    belief = Belief(0)
    belief.done(lambda _: 1)
    assert belief.states == {1}


def test_what_is_refused_may_have_been_done_before_but_not_later() -> None:
    belief = Belief(0)
    belief.refused(lambda _: 1)
    assert belief.states == {0, 1}
    belief.done(lambda _: 2)
    assert belief.states == {2}


def test_what_is_not_answered_may_be_done_at_any_later_time() -> None:
    belief = Belief(0)
    belief.unanswered(lambda _: 1)
    belief.unanswered(lambda state: state and 3)
    assert belief.states == {0, 1, 3}
    belief.done(lambda _: 2)
    assert belief.states == {2, 1, 3}


def test_nothing_is_violated() -> None:
    assert not run_seeds([seeds_with(has, 1)[0] for has in (has_admin_checker, has_bulk, has_metrics)]).violations


def test_a_setting_that_is_acknowledged_and_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Controller, "change_settings", lambda *_: [])
    assert violated(seeds_with(has_admin_checker, 4)) == "administered"


def test_a_deletion_that_is_acknowledged_and_not_done_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Controller, "delete_topic", lambda *_: [])
    # an offsets checker would notice, too
    without_offsets_checker = seeds_with(lambda seed: has_admin_checker(seed) and not has_offsets_checker(seed), 4)
    assert violated(without_offsets_checker) == "administered"


def test_answers_in_another_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Any, unanswered: Any, _: Exception | None) -> None:
        self._unanswered.remove(unanswered)
        self._buffer.release(unanswered.passed_bytes)
        self._send(unanswered.request, unanswered.body)
        self._resume()

    monkeypatch.setattr(ClientConnection, "answered", at_once)
    assert violated(seeds_with(has_bulk, 9)) == "error"


def test_metrics_that_are_not_true_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = MetricsProtocol._answer

    def late(self: MetricsProtocol, status: str, text: str, head_only: bool = False) -> None:
        answer(self, status, text.replace('_Value{name="LogEndOffset"', '_Value{name="LogStartOffset"'), head_only)

    monkeypatch.setattr(MetricsProtocol, "_answer", late)
    assert violated(seeds_with(has_metrics, 1)) == "metrics-true"


def has_offsets_checker_alone(seed: int) -> bool:
    return has_standalone(seed) and has_offsets_checker(seed, STANDALONE)


def has_classic_group(seed: int) -> bool:
    groups = plan_of(seed).groups
    return has_inspector(seed) and bool(groups) and not any(group.by_heartbeats for group in groups)


def test_offsets_that_are_kept_for_too_long_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupCoordinator, "remove_expired", lambda _: None)
    assert violated(seeds_with(has_offsets_checker_alone, 2)) == "offsets-kept"


def test_offsets_of_an_aborted_transaction_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    end = PendingOffsets.end
    monkeypatch.setattr(
        PendingOffsets, "end", lambda self, partition, producer_id, _: end(self, partition, producer_id, True)
    )
    assert violated(seeds_with(has_offsets_checker_alone, 7)) == "offsets-kept"


def test_a_group_that_is_described_without_a_member_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    describe = describe_groups._describe

    def without_one(*arguments: Any) -> Any:
        found = describe(*arguments)
        found.members = found.members[1:]
        return found

    monkeypatch.setattr(describe_groups, "_describe", without_one)
    assert violated(seeds_with(has_classic_group, 1)) == "described"
