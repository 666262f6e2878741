"""Groups on a simulated broker: coordinators of its partitions of `__consumer_offsets`.

Theory of operation: as the handlers of a real broker do it (`node/group_coordinator.py`, `join_group.py`,
`offset_commit.py`, `offset_fetch.py`), with calls in place of sockets. After every event of a `ClassicGroup` its record
is appended if it asks for that, and the answers leave when the partition is safe as far as it goes then; if it could
not be appended, the group says what to answer instead. A commit is appended before it is seen by anyone. What is read
waits as well, for it may rest on what could still be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.coordinators.consumer_group import FIRST_COMMIT_VERSION
from sparkonce.broker_lite.coordinators.consumer_group_image import JOINING_EPOCH
from sparkonce.broker_lite.coordinators.consumer_group_messages import Heartbeat
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import (
    Answer,
    GroupSettings,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
    refused,
)
from sparkonce.broker_lite.coordinators.group_records import encode_classic
from sparkonce.broker_lite.coordinators.group_storage import (
    Replayed,
    check_invariants,
    new_group_record,
    restore,
    store,
    turned_away,
)
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, CommittedOffset, OffsetKey, OffsetTable, encode
from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.node.client_errors import (
    commit_error,
    coordinator_error,
    fetch_error,
    heartbeat_error,
    join_error,
    sync_error,
)
from sparkonce.broker_lite.node.coordinated import replay
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.protocol.records import Record
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.broker_lite.sim.consumer_grouping import ConsumerGroups, places_of
from sparkonce.broker_lite.sim.coordinating import Coordinator, Coordinators, Note, nobody
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call
from sparkonce.broker_lite.sim.ownership import KNOWS_BETTER, NOTHING, Commit, Told, Written, decode_share

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker

_MAX_SESSION_MS = 60_000
_MAX_SIZE = 100
Offsets = dict[TopicPartition, int]


class Caller(NamedTuple):
    """Who asks: a member as it sees itself."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int

    @property
    def owner(self) -> str:
        """What it is to the judge: a static member keeps its share under whatever id."""
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A request that waits for the group's answer; it comes back with that as its token."""

    call: Call
    caller: Caller


