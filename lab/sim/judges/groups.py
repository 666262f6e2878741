"""Observes the group coordinators of brokers: what they write, and what they answer, when the answer is sent.

The invariants are in `ownership.py`. An answer counts when it is sent, which is not before its state is safe; so
checks are kept until `Coordinated.safe` has waited for that. Only groups of the plan are judged, not the operator's,
which come and go.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.sim.judges.observing import Around, CoordinatorPartition, observed
from lab.sim.judges.ownership import NOTHING, Share, Told, Written, decode_share, has
from lab.sim.marks import Mark
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.consumer_group_image import JOINING_EPOCH, check_image
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import JoinAnswer, SyncAnswer
from sparkonce.broker_lite.coordinators.group_storage import check_invariants
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, OffsetKey, partition_of
from sparkonce.broker_lite.handlers import offset_fetch
from sparkonce.broker_lite.node import group_coordinator, group_responses
from sparkonce.broker_lite.node.coordinated import Coordinated
from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lab.sim.judges.ownership import Commit
    from lab.sim.plan import GroupPlan
    from lab.sim.world import World
    from sparkonce.broker_lite.coordinators.consumer_group_messages import Decision, Heartbeat, HeartbeatAnswer
    from sparkonce.broker_lite.coordinators.group_messages import Answer, Sync
    from sparkonce.broker_lite.coordinators.offsets import CommittedOffset
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.node.coordinated import Refusals
    from sparkonce.broker_lite.node.request import Body, Request
    from sparkonce.broker_lite.waiting import Waiting


def observed_groups(world: World) -> AbstractContextManager[None]:
    """Observe all group coordinators for a while."""
    return observed(_Observer(world).observers)


class _Observer:
    """Judges the coordinators of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._judged = {group.group_id for group in world.plan.groups}
        self._when_told: Callable[[], None] | None = None
        """The check of what a handler is about to answer, for when that is safe."""
        self._syncs: dict[object, tuple[ClassicGroup, Sync, int]] = {}
        """The SyncGroup requests that wait for a response, with their groups, and how often these had been deleted."""
        self._coordinators: dict[ClassicGroup, GroupCoordinator] = {}
        self.observers: tuple[tuple[Any, str, Around], ...] = (
            (Coordinated, "safe", self._safe),
            (GroupCoordinator, "commit", self._commit),
            (GroupCoordinator, "commit_error", self._commit_error),
            (GroupCoordinator, "delete", self._delete),
            (GroupCoordinator, "carry_out", self._carry_out),
            (GroupCoordinator, "heartbeat", self._heartbeat),
            (GroupCoordinator, "_settle", self._settle),
            (group_responses, "encoded", self._encoded),
            (group_coordinator, "turned_away", self._turned_away),
            (group_coordinator, "restore", self._restore),
            (offset_fetch, "_one_group", self._fetch),
            (ClassicGroup, "not_written", self._not_written),
            (ClassicGroup, "sync", self._sync),
            (ConsumerGroup, "resume", self._resume),
        )

    def _delete(self, delete: Callable[..., ErrorCode], coordinator: GroupCoordinator, group_id: str) -> ErrorCode:
        """Note where a group's deletion is written: another group may have its name after that."""
        if group_id not in self._judged:
            return delete(coordinator, group_id)
        place = CoordinatorPartition(self._world, coordinator.partitions, group_id)
        try:
            return delete(coordinator, group_id)
        finally:  # the broker may have died right after the write
            if place.written() is not None:
                last = place.log.batches[-1]
                self._world.groups.removed(group_id, Written(last.epoch, last.base_offset))

    # Answers.

    async def _safe(
        self, safe: Callable[..., Waiting[Refusals]], partitions: Coordinated, names: Collection[str]
    ) -> Refusals:
        check = None
        if partitions.topic == OFFSETS_TOPIC:
            check, self._when_told = self._when_told, None
        refusals = await safe(partitions, names)
        if refusals and partitions.topic == OFFSETS_TOPIC:
            self._world.mark(Mark.NEVER_SAFE)
        if check is not None and not refusals:
            check()
        return refusals

    # Classic groups.

    def _carry_out(
        self,
        carry_out: Callable[..., None],
        coordinator: GroupCoordinator,
        group: ClassicGroup,
        answers: list[Answer],
    ) -> None:
        self._coordinators[group] = coordinator
        carry_out(coordinator, group, answers)
        self._world.judge(lambda: check_invariants(group))

    def _encoded(self, encoded: Callable[..., Body], request: Request, answer: Answer) -> Body:
        asked = self._syncs.pop(answer.token, None)
        if asked is not None and isinstance(answer, SyncAnswer) and answer.error is ErrorCode.NONE:
            (group, wanted, deleted), judge = asked, self._world.groups
            if judge.deleted[group.group_id] > deleted:
                return encoded(request, answer)  # of a generation that has ended: the next group counts anew
            place = CoordinatorPartition(self._world, self._coordinators[group].partitions, group.group_id)
            epoch = place.epoch_now
            judge.know_by(group.group_id, place.log.batches)
            owner, share = wanted.group_instance_id or wanted.member_id, decode_share(answer.assignment)
            self._world.judge(lambda: judge.synced(group.group_id, epoch, wanted.generation, owner, share))
        return encoded(request, answer)

    def _sync(self, sync: Callable[..., list[Answer]], group: ClassicGroup, wanted: Sync, now_ms: int) -> list[Answer]:
        if group.group_id in self._judged:
            self._syncs[wanted.token] = (group, wanted, self._world.groups.deleted[group.group_id])
        answers = sync(group, wanted, now_ms)
        if any(each.error is ErrorCode.ILLEGAL_GENERATION for each in answers):
            self._world.mark(Mark.OLD_GENERATION)
        return answers

    def _turned_away(self, turned_away: Callable[..., list[Answer]], group: ClassicGroup) -> list[Answer]:
        answers = turned_away(group)
        if any(isinstance(each, JoinAnswer) for each in answers):
            self._world.mark(Mark.MOVED_WITH_JOINS)
        return answers

    def _restore(self, restore: Callable[..., ClassicGroup], *arguments: Any) -> ClassicGroup:
        group = restore(*arguments)
        if group.members:
            self._world.mark(Mark.GROUP_READ_BACK)
        return group

    def _not_written(self, not_written: Callable[..., Any], *arguments: Any) -> Any:
        self._world.mark(Mark.GROUP_NOT_WRITTEN)
        return not_written(*arguments)

    # Groups of KIP-848.

    def _resume(self, resume: Callable[..., None], group: ConsumerGroup, now_ms: int) -> None:
        self._world.judge(lambda: check_image(group.image))
        if group.image.members:
            self._world.mark(Mark.CONSUMER_GROUP_READ_BACK)
        resume(group, now_ms)

    def _heartbeat(
        self,
        heartbeat: Callable[..., HeartbeatAnswer],
        coordinator: GroupCoordinator,
        group_id: str,
        request: Heartbeat,
    ) -> HeartbeatAnswer:
        if group_id not in self._judged:
            return heartbeat(coordinator, group_id, request)
        holders = self._world.holders
        joins = holders.joined(group_id, request.member_id)
        if request.member_epoch == JOINING_EPOCH:
            joins = holders.joins(group_id, request.member_id)
        elif request.member_epoch < JOINING_EPOCH:
            holders.says(group_id, request.member_id, frozenset())
        elif request.owned is not None:
            holders.says(group_id, request.member_id, self._places(request.owned))
        answer = heartbeat(coordinator, group_id, request)
        place = CoordinatorPartition(self._world, coordinator.partitions, group_id)
        if answer.member_epoch >= JOINING_EPOCH:
            share, end = self._places(answer.assignment or {}), place.log.log_end_offset
            self._when_told = partial(self._told, group_id, place, Told(answer.member_id, share, 0, end, joins))
        return answer

    def _told(self, group_id: str, place: CoordinatorPartition, answer: Told) -> None:
        told = answer._replace(epoch=place.epoch_now)
        self._world.judge(lambda: self._world.holders.told(group_id, told, place.log.batches))

    def _settle(
        self,
        settle: Callable[..., None],
        coordinator: GroupCoordinator,
        group: ConsumerGroup,
        decision: Decision,
        *rest: Any,
    ) -> None:
        place = CoordinatorPartition(self._world, coordinator.partitions, group.group_id)
        gone = sorted(group.image.members.keys() - decision.image.members.keys())
        try:
            settle(coordinator, group, decision, *rest)
        except KafkaError:
            self._world.mark(Mark.GROUP_NOT_WRITTEN)
            raise
        finally:  # the broker may have died right after the write
            written = place.written()
            if written is not None:
                for member_id in gone:
                    self._world.holders.removed(group.group_id, member_id, written)
        self._world.judge(lambda: check_image(group.image))

    def _places(self, owned: Mapping[Any, Collection[int]]) -> Share:
        topics = self._world.image.topics
        return frozenset((topics[each].name, index) for each, indexes in owned.items() for index in indexes)

    # Offsets.

    def _commit_error(self, commit_error: Callable[..., ErrorCode], *arguments: Any, **named: Any) -> ErrorCode:
        error = commit_error(*arguments, **named)
        if error is ErrorCode.ILLEGAL_GENERATION:
            self._world.mark(Mark.OLD_GENERATION)
        return error

    def _commit(
        self,
        commit: Callable[..., None],
        coordinator: GroupCoordinator,
        group_id: str,
        offsets: Mapping[tuple[str, int], CommittedOffset | None],
    ) -> None:
        if group_id not in self._judged or None in offsets.values():
            commit(coordinator, group_id, offsets)
            return
        judge, place = self._world.groups, CoordinatorPartition(self._world, coordinator.partitions, group_id)
        (number,) = {each.offset for each in offsets.values() if each is not None}
        sent = judge.commits[number]
        try:
            commit(coordinator, group_id, offsets)
        finally:  # the broker may have died right after the write
            written = place.written()
            if written is not None:
                judge.know_by(group_id, place.log.batches)
                self._world.judge(lambda: judge.written(sent, written))
        self._when_told = partial(self._acknowledged, sent, place)

    def _acknowledged(self, commit: Commit, place: CoordinatorPartition) -> None:
        written = place.written()
        assert written is not None
        self._world.groups.acknowledged(commit, place.epoch_now, written)

    async def _fetch(
        self, fetch: Callable[..., Waiting[Body]], broker: Broker, request: Request, wanted: Any, *rest: Any
    ) -> Body:
        partitions, group_id, judged = broker.groups.partitions, wanted.group_id, None
        if group_id in self._judged and partitions.error_of(group_id) is ErrorCode.NONE:
            wrong = what_is_wrong(self._world, broker.groups, group_id)
            self._when_told = judged = partial(self._judge_offsets, wrong)
        body = await fetch(broker, request, wanted, *rest)
        if self._when_told is judged:
            self._when_told = None
        return body

    def _judge_offsets(self, wrong: str | None) -> None:
        if wrong is not None:
            self._world.violated(ViolationError("commits-kept", wrong))


