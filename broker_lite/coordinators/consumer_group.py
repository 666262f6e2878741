"""One consumer group of KIP-848 as a state machine: heartbeats and time in; answers and records to write out.

Theory of operation: in its heartbeats a member sends its id, its subscription and the partitions that it owns; the
group answers with its assignment. Three epochs order this. The group epoch grows whenever members, subscriptions or
topics change. The target assignment is computed for the group epoch by a server-side assignor at the next heartbeat of
any member. A member's epoch is that of the target that it has reconciled to (`reconciliation.py`).

Every event returns a `Decision`: the answer, the changes, and the image of the group after them. The caller first
writes the changes, then calls `accept`; a decision that could not be written is dropped, and has no effect. Time is in
milliseconds of one monotonic clock; `timestamp_ms` is wall time, and only written to records.

    state         means                                                        Kafka's name
    Empty         no members                                                   Empty
    Assigning     the group epoch is ahead of the target's                     Assigning
    Reconciling   a member is not yet STABLE in the target's epoch             Reconciling
    Stable        all are                                                      Stable

The model is Kafka 4.3's GroupMetadataManager. Unlike there, patterns are resolved, and targets computed, within the
heartbeat that needs them; Kafka does both in other threads, so a member gets its assignment a heartbeat later.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sparkonce.broker_lite.coordinators.assignors import ASSIGNORS, Subscriber
from sparkonce.broker_lite.coordinators.consumer_group_image import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    Change,
    ConsumerGroupState,
    ConsumerMember,
    CurrentChanged,
    EpochChanged,
    GroupImage,
    MemberChanged,
    MemberState,
    Owned,
    PatternChanged,
    ResolvedPattern,
    TargetChanged,
    TargetEpochChanged,
)
from sparkonce.broker_lite.coordinators.consumer_group_messages import (
    ConsumerGroupSettings,
    Decision,
    Heartbeat,
    HeartbeatAnswer,
    Topics,
)
from sparkonce.broker_lite.coordinators.reconciliation import Goal, next_step
from sparkonce.broker_lite.coordinators.topic_patterns import PatternError, check_pattern, matching
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

_Described = tuple[str, uuid.UUID, int]
"""A topic: its name, id and number of partitions."""


@dataclass(slots=True)
class _Draft:
    """A copy of an image, and the changes made to it."""

    image: GroupImage
    changes: list[Change] = field(default_factory=list)

    def put(self, *changes: Change) -> None:
        for change in changes:
            self.image.apply(change)
            self.changes.append(change)


class ConsumerGroup:
    """A group's image and its members' deadlines."""

    def __init__(self, group_id: str, settings: ConsumerGroupSettings, image: GroupImage | None = None) -> None:
        self.group_id = group_id
        self.settings = settings
        self.image = image or GroupImage()
        self.session_deadlines_ms: dict[str, int] = {}
        self.rebalance_deadlines_ms: dict[str, int] = {}
        """By member id, for members that must revoke partitions."""
        self._untold: set[str] = set()
        """Members that have not been heard from since the group was loaded: a change of theirs may have survived the
        coordinator that wrote it, and its answer may not."""
        self._resolved_version: int | None = None
        self._described: tuple[_Described, ...] = ()
        """The content behind the image's hash, to compare that rather than hashes."""

    @property
    def state(self) -> ConsumerGroupState:
        """The group's state, by the names of Kafka's tools."""
        return self.image.state

    @property
    def assignor(self) -> str:
        """The assignor that most members request; on a tie the first one configured."""
        return _preferred_assignor(self.image, self.settings.assignors)

    def resume(self, now_ms: int) -> None:
        """Restart all timers after a restart of the broker, as Kafka does when it has loaded a group."""
        for member in self.image.members.values():
            self.session_deadlines_ms[member.member_id] = now_ms + self.settings.session_timeout_ms
            self._set_rebalance_deadline(None, member, now_ms)
        self._untold = set(self.image.members)

    # Events.

    def heartbeat(self, request: Heartbeat, topics: Topics, timestamp_ms: int) -> Decision:
        """Handle one heartbeat; the member may join, stay or leave.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
                GROUP_MAX_SIZE_REACHED, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION; nothing has changed.
        """
        if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            return self._leave(request, topics)
        self._check_assignor(request)
        if self._has_nothing_to_do(request, topics):
            member = self.image.members[request.member_id]
            return Decision(HeartbeatAnswer(member.member_id, member.epoch), self.image, seen=member.member_id)
        draft = _Draft(self.image.copy())
        before = self._member(request, draft)
        after = _updated(before, request)
        self._put_subscription(draft, before, after, topics, timestamp_ms, request.may_describe)
        if draft.image.epoch > draft.image.target_epoch:
            self._put_targets(draft, topics, timestamp_ms)
        after = draft.image.members[after.member_id]
        reconciled = next_step(after, _goal(draft.image, after, topics), request.owned)
        if reconciled != after:
            draft.put(CurrentChanged(after.member_id, reconciled))
        tell = request.member_epoch == JOINING_EPOCH or _is_full(request) or request.member_id in self._untold
        tell = tell or _plain(before.assigned) != _plain(reconciled.assigned)
        answer = HeartbeatAnswer(reconciled.member_id, reconciled.epoch, reconciled.assigned if tell else None)
        return Decision(answer, draft.image, tuple(draft.changes), seen=reconciled.member_id)

    def expire(self, now_ms: int, topics: Topics) -> Decision | None:
        """Remove members whose session has expired or that did not revoke partitions in time; None: there are none."""
        gone = {each for each, until in self.session_deadlines_ms.items() if until <= now_ms}
        gone |= {each for each, until in self.rebalance_deadlines_ms.items() if until <= now_ms}
        return self.remove(gone, topics) if gone else None

    def remove(self, member_ids: Iterable[str], topics: Topics) -> Decision:
        """Remove members, and begin a new epoch."""
        draft = _Draft(self.image.copy())
        patterns = dict.fromkeys(draft.image.members[each].topic_pattern for each in member_ids)
        for member_id in member_ids:
            _put_removal(draft, member_id)
        for pattern in patterns:
            if pattern in draft.image.patterns and not draft.image.subscribers(pattern):
                draft.put(PatternChanged(pattern, None))
        draft.put(EpochChanged(draft.image.epoch + 1, _metadata_hash(draft.image, topics)))
        return Decision(None, draft.image, tuple(draft.changes))

    def accept(self, decision: Decision, now_ms: int, version: int) -> None:
        """Apply a decision whose changes are written; ``version`` is that of the topics it was made with."""
        before, self.image = self.image, decision.image
        if before is not self.image:
            self._described = ()
        if decision.seen is not None:
            self._resolved_version = version
            self.session_deadlines_ms[decision.seen] = now_ms + self.settings.session_timeout_ms
            self._untold.discard(decision.seen)
        for member_id in {*self.session_deadlines_ms, *self.rebalance_deadlines_ms} - self.image.members.keys():
            self.session_deadlines_ms.pop(member_id, None)
            self.rebalance_deadlines_ms.pop(member_id, None)
        for change in decision.changes:
            if isinstance(change, CurrentChanged) and (member := self.image.members.get(change.member_id)):
                self._set_rebalance_deadline(before.members.get(change.member_id), member, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do, if nothing else happens before."""
        return min((*self.session_deadlines_ms.values(), *self.rebalance_deadlines_ms.values()), default=None)

    # Offsets.

    def commit_error(
        self,
        member_id: str,
        member_epoch: int,
        version: int,
        partitions: Iterable[tuple[uuid.UUID, int]],
        transactional: bool = False,
    ) -> ErrorCode:
        """Decide whether offsets may be written; an older epoch will do for partitions held ever since (KIP-1251).

        ``version`` is that of the OffsetCommit; a transaction's commits need not name a member (KIP-447).
        """
        if member_epoch < 0 and (not self.image.members or (transactional and not member_id)):
            return ErrorCode.NONE
        member = self.image.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < FIRST_COMMIT_VERSION and not transactional:
            return ErrorCode.UNSUPPORTED_VERSION
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        since = [member.assignment_epoch(*partition) for partition in partitions]
        if member_epoch > member.epoch or any(epoch is None or epoch > member_epoch for epoch in since):
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Decide whether an OffsetFetch may be answered; without a member it may."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.image.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    # Steps of a heartbeat.

    def _check_assignor(self, request: Heartbeat) -> None:
        if request.server_assignor is not None and request.server_assignor not in self.settings.assignors:
            known = ", ".join(self.settings.assignors)
            text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {known}."
            raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)

    def _has_nothing_to_do(self, request: Heartbeat, topics: Topics) -> bool:
        """Whether this is the usual heartbeat of a stable member of a stable group: nothing is copied for that."""
        member, image = self.image.members.get(request.member_id), self.image
        return (
            member is not None
            and request.member_epoch == member.epoch == image.target_epoch == image.epoch
            and member.state is MemberState.STABLE
            and request.instance_id in (None, member.instance_id)
            and _updated(member, request) == member
            and not _is_full(request)
            and request.member_id not in self._untold
            and (self._resolved_version == topics.version or not image.patterns)
            and not self._subscribed_topics_changed(topics)
        )

    def _subscribed_topics_changed(self, topics: Topics) -> bool:
        found = _described(self.image, topics)
        if found != self._described and _hash_of(found) == self.image.metadata_hash:
            self._described = found
        return found != self._described

    def _member(self, request: Heartbeat, draft: _Draft) -> ConsumerMember:
        """Find or add the member."""
        image, member_id, joins = draft.image, request.member_id, request.member_epoch == JOINING_EPOCH
        if len(image.members) >= self.settings.max_size and member_id not in image.members:
            text = f"the group has as many members as group.consumer.max.size allows: {self.settings.max_size}"
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        if request.instance_id is None:
            member = image.members.get(member_id)
            if member is None and not joins:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, _unknown(member_id, self.group_id))
            if member is not None:
                _check_epoch(member, request)
            return member or ConsumerMember(member_id)
        member = image.static_member(request.instance_id)
        if not joins:
            member = self._static_member(request)
            _check_epoch(member, request)
            return member
        if member is None:
            return image.members.get(member_id) or ConsumerMember(member_id)
        if member.epoch != STATIC_LEAVING_EPOCH:
            text = (
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by {member.member_id} member."
            )
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        heir = replace(member, member_id=member_id, epoch=0, previous_epoch=0)
        target = image.targets.get(member.member_id)
        _put_removal(draft, member.member_id)
        draft.put(MemberChanged(member_id, heir))
        draft.put(TargetChanged(member_id, target or {}))
        draft.put(CurrentChanged(member_id, heir))
        return heir

    def _static_member(self, request: Heartbeat) -> ConsumerMember:
        member = self.image.static_member(request.instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has instance id {request.instance_id}")
        if member.member_id != request.member_id:
            text = f"instance id {request.instance_id} now belongs to member {member.member_id}"
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)
        return member

    def _put_subscription(
        self,
        draft: _Draft,
        before: ConsumerMember,
        after: ConsumerMember,
        topics: Topics,
        timestamp_ms: int,
        may_describe: Callable[[str], bool] | None,
    ) -> None:
        """Record the member's changes, and begin a new epoch if they may change the target."""
        image = draft.image
        if image.members.get(after.member_id) != after:
            draft.put(MemberChanged(after.member_id, after))
        bump = set(before.topic_names) != set(after.topic_names) or before.topic_pattern != after.topic_pattern
        old = before.topic_pattern
        if old != after.topic_pattern and old in image.patterns and not image.subscribers(old):
            draft.put(PatternChanged(old, None))
        if after.topic_pattern and after.topic_pattern not in image.patterns:
            _check_pattern(after.topic_pattern)
        if self._resolved_version != topics.version or after.topic_pattern != old:
            bump |= _put_patterns(draft, topics, timestamp_ms, may_describe)
        metadata_hash = _metadata_hash(image, topics)
        if bump or metadata_hash != image.metadata_hash:
            draft.put(EpochChanged(image.epoch + 1, metadata_hash))

    def _put_targets(self, draft: _Draft, topics: Topics, timestamp_ms: int) -> None:
        image = draft.image
        counts = dict(_existing(image.topic_names, topics))
        ids: dict[tuple[tuple[str, ...], str], frozenset[uuid.UUID]] = {}
        subscribers = []
        for member in image.members.values():
            subscription = (member.topic_names, member.topic_pattern)
            if subscription not in ids:
                found = _existing(image.subscribed_topics(member), topics)
                ids[subscription] = frozenset(topic_id for topic_id, _ in found)
            target = image.targets.get(member.member_id, {})
            subscribers.append(Subscriber(member.member_id, member.instance_id, ids[subscription], target))
        targets = ASSIGNORS[_preferred_assignor(image, self.settings.assignors)](subscribers, counts)
        for member_id, target in targets.items():
            # A member without partitions gets a record too, if it had none: by it Kafka knows that it is a member.
            if image.targets.get(member_id) != target:
                draft.put(TargetChanged(member_id, target))
        draft.put(TargetEpochChanged(image.epoch, timestamp_ms))

    def _leave(self, request: Heartbeat, topics: Topics) -> Decision:
        if request.instance_id is None:
            if request.member_id not in self.image.members:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, _unknown(request.member_id, self.group_id))
            member = self.image.members[request.member_id]
        else:
            member = self._static_member(request)
        answer = HeartbeatAnswer(member.member_id, request.member_epoch)
        if request.member_epoch == LEAVING_EPOCH or request.instance_id is None:
            return replace(self.remove([member.member_id], topics), answer=answer)
        # Its partitions are kept until its session expires, for a new member with the same instance id.
        assigned = {topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in member.assigned.items()}
        leaving = replace(member, epoch=STATIC_LEAVING_EPOCH, assigned=assigned, revoking={})
        draft = _Draft(self.image.copy())
        draft.put(CurrentChanged(member.member_id, leaving))
        return Decision(answer, draft.image, tuple(draft.changes))

    def _set_rebalance_deadline(self, before: ConsumerMember | None, member: ConsumerMember, now_ms: int) -> None:
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.epoch < 0:
            self.rebalance_deadlines_ms.pop(member.member_id, None)
        elif before != member:
            self.rebalance_deadlines_ms[member.member_id] = now_ms + max(member.rebalance_timeout_ms, 0)