class GroupCoordinator(Coordinator):
    """The groups of one partition, as long as it is led here in one epoch."""

    def __init__(self, broker: SimulatedBroker, key: PartitionKey, epoch: int) -> None:
        super().__init__(broker, key, epoch)
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers = ConsumerGroups(self, broker)
        self.offsets = OffsetTable()

    def read_back(self) -> None:
        """Read the partition back: sessions of members restart."""
        replayed = Replayed()
        replay(self.log, lambda _, record: replayed.take(record))
        self.offsets = replayed.offsets
        for group_id, stored in replayed.classic.items():
            group = self.groups[group_id] = restore(group_id, self._settings(group_id), stored, self._now_ms)
            check_invariants(group)
            if group.members:
                self._broker.world.mark(Mark.GROUP_READ_BACK)
        self.consumers.read_back(replayed.consumer)
        self.loaded = True

    def dropped(self) -> None:
        """Make waiting members look for the next coordinator."""
        for group in self.groups.values():
            answers = turned_away(group)
            if any(isinstance(each, JoinAnswer) for each in answers):
                self._broker.world.mark(Mark.MOVED_WITH_JOINS)
            self._send(answers)

    def tick(self) -> None:
        """End sessions and rebalances whose time is up."""
        for group in list(self.groups.values()) if self.loaded else ():
            deadline_ms = group.next_deadline_ms
            if deadline_ms is not None and deadline_ms <= self._now_ms:
                self.carry_out(group, group.expire(self._now_ms))
        if self.loaded:
            self.consumers.tick()

    @property
    def _now_ms(self) -> int:
        """The time that sessions go by, which no clock's jump changes."""
        return self._broker.scheduler.now_ms

    def _settings(self, group_id: str) -> GroupSettings:
        delay_ms = next(each.delay_ms for each in self._broker.world.plan.groups if each.group_id == group_id)
        return GroupSettings(1, _MAX_SESSION_MS, delay_ms, _MAX_SIZE)

    @property
    def epoch_now(self) -> int:
        """The epoch in which the broker leads, as far as it knows."""
        try:
            return self._broker.replicas.leader(self._key).state.leader_epoch
        except KafkaError:
            return KNOWS_BETTER

    # Groups.

    def to_join(self, group_id: str) -> ClassicGroup:
        """Return a group, made if need be.

        Raises:
            KafkaError: if it could not be written down.
        """
        group = self.groups.get(group_id)
        if group is None:
            now_ms = self._broker.now_ms
            self._append([encode_classic(group_id, new_group_record(now_ms), now_ms)], f"group {group_id} is new")
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings(group_id))
        return group

    def carry_out(self, group: ClassicGroup, answers: list[Answer]) -> None:
        """Write a group down if it asks for that, and send its answers when they are safe."""
        if group.unwritten:
            now_ms = self._broker.now_ms
            record = encode_classic(group.group_id, store(group, now_ms), now_ms)
            text = f"{group.state.value}, generation {group.generation}, members {sorted(group.members)}"
            try:
                self._append([record], f"group {group.group_id} is {text}")
            except KafkaError:
                self._broker.world.mark(Mark.GROUP_NOT_WRITTEN)
                answers = group.not_written(answers, self._now_ms)
        check_invariants(group)
        if answers:
            self.when_told(lambda error: self._send_all(answers, error))

    def when_told(self, then: Callable[[ErrorCode], None]) -> None:
        """Call back when all that the partition holds now is safe, or with what is to be told if it did not get so."""

        def safe(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                self._broker.world.mark(Mark.NEVER_SAFE)
            then(code if code is ErrorCode.NONE else coordinator_error(code))

        self.when_safe(safe)

    def _send_all(self, answers: Iterable[Answer], error: ErrorCode) -> None:
        self._send(answers if error is ErrorCode.NONE else [refused(each, error) for each in answers])

    def _send(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            asked = answer.token
            assert isinstance(asked, Asked)
            if isinstance(answer, SyncAnswer) and answer.error is ErrorCode.NONE:
                caller, share = asked.caller, decode_share(answer.assignment)
                judge = self._broker.world.groups
                judge.synced(caller.group_id, self.epoch_now, caller.generation, caller.owner, share)
            asked.call.answer(answer)

    # Offsets.

    def commit(self, commit: Commit) -> Written:
        """Keep offsets.

        Raises:
            KafkaError: if the append failed; then nothing has changed.
        """
        now_ms = self._broker.now_ms
        value = CommittedOffset(commit.number, -1, "", now_ms)
        judge = self._broker.world.groups
        records = [encode(key, value, now_ms) for key in commit.keys]
        written = self._append(records, f"{commit} for {commit.places}", partial(judge.written, commit))
        for key in commit.keys:
            self.offsets.put(key, value)
        return written

    def read(self, group_id: str, places: Iterable[TopicPartition]) -> tuple[Offsets, list[str]]:
        """Return what is committed, and what is wrong with that."""
        table = self.offsets.of_group(group_id)
        found = {place: table[place].offset if place in table else NOTHING for place in places}
        judge, log = self._broker.world.groups, self.log.batches
        judged = [
            judge.read(OffsetKey(group_id, *place), number, self.epoch_now, log) for place, number in found.items()
        ]
        return found, [each for each in judged if each is not None]

    def _append(self, records: list[Record], text: str, note: Note = nobody) -> Written:
        try:
            return self.append(records, lambda: text, note)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                raise KafkaError(coordinator_error(error.code), error.message) from error
            raise


class GroupService:
    """What a broker has to do with groups."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self.coordinators = Coordinators(broker, OFFSETS_TOPIC, GroupCoordinator)

    @property
    def _now_ms(self) -> int:
        return self._broker.scheduler.now_ms

    def join(self, call: Call, caller: Caller, wanted: Join) -> None:
        """Answer JoinGroup with a `JoinAnswer`, when the group's rebalance is complete."""
        coordinator = self.coordinators.find(caller.group_id)
        try:
            if isinstance(coordinator, ErrorCode):
                raise KafkaError(coordinator)
            group = coordinator.to_join(caller.group_id)
        except KafkaError as error:
            call.answer(JoinAnswer(call, join_error(error.code), caller.member_id))
            return
        new_member_id = f"{caller.instance_id or 'm'}-{self._broker.world.take_member_number()}"
        join = replace(wanted, token=Asked(call, caller), new_member_id=new_member_id)
        coordinator.carry_out(group, group.join(join, self._now_ms))

    def sync(self, call: Call, caller: Caller, wanted: Sync) -> None:
        """Answer SyncGroup with a `SyncAnswer`, when the leader's assignment has come."""
        coordinator = self.coordinators.find(caller.group_id)
        group = None if isinstance(coordinator, ErrorCode) else coordinator.groups.get(caller.group_id)
        if isinstance(coordinator, ErrorCode) or group is None:
            error = coordinator if isinstance(coordinator, ErrorCode) else ErrorCode.UNKNOWN_MEMBER_ID
            call.answer(SyncAnswer(call, sync_error(error)))
            return
        self._note_fenced(answers := group.sync(replace(wanted, token=Asked(call, caller)), self._now_ms))
        coordinator.carry_out(group, answers)

    def _note_fenced(self, answers: Iterable[Answer]) -> None:
        if any(each.error is ErrorCode.ILLEGAL_GENERATION for each in answers):
            self._broker.world.mark(Mark.OLD_GENERATION)

    def heartbeat(self, call: Call, caller: Caller) -> None:
        """Answer Heartbeat with an error code."""
        coordinator = self.coordinators.find(caller.group_id)
        if isinstance(coordinator, ErrorCode):
            call.answer(heartbeat_error(coordinator))
            return
        group, error = coordinator.groups.get(caller.group_id), ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = group.heartbeat(caller.member_id, caller.instance_id, caller.generation, self._now_ms)
            coordinator.carry_out(group, [])
        self._answer(coordinator, call, error)

    def leave(self, call: Call, caller: Caller) -> None:
        """Answer LeaveGroup of one member with an error code."""
        coordinator = self.coordinators.find(caller.group_id)
        if isinstance(coordinator, ErrorCode):
            call.answer(coordinator)
            return
        group, error = coordinator.groups.get(caller.group_id), ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error, answers = group.leave(caller.member_id, caller.instance_id, self._now_ms)
            coordinator.carry_out(group, answers)
        self._answer(coordinator, call, error)

    @staticmethod
    def _answer(coordinator: GroupCoordinator, call: Call, error: ErrorCode) -> None:
        coordinator.when_told(lambda refusal: call.answer(error if refusal is ErrorCode.NONE else refusal))

    def commit(self, call: Call, caller: Caller, commit: Commit) -> None:
        """Answer OffsetCommit with an error code."""
        coordinator = self.coordinators.find(caller.group_id)
        error = coordinator if isinstance(coordinator, ErrorCode) else self._commit_error(coordinator, caller, commit)
        if isinstance(coordinator, ErrorCode) or error is not ErrorCode.NONE:
            call.answer(error)
            return
        try:
            written = coordinator.commit(commit)
        except KafkaError as refusal:
            self._answer(coordinator, call, commit_error(refusal.code))
            return

        def safe(refusal: ErrorCode) -> None:
            if refusal is ErrorCode.NONE:
                self._broker.world.groups.acknowledged(commit, coordinator.epoch_now, written)
            call.answer(refusal)

        coordinator.when_told(safe)

    def _commit_error(self, coordinator: GroupCoordinator, caller: Caller, commit: Commit) -> ErrorCode:
        modern = coordinator.consumers.groups.get(caller.group_id)
        if modern is not None:
            keys = [self._broker.world.key_of(place) for place in commit.places]
            return modern.commit_error(caller.member_id, caller.generation, FIRST_COMMIT_VERSION, keys)
        group, error = coordinator.groups.get(caller.group_id), ErrorCode.ILLEGAL_GENERATION
        if group is not None:
            error = group.commit_error(caller.member_id, caller.instance_id, caller.generation, self._now_ms)
        if error is ErrorCode.ILLEGAL_GENERATION:
            self._broker.world.mark(Mark.OLD_GENERATION)
        return error

    def consumer_heartbeat(self, call: Call, group_id: str, request: Heartbeat) -> None:
        """Answer ConsumerGroupHeartbeat with a `HeartbeatAnswer`, or an error code."""
        world, coordinator = self._broker.world, self.coordinators.find(group_id)
        if request.member_epoch <= JOINING_EPOCH:
            world.holders.says(group_id, request.member_id, frozenset())
        elif request.owned is not None:
            world.holders.says(group_id, request.member_id, places_of(world, request.owned))
        try:
            if isinstance(coordinator, ErrorCode):
                raise KafkaError(coordinator)
            answer = coordinator.consumers.heartbeat(group_id, request)
        except KafkaError as error:
            call.answer(error.code)
            return
        share = places_of(world, answer.assignment or {})
        end = coordinator.log.log_end_offset

        def safe(refusal: ErrorCode) -> None:
            if refusal is ErrorCode.NONE and answer.member_epoch >= JOINING_EPOCH:
                told = Told(answer.member_id, share, coordinator.epoch_now, end)
                world.holders.told(group_id, told, coordinator.log.batches)
            call.answer(answer if refusal is ErrorCode.NONE else refusal)

        coordinator.when_told(safe)

    def fetch(self, call: Call, group_id: str, places: Iterable[TopicPartition]) -> None:
        """Answer OffsetFetch with offsets, or an error code."""
        coordinator = self.coordinators.find(group_id)
        if isinstance(coordinator, ErrorCode):
            call.answer(fetch_error(coordinator))
            return
        found, wrong = coordinator.read(group_id, places)

        def safe(refusal: ErrorCode) -> None:
            if refusal is ErrorCode.NONE and wrong:
                raise ViolationError("commits-kept", wrong[0])
            call.answer(found if refusal is ErrorCode.NONE else fetch_error(refusal))

        coordinator.when_told(safe)