def what_is_wrong(world: World, coordinator: GroupCoordinator, group_id: str) -> str | None:
    """Return what is wrong with the offsets that a coordinator is about to return, None if nothing is."""
    place, table = CoordinatorPartition(world, coordinator.partitions, group_id), coordinator.offsets.of_group(group_id)
    for each in world.places:
        number = table[each].offset if each in table else NOTHING
        if number == NOTHING and world.commits.have_aged:
            continue
        wrong = world.groups.read(OffsetKey(group_id, *each), number, place.epoch_now, place.log.batches)
        if wrong is not None:
            return wrong
    return None


def coordinator_problem(world: World, group: GroupPlan) -> str | None:
    """Return why a group's coordinator does not serve it yet, as when leadership has just moved; None if it does."""
    error = _coordinator(world, group.group_id).partitions.error_of(group.group_id)
    return None if error is ErrorCode.NONE else f"group {group.group_id}: its coordinator answers {error.name}"


def _coordinator(world: World, group_id: str) -> GroupCoordinator:
    """Return the coordinator of a group, whose partition has a leader that is up."""
    topic = world.image.topics[world.image.topic_ids[OFFSETS_TOPIC]]
    leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
    assert leader != NO_LEADER
    process = world.brokers[leader].process
    assert process is not None
    assert process.server.broker is not None
    return process.server.broker.groups


def look_at_offsets(world: World, group: GroupPlan) -> None:
    """Check a group's final offsets, and find out which unacknowledged commits took effect.

    Raises:
        ViolationError: commits-kept.
    """
    group_id, coordinator = group.group_id, _coordinator(world, group.group_id)
    wrong = what_is_wrong(world, coordinator, group_id)
    if wrong is not None:
        raise ViolationError("commits-kept", wrong)
    place = CoordinatorPartition(world, coordinator.partitions, group_id)
    for commit, written in world.groups.left_behind():
        if commit.group_id == group_id and written.epoch < place.epoch_now:
            world.mark(Mark.COMMIT_KEPT if has(place.log.batches, written) else Mark.COMMIT_LOST)
