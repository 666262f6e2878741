"""One step of a member towards its target assignment: first it revokes, then it is assigned (KIP-848).

Theory of operation: `next_step` compares a member's current and target assignments, the partitions that it reports to
own, and those that others still have. A member stays in its epoch while it owns partitions that it must revoke
(UNREVOKED_PARTITIONS). Then it moves to the target epoch and gets the free partitions; if others still hold some of
its target it waits for them (UNRELEASED_PARTITIONS), else it is STABLE. The model is Kafka's CurrentAssignmentBuilder:

    from                   condition                                    to
    STABLE                 at the target epoch                          STABLE
    any                    still owns partitions to revoke              UNREVOKED_PARTITIONS, same epoch
    UNREVOKED_PARTITIONS   does not report, or still owns some          UNREVOKED_PARTITIONS, same epoch
    any                    others hold part of its target               UNRELEASED_PARTITIONS, the target epoch
    any                    nothing missing                              STABLE, the target epoch
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sparkonce.broker_lite.coordinators.assignors import Partitions
from sparkonce.broker_lite.coordinators.consumer_group_image import ConsumerMember, MemberState, Owned


@dataclass(frozen=True, slots=True)
class Goal:
    """A member's target assignment, its epoch, and the partitions that others still hold."""

    epoch: int
    target: Partitions
    subscribed: frozenset[uuid.UUID]
    """The member's current subscription: other topics are not assigned, whatever the target says."""
    is_held_by_others: Callable[[uuid.UUID, int], bool]


def next_step(member: ConsumerMember, goal: Goal, owned: Partitions | None) -> ConsumerMember:
    """Return the member's next state, or the same one; ``owned`` is what it reports, None if it reports nothing."""
    if member.state is MemberState.STABLE and member.epoch == goal.epoch:
        return _without_unsubscribed(member, goal, owned)
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.revoking):
        return _without_unsubscribed(member, goal, owned)
    return _towards(member, goal, owned)


def _towards(member: ConsumerMember, goal: Goal, owned: Partitions | None) -> ConsumerMember:
    kept: dict[uuid.UUID, dict[int, int]] = {}
    revoking: dict[uuid.UUID, Mapping[int, int]] = {}
    free: dict[uuid.UUID, set[int]] = {}
    waits = False
    for topic_id in {*goal.target, *member.assigned}:
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()
        assigned = member.assigned.get(topic_id, {})
        if keeps := {index: epoch for index, epoch in assigned.items() if index in target}:
            kept[topic_id] = keeps
        if loses := {index: epoch for index, epoch in assigned.items() if index not in target}:
            revoking[topic_id] = loses
        for index in target - keeps.keys():
            if goal.is_held_by_others(topic_id, index):
                waits = True
            else:
                free.setdefault(topic_id, set()).add(index)
    if revoking and _still_owns(owned, revoking):
        return _revoke(member, kept, revoking)
    for topic_id, indexes in free.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(sorted(indexes), goal.epoch))
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking={},
    )


def _without_unsubscribed(member: ConsumerMember, goal: Goal, owned: Partitions | None) -> ConsumerMember:
    """Revoke partitions that the member no longer subscribes to, without waiting for a new target."""
    lost = {topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id not in goal.subscribed}
    if not lost:
        return member
    kept = {topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id in goal.subscribed}
    revoking = {**member.revoking}
    for topic_id, indexes in lost.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **indexes}
    if not _still_owns(owned, revoking):
        return replace(member, previous_epoch=member.epoch, assigned=kept)
    return _revoke(member, kept, revoking)


def _revoke(member: ConsumerMember, kept: Owned, revoking: Owned) -> ConsumerMember:
    state = MemberState.UNREVOKED_PARTITIONS
    return replace(member, state=state, previous_epoch=member.epoch, assigned=kept, revoking=revoking)


def _still_owns(owned: Partitions | None, revoking: Owned) -> bool:
    """Whether a member may still use partitions that it must revoke; if it does not report, it may."""
    if owned is None:
        return True
    return any(index in revoking.get(topic_id, {}) for topic_id, indexes in owned.items() for index in indexes)
