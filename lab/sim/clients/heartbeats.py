"""Members of KIP-848 groups: members report their assignment and adopt the new one.

A member told to revoke a partition stops using it after a while and reports that; then others receive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.client import UnreachableError
from lab.sim.clients.groups import AgainError, GroupClient, together
from lab.sim.judges.known_member import KnownMember
from sparkonce.broker_lite.coordinators.consumer_group_image import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
)
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from lab.sim.judges.ownership import Share
    from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition

_PATTERN: Final = "t[0-9]"
"""Matches all topics that clients use, and no others."""
_NOT_A_MEMBER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""The second if the group, empty and without offsets, is gone: Kafka says that too, and Java's consumer then ends."""
_JOIN_AGAIN: Final = (*_NOT_A_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH)
_ENDS: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)


class HeartbeatMember(GroupClient):
    """A member of a group of KIP-848."""

    commit_errors = (*_NOT_A_MEMBER, ErrorCode.STALE_MEMBER_EPOCH)

    def _know_nothing(self) -> None:
        super()._know_nothing()
        self.member_id = f"{self.member}.{self.lives}"
        self._target: Share = frozenset()
        self._says_all = self._has_changed = True
        self._revoking_since_ms: int | None = None
        self._known = KnownMember(self.plan)

    async def _live(self) -> None:
        while True:
            self.generation, self.share, self._target = JOINING_EPOCH, frozenset(), frozenset()
            self._says_all = True
            self._known.lapse()
            try:
                await together(self._beat(), self._reconcile(), self.commit_regularly(lambda _: None))
            except AgainError as again:
                error = again.error
            if error in _ENDS:
                self.restart(error)
                return
            await self.back_off()

    def still_uses(self, place: TopicPartition) -> bool:
        """Whether it uses a partition, and its coordinator must know that it exists."""
        now_ms, plan = self.world.scheduler.now_ms, self.plan
        in_touch = self.alive and not self.loop.paused and now_ms - self.touched_ms < plan.session_ms // 2
        overdue = self._revoking_since_ms is not None and now_ms - self._revoking_since_ms > plan.rebalance_ms // 2
        return in_touch and not overdue and place in (self.share or ())

    async def _beat(self) -> None:
        unheard_since_ms: int | None = None
        while True:
            full, owned = self._says_all, self.share or frozenset()
            tells = full or self._has_changed
            before, sent_ms = self.coordinator_now(), self.world.scheduler.now_ms
            since_ms = sent_ms if unheard_since_ms is None else unheard_since_ms
            if self.generation == JOINING_EPOCH:
                self._known.joins()
                for listener in self.world.on_member_joins:
                    listener(before[0])
            try:
                answer = await self.coordinate(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT,
                    1,
                    (*_JOIN_AGAIN, *_ENDS),
                    group_id=self.plan.group_id,
                    member_id=self.member_id,
                    member_epoch=self.generation,
                    instance_id=self.instance_id,
                    rebalance_timeout_ms=self.plan.rebalance_ms if full else -1,
                    subscribed_topic_names=self._names() if full else None,
                    subscribed_topic_regex=_PATTERN if full and self._by_pattern else None,
                    server_assignor=self.plan.assignor if full else None,
                    topic_partitions=self._by_id(owned) if tells else None,
                )
            except UnreachableError:
                self._says_all = True
                self._known.hears_nothing()
                unheard_since_ms = since_ms
                await self.back_off()
                continue
            unheard_since_ms = None
            error = ErrorCode.of(answer.error_code)
            trusted = before == self.coordinator_now() and self.is_asked(before[0])
            if error is ErrorCode.NONE:
                self._says_all = False
                self._has_changed = owned != self.share if tells else self._has_changed
                if tells and not owned - self._target:
                    self._revoking_since_ms = None  # the coordinator knows only now
                in_time = self.world.scheduler.now_ms - sent_ms < self.plan.session_ms // 2
                self._take(answer, since_ms, judged=trusted and in_time)
                if trusted and self._revoking_since_ms is None:
                    self._known.is_told(sent_ms, before[1])
                else:
                    self._known.lapse()
                await self.pause(self.plan.session_ms // 3)
            elif error in (*_JOIN_AGAIN, *_ENDS):
                if trusted:
                    self.world.judge(lambda: self._check_known(error, before[1], tells_all=full))  # noqa: B023
                raise AgainError(error)
            else:
                self._says_all = True
                await self.back_off()

    @property
    def subscribed(self) -> frozenset[str]:
        """See `GroupClient`: the first member, which always returns, subscribes to all topics."""
        names = [name for name, _ in self.topics()]
        return frozenset(names[: self._index] if self.plan.differs and self._index else names)

    @property
    def _by_pattern(self) -> bool:
        return self.plan.by_pattern and self._index == 0

    def _names(self) -> list[str]:
        return [] if self._by_pattern else sorted(self.subscribed)

    def _by_id(self, share: Share) -> list[tuple[Any, list[int]]]:
        if self.generation == JOINING_EPOCH:
            return []
        topics: dict[str, list[int]] = {}
        for name, partition in sorted(share):
            topics.setdefault(name, []).append(partition)
        return [(self.world.image.topic_ids[name], partitions) for name, partitions in topics.items()]

    def _take(self, answer: Any, since_ms: int, *, judged: bool) -> None:
        """Note an answer to heartbeats of which the first was sent at ``since_ms``."""
        if self.generation != answer.member_epoch:
            for listener in self.world.on_epoch_told:
                listener(self.coordinator_now()[0])
        self.generation = answer.member_epoch
        if answer.assignment is None:
            return
        world, names = self.world, {topic_id: name for name, topic_id in self.world.image.topic_ids.items()}
        target = frozenset(
            (names[each.topic_id], partition)
            for each in answer.assignment.topic_partitions
            for partition in each.partitions
        )
        if judged:
            world.judge(lambda: self._check(target))
        self._target = target
        world.trace(lambda: f"member {self.member} ({self.member_id}) is told {sorted(target)} in {self.generation}")
        if (self.share or frozenset()) - target and self._revoking_since_ms is None:
            # Its coordinator counts from the heartbeat with which it knew, whose answer may be lost.
            self._revoking_since_ms = since_ms

    def _check(self, target: Share) -> None:
        new = target - (self.share or frozenset())
        for other in self.members:
            if other is self or not isinstance(other, HeartbeatMember) or other.plan is not self.plan:
                continue
            both = [place for place in sorted(new) if other.still_uses(place)]
            if both:
                text = f"member {self.member} is told of {both}, which member {other.member} still uses"
                raise ViolationError("one-holder", f"group {self.plan.group_id}: {text}")

    def _check_known(self, error: ErrorCode, leader_epoch: int, *, tells_all: bool) -> None:
        leads_ms = self.world.leads_ms.get(self.offsets_key(), {})
        if not self._known.is_known(self.world.scheduler.now_ms, leader_epoch, leads_ms):
            return
        if error in _NOT_A_MEMBER or self._known.has_epoch(tells_all=tells_all):
            text = f"member {self.member} ({self.member_id}), in time in epoch {self.generation}, is told {error.name}"
            raise ViolationError("member-stays", f"group {self.plan.group_id}: {text}")

    async def _reconcile(self) -> None:
        """Stop using revoked partitions after a while."""
        while True:
            if self.share != self._target:
                if (self.share or frozenset()) - self._target:
                    await self.pause(int(self.rng.random() * self.plan.commit_ms))
                self.share, self._has_changed = self._target, True
            await self.pause(10)

    async def _leave(self) -> None:
        epoch = LEAVING_EPOCH if self.instance_id is None else STATIC_LEAVING_EPOCH
        try:
            await self.coordinate(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                1,
                (*_JOIN_AGAIN, *_ENDS),
                group_id=self.plan.group_id,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                rebalance_timeout_ms=-1,
                subscribed_topic_names=None,
                subscribed_topic_regex=None,
                server_assignor=None,
                topic_partitions=None,
            )
        except UnreachableError:
            return
