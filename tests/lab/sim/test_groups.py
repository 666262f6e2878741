"""What must hold of groups: which answers the judge lets pass, and which it does not."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from lab.sim.judges.ownership import (
    KNOWS_BETTER,
    NOTHING,
    Groups,
    Holders,
    Told,
    Written,
    decode_share,
    encode_share,
    has,
)
from lab.sim.plan import Durability, plan_of
from lab.sim.steps import Kind
from sparkonce.broker_lite.coordinators.offsets import OffsetKey
from sparkonce.broker_lite.replication.invariants import Batch, ViolationError

GROUP = "g"
ONE, TWO = ("t", 0), ("t", 1)
KEY = OffsetKey(GROUP, *ONE)


def violated(invariant: str) -> AbstractContextManager[pytest.ExceptionInfo[ViolationError]]:
    return pytest.raises(ViolationError, match=f"^{invariant}: ")


def log_of(*written: Written) -> list[Batch]:
    return [Batch(each.offset, each.offset, each.epoch, 0, -1, -1, -1, 0) for each in written]


def test_a_share_is_read_as_it_was_written() -> None:
    assert decode_share(encode_share([TWO, ONE])) == {ONE, TWO}
    assert decode_share(b"") == frozenset()


def test_a_partition_has_one_owner_in_a_generation() -> None:
    groups = Groups()
    groups.synced(GROUP, 1, 5, "a", frozenset({ONE}))
    groups.synced(GROUP, 1, 5, "a", frozenset({ONE}))
    groups.synced(GROUP, 1, 5, "b", frozenset({TWO}))
    groups.synced("other", 1, 5, "b", frozenset({ONE}))
    with violated("one-owner"):
        groups.synced(GROUP, 1, 5, "c", frozenset({ONE}))
    groups.synced(GROUP, 1, 6, "c", frozenset({ONE}))


def test_a_member_hears_of_one_share_in_a_generation() -> None:
    groups = Groups()
    groups.synced(GROUP, 1, 5, "a", frozenset({ONE}))
    with violated("one-owner"):
        groups.synced(GROUP, 2, 5, "a", frozenset())


def test_a_former_coordinator_may_tell_what_was_true_in_its_epoch() -> None:
    groups = Groups()
    groups.synced(GROUP, 1, 5, "a", frozenset({ONE}))
    groups.synced(GROUP, 2, 6, "b", frozenset({ONE}))
    groups.synced(GROUP, 1, 5, "a", frozenset({ONE}))
    with violated("generations-rise"):
        groups.synced(GROUP, 1, 7, "a", frozenset({ONE}))
    with violated("generations-rise"):
        groups.synced(GROUP, KNOWS_BETTER, 5, "a", frozenset({ONE}))


@pytest.mark.parametrize("epoch", [2, 3])
def test_generations_do_not_fall(epoch: int) -> None:
    groups = Groups()
    groups.synced(GROUP, 2, 5, "a", frozenset({ONE}))
    with violated("generations-rise"):
        groups.synced(GROUP, epoch, 4, "a", frozenset({ONE}))


def test_generations_begin_anew_where_the_log_has_the_groups_removal() -> None:
    groups, removal = Groups(), Written(2, 9)
    groups.synced(GROUP, 2, 5, "a", frozenset({ONE}))
    groups.removed(GROUP, removal)
    groups.know_by(GROUP, log_of(Written(2, 8), Written(3, 9)))  # the removal was lost with its leader
    with violated("generations-rise"):
        groups.synced(GROUP, 3, 1, "a", frozenset({ONE}))
    groups.know_by(GROUP, log_of(Written(2, 8), removal))
    groups.synced(GROUP, 3, 1, "a", frozenset({TWO}))
    groups.know_by(GROUP, log_of(Written(2, 8), removal))
    with violated("one-owner"):
        groups.synced(GROUP, 3, 1, "b", frozenset({TWO}))


def test_an_old_generation_commits_no_more_where_a_newer_one_was_told() -> None:
    groups = Groups()
    old = groups.commit(GROUP, 5, [ONE])
    groups.synced(GROUP, 2, 6, "a", frozenset({ONE}))
    groups.written(old, Written(1, 7))  # by who leads no more: it is cut off
    with violated("commits-kept"):
        groups.written(old, Written(2, 7))


def acknowledged(groups: Groups, written: Written, epoch: int | None = None) -> int:
    commit = groups.commit(GROUP, 5, [ONE])
    groups.written(commit, written)
    groups.acknowledged(commit, written.epoch if epoch is None else epoch, written)
    return commit.number


def test_what_was_acknowledged_is_read_until_something_is_written_later() -> None:
    groups, first, later = Groups(), Written(1, 7), Written(2, 9)
    assert groups.read(KEY, NOTHING, 1, []) is None
    number = acknowledged(groups, first)
    assert groups.read(KEY, number, 1, log_of(first)) is None
    assert "is told" in str(groups.read(KEY, NOTHING, 1, log_of(first)))
    assert "was acknowledged" in str(groups.read(KEY, NOTHING, 2, []))
    unanswered = groups.commit(GROUP, 5, [ONE])
    groups.written(unanswered, later)
    assert groups.read(KEY, number, 2, log_of(first)) is None, "it may be lost"
    assert groups.read(KEY, unanswered.number, 2, log_of(first, later)) is None, "or not"
    assert "is told" in str(groups.read(KEY, number, 2, log_of(first, later))), "but not forgotten while it is there"
    assert groups.read(KEY, NOTHING, 0, []) is None, "who led before may not have heard"
    assert "was acknowledged" in str(groups.read(KEY, NOTHING, KNOWS_BETTER, [])), "unless it knows that others lead"
    assert [each for each, _ in groups.left_behind()] == [unanswered]


def test_a_commit_that_comes_twice_is_the_last_again() -> None:
    groups, first, second, again = Groups(), Written(1, 7), Written(1, 8), Written(1, 9)
    one, two = acknowledged(groups, first), acknowledged(groups, second)
    assert "is told" in str(groups.read(KEY, one, 1, log_of(first, second)))
    groups.written(groups.commits[one], again)
    assert groups.read(KEY, one, 1, log_of(first, second, again)) is None
    assert groups.read(KEY, two, 1, log_of(first, second)) is None


def test_a_commit_counts_from_the_epoch_in_which_it_was_acknowledged() -> None:
    groups, written = Groups(), Written(1, 7)
    acknowledged(groups, written, epoch=3)
    assert groups.read(KEY, NOTHING, 2, []) is None
    assert groups.read(KEY, NOTHING, 3, []) is not None


def test_a_write_is_known_by_its_epoch_too() -> None:
    assert has(log_of(Written(1, 7)), Written(1, 7))
    assert not has(log_of(Written(2, 7)), Written(1, 7))
    assert not has(log_of(Written(1, 7)), Written(1, 8))


def told(member_id: str, *share: tuple[str, int], epoch: int = 1, end: int = 0) -> Told:
    return Told(member_id, frozenset(share), epoch, end)


def test_nobody_is_told_of_what_another_one_may_still_use() -> None:
    holders = Holders()
    holders.told(GROUP, told("a", ONE, TWO), [])
    holders.told(GROUP, told("a", ONE, end=5), [])  # it is to give the other one up
    holders.told("other", told("b", TWO), [])
    with violated("one-holder"):
        holders.told(GROUP, told("b", TWO, end=6), [])
    holders.says(GROUP, "a", frozenset({ONE}))
    holders.told(GROUP, told("b", TWO, end=7), [])
    with violated("one-holder"):
        holders.told(GROUP, told("a", TWO, end=8), [])


def test_an_answer_to_a_request_that_a_member_has_given_up_gives_it_nothing() -> None:
    holders = Holders()
    first = holders.joins(GROUP, "a")
    holders.joins(GROUP, "a")
    holders.told(GROUP, told("b", ONE), [])
    holders.told(GROUP, told("a", ONE)._replace(joins=first), [])
    holders.told(GROUP, told("b", ONE, end=2), [])


def test_a_member_that_was_removed_uses_nothing_more_to_those_that_know_it() -> None:
    holders, early, removal = Holders(), Written(1, 3), Written(1, 9)
    holders.told(GROUP, told("a", ONE, end=5), [])
    holders.removed(GROUP, "a", early)
    with violated("one-holder"):
        holders.told(GROUP, told("b", ONE, end=10), log_of(early))  # it has joined again since
    holders.removed(GROUP, "a", removal)
    with violated("one-holder"):
        holders.told(GROUP, told("b", ONE, epoch=2, end=10), [])  # the next coordinator has not heard of it
    holders.told(GROUP, told("b", ONE, end=10), log_of(early, removal))


def test_a_member_that_has_joined_again_uses_nothing_of_before() -> None:
    holders, removal = Holders(), Written(1, 9)
    holders.told(GROUP, told("a", ONE, end=5), [])
    holders.removed(GROUP, "a", removal)
    holders.told(GROUP, told("a", end=12), log_of(removal))
    holders.told(GROUP, told("b", ONE, end=14), log_of(removal))


def test_a_former_coordinator_says_nothing_new_of_who_owns_what() -> None:
    holders, removal = Holders(), Written(2, 9)
    holders.told(GROUP, told("a", ONE, end=5), [])
    holders.removed(GROUP, "a", removal)
    holders.told(GROUP, told("a", ONE, end=5), [])
    holders.told(GROUP, told("b", ONE, epoch=2, end=10), log_of(removal))
    holders.told(GROUP, told("a", ONE, end=5), [])
    with violated("one-holder"):
        holders.told(GROUP, told("d", ONE, epoch=3, end=12), log_of(removal))


def test_about_a_quarter_of_the_seeds_with_durability_has_groups() -> None:
    plans = [plan_of(seed) for seed in range(400)]
    assert not any(plan.groups for plan in plans if plan.durability is Durability.NONE)
    durable = [plan for plan in plans if plan.durability is not Durability.NONE]
    with_groups = [plan for plan in durable if plan.groups]
    assert 0.2 < len(with_groups) / len(durable) < 0.3
    assert {each.by_heartbeats for plan in with_groups for each in plan.groups} == {True, False}
    assert {bool(plan.groups) for plan in durable if plan.transactional} == {True, False}
    steps = {plan.seed: any(step.kind is Kind.MEMBER for step in plan.steps) for plan in plans}
    assert {seed for seed, has_steps in steps.items() if has_steps} == {plan.seed for plan in with_groups}
