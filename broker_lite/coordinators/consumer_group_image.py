"""The state of a consumer group of KIP-848, and how a record changes it.

Theory of operation: a `GroupImage` is the sum of the group's records. The state machine (`consumer_group.py`) applies
changes to a copy; when they are written, the copy becomes the group. After a restart the same changes, read back in
any order that compaction leaves and applied to an empty image, result in the same group.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TypeVar

from sparkonce.broker_lite.coordinators.assignors import Partitions

_Value = TypeVar("_Value")

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
FIRST_GROUP_EPOCH = 1

Owned = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which it was assigned (KIP-1251); no topic without partitions."""


class ConsumerGroupState(Enum):
    """The states of a consumer group; the values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member has reconciled to its target; the numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member: ids, subscription, assignment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_pattern: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    """The partitions that it must revoke and may still use."""

    def partitions(self) -> Iterator[tuple[uuid.UUID, int]]:
        """Yield all partitions that the member may be using."""
        for owned in (self.assigned, self.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    yield topic_id, partition

    def assignment_epoch(self, topic_id: uuid.UUID, partition: int) -> int | None:
        """Return the epoch in which the member got a partition; None if it does not have it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class EpochChanged:
    """ConsumerGroupMetadata: the group epoch and a hash of the subscribed topics."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """ConsumerGroupMemberMetadata: everything of a member but its partitions; None removes it."""

    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class TargetEpochChanged:
    """ConsumerGroupTargetAssignmentMetadata: the group epoch that the targets were computed for; time since 1970."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetChanged:
    """ConsumerGroupTargetAssignmentMember: a member's target assignment; None removes it."""

    member_id: str
    target: Partitions | None


@dataclass(frozen=True, slots=True)
class CurrentChanged:
    """ConsumerGroupCurrentMemberAssignment: a member, of which only its assignment counts; None removes it."""

    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that matched a pattern, at which version of the topics, and when (since 1970)."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class PatternChanged:
    """ConsumerGroupRegularExpression; None: no member subscribes to the pattern any more."""

    pattern: str
    resolved: ResolvedPattern | None


Change = EpochChanged | MemberChanged | TargetEpochChanged | TargetChanged | CurrentChanged | PatternChanged


class GroupImage:
    """The members, their target assignments and their partitions."""

    __slots__ = ("_names", "_owners", "epoch", "members", "metadata_hash", "patterns", "target_epoch", "targets")

    def __init__(self) -> None:
        self.epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.target_epoch = 0
        self.patterns: dict[str, ResolvedPattern] = {}
        self._owners: dict[tuple[uuid.UUID, int], str] = {}
        self._names: tuple[str, ...] | None = None

    def copy(self) -> GroupImage:
        """Return an independent copy."""
        twin = GroupImage()
        twin.epoch, twin.metadata_hash, twin.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        twin.patterns, twin._owners = dict(self.patterns), dict(self._owners)
        twin._names = self._names
        return twin

    def owner(self, topic_id: uuid.UUID, partition: int) -> str | None:
        """Return the member that may be using a partition."""
        return self._owners.get((topic_id, partition))

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with an instance id."""
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def subscribers(self, pattern: str) -> int:
        """Count the members that subscribe to a pattern."""
        return sum(member.topic_pattern == pattern for member in self.members.values())

    def subscribed_topics(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to, by name or by pattern."""
        names = frozenset(member.topic_names)
        resolved = self.patterns.get(member.topic_pattern)
        return names if resolved is None else names | resolved.topics

    @property
    def topic_names(self) -> tuple[str, ...]:
        """All names that members subscribe to, sorted."""
        if self._names is None:
            alike = {(member.topic_names, member.topic_pattern): member for member in self.members.values()}
            self._names = tuple(sorted(frozenset().union(*map(self.subscribed_topics, alike.values()))))
        return self._names

    @property
    def state(self) -> ConsumerGroupState:
        """How far the group has reconciled to its target assignment."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        reconciled = all(
            member.state is MemberState.STABLE and member.epoch == self.target_epoch for member in self.members.values()
        )
        return ConsumerGroupState.STABLE if reconciled else ConsumerGroupState.RECONCILING

    def apply(self, change: Change) -> None:
        """Apply one change."""
        if isinstance(change, (MemberChanged, PatternChanged, CurrentChanged)):
            self._names = None
        if isinstance(change, EpochChanged):
            self.epoch, self.metadata_hash = change.epoch, change.metadata_hash
        elif isinstance(change, TargetEpochChanged):
            self.target_epoch = change.epoch
        elif isinstance(change, MemberChanged):
            self._apply_member(change)
        elif isinstance(change, CurrentChanged):
            self._apply_current(change)
        elif isinstance(change, TargetChanged):
            _put(self.targets, change.member_id, change.target)
        else:
            _put(self.patterns, change.pattern, change.resolved)

    def _apply_member(self, change: MemberChanged) -> None:
        old, new = self.members.get(change.member_id), change.member
        if new is None:
            if old is not None:
                self._release(old)
            self.members.pop(change.member_id, None)
            return
        if old is None:
            new = replace(new, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, revoking={})
        else:
            new = replace(
                new,
                epoch=old.epoch,
                previous_epoch=old.previous_epoch,
                state=old.state,
                assigned=old.assigned,
                revoking=old.revoking,
            )
        self.members[change.member_id] = new

    def _apply_current(self, change: CurrentChanged) -> None:
        old = self.members.get(change.member_id)
        new = change.member
        if old is not None:
            self._release(old)
        if new is None:
            # The tombstones of a member come one by one; in between it has left and owns nothing.
            if old is not None:
                gone = replace(old, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}, revoking={})
                self.members[change.member_id] = gone
            return
        member = replace(
            old or ConsumerMember(change.member_id),
            epoch=new.epoch,
            previous_epoch=new.previous_epoch,
            state=new.state,
            assigned=new.assigned,
            revoking=new.revoking,
        )
        self.members[change.member_id] = member
        for partition in member.partitions():
            self._owners[partition] = change.member_id

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.partitions():
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]


def _put(mapping: dict[str, _Value], key: str, value: _Value | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def check_image(image: GroupImage) -> None:
    """Assert the invariants between any two events; used by tests and by the simulator."""
    owners: dict[tuple[uuid.UUID, int], str] = {}
    for member_id, member in image.members.items():
        assert member.member_id == member_id
        for partition in member.partitions():
            assert partition not in owners, f"{partition} is owned by {owners[partition]} and {member_id}"
            owners[partition] = member_id
        assert (member.state is MemberState.UNREVOKED_PARTITIONS) >= bool(member.revoking)
        assert member.epoch <= image.epoch
    assert owners == image._owners
    instances = [m.instance_id for m in image.members.values() if m.instance_id is not None]
    assert len(instances) == len(set(instances))
    assert image.target_epoch <= image.epoch
    assert set(image.targets) <= set(image.members)