FIRST_COMMIT_VERSION = 9
"""From this version on OffsetCommit can carry a member epoch."""


def _unknown(member_id: str, group_id: str) -> str:
    return f"Member {member_id} is not a member of group {group_id}."


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Reject a member in another epoch than the group's, except one that missed the last answer."""
    epoch = request.member_epoch
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    missed = epoch < member.epoch and epoch == member.previous_epoch and request.owned is not None
    if missed and all(i in member.assigned.get(t, {}) for t, indexes in (request.owned or {}).items() for i in indexes):
        return
    than = "smaller" if epoch < member.epoch else "greater"
    text = (
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _check_pattern(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def _updated(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    names = member.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    timeout_ms = member.rebalance_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=timeout_ms,
        topic_names=names,
        topic_pattern=member.topic_pattern if request.topic_pattern is None else request.topic_pattern,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _is_full(request: Heartbeat) -> bool:
    """Whether the request has all fields, as after an error: then the answer has all fields, too."""
    subscribes = request.topic_names is not None or request.topic_pattern is not None
    return request.rebalance_timeout_ms >= 0 and subscribes and request.owned is not None


def _goal(image: GroupImage, member: ConsumerMember, topics: Topics) -> Goal:
    subscribed = frozenset(topic_id for topic_id, _ in _existing(image.subscribed_topics(member), topics))
    held: Callable[[uuid.UUID, int], bool] = lambda topic_id, index: (  # noqa: E731
        image.owner(topic_id, index) not in (None, member.member_id)
    )
    return Goal(image.target_epoch, image.targets.get(member.member_id, {}), subscribed, held)


def _existing(names: Iterable[str], topics: Topics) -> Iterator[tuple[uuid.UUID, int]]:
    for name in names:
        found = topics.id_and_partitions(name)
        if found is not None:
            yield found


def _put_removal(draft: _Draft, member_id: str) -> None:
    draft.put(CurrentChanged(member_id, None), TargetChanged(member_id, None), MemberChanged(member_id, None))


def _put_patterns(draft: _Draft, topics: Topics, timestamp_ms: int, may_describe: Callable[[str], bool] | None) -> bool:
    """Resolve the patterns again; return whether the topics of any have changed.

    As in Kafka, patterns match the topics that the member whose heartbeat resolves them may describe.
    """
    changed = False
    patterns = dict.fromkeys(m.topic_pattern for m in draft.image.members.values() if m.topic_pattern)
    for pattern in patterns:
        found = matching(pattern, topics.names())
        if may_describe is not None:
            found = frozenset(name for name in found if may_describe(name))
        known = draft.image.patterns.get(pattern)
        if known is None or known.topics != found:
            changed |= bool(found) or known is not None
            draft.put(PatternChanged(pattern, ResolvedPattern(found, topics.version, timestamp_ms)))
    return changed


def _metadata_hash(image: GroupImage, topics: Topics) -> int:
    """Return a hash that changes when a subscribed topic is created, deleted, or gets partitions; 0 if there is none.

    Kafka has such a hash in the same record, by another function: it would rebalance once when it takes over.
    """
    return _hash_of(_described(image, topics))


def _described(image: GroupImage, topics: Topics) -> tuple[_Described, ...]:
    return tuple((name, *where) for name in image.topic_names if (where := topics.id_and_partitions(name)) is not None)


def _hash_of(topics: tuple[_Described, ...]) -> int:
    if not topics:
        return 0
    import hashlib  # imported lazily: slow to load, and most brokers do not need it

    digest = hashlib.blake2b(repr(topics).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _preferred_assignor(image: GroupImage, known: tuple[str, ...]) -> str:
    votes: dict[str, int] = dict.fromkeys(known, 0)
    for member in image.members.values():
        if member.server_assignor in votes:
            votes[member.server_assignor] += 1
    return max(votes, key=lambda name: votes[name])


def _plain(owned: Owned) -> Mapping[uuid.UUID, frozenset[int]]:
    """Return the partitions without their epochs."""
    return {topic_id: frozenset(indexes) for topic_id, indexes in owned.items()}
