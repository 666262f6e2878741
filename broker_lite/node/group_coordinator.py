"""All groups of the broker: their state machines, their timers, their committed offsets.

Theory of operation: a group is a `ClassicGroup` or, since its first ConsumerGroupHeartbeat, a `ConsumerGroup`
(KIP-848); an empty group is converted when a member of the other protocol joins, one with members is not. After every
event the group's records are appended to `__consumer_offsets`, then its answers are sent and one timer is set to its
next deadline. Commits are appended there before they are acknowledged or visible. A partition is loaded before its
groups are served (`coordinated.py`), with their members, whose sessions restart. When another broker leads a partition,
its groups are dropped here and waiting members are answered. Unused groups and offsets are removed after
`offsets.retention.minutes`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkonce.broker_lite.coordinators.consumer_group import FIRST_COMMIT_VERSION, ConsumerGroup
from sparkonce.broker_lite.coordinators.consumer_group_messages import (
    ConsumerGroupSettings,
    Decision,
    Heartbeat,
    HeartbeatAnswer,
)
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import Answer, GroupSettings, GroupState
from sparkonce.broker_lite.coordinators.group_records import StoredGroup, encode_change, encode_classic, removal_of
from sparkonce.broker_lite.coordinators.group_storage import Replayed, restore, store, turned_away
from sparkonce.broker_lite.coordinators.offset_expiry import expired
from sparkonce.broker_lite.coordinators.offsets import (
    CommittedOffset,
    OffsetKey,
    OffsetTable,
    PendingOffsets,
    decode_key,
    decode_value,
    encode,
)
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.node.coordinated import Coordinated
from sparkonce.broker_lite.node.group_responses import send
from sparkonce.broker_lite.node.offsets_log import OffsetsLog
from sparkonce.broker_lite.scheduling import Scheduler, Timer
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.log_manager import Topic
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings
from sparkonce.broker_lite.node.refusal_log import NoteRefusal

logger = logging.getLogger(__name__)

MAX_GROUPS = 100_000
MAX_REMOVALS_PER_BATCH = 1_000
RETRY_MS = 1_000
"""The retry interval of a timer's event that could not be written."""

Group = ClassicGroup | ConsumerGroup


class BrokerTopics:
    """The broker's topics as groups see them."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self.version = 0

    def names(self) -> Iterable[str]:
        """Return all names, including internal topics, as in Kafka."""
        return self._topics

    def id_and_partitions(self, name: str) -> tuple[uuid.UUID, int] | None:
        """Return a topic's id and number of partitions."""
        topic = self._topics.get(name)
        return None if topic is None else (topic.topic_id, topic.partition_count)


class GroupCoordinator:
    """Groups by id."""

    def __init__(
        self,
        dynamic: DynamicSettings,
        partitions: Coordinated,
        pending: PendingOffsets,
        topics: Mapping[str, Topic],
        scheduler: Scheduler,
        clock: Clock,
        note_refusal: NoteRefusal,
    ) -> None:
        """Load the groups of the partitions led here.

        Args:
            dynamic: the settings of the broker and of groups.
            partitions: the partitions of `__consumer_offsets` that this broker leads.
            pending: the offsets committed in open transactions.
            topics: the broker's topics.
            scheduler: the event loop.
            clock: the time.
            note_refusal: logs failures, up to a rate.
        """
        self._dynamic = dynamic
        self._pending = pending
        self._scheduler = scheduler
        self._clock = clock
        self._note_refusal = note_refusal
        config = dynamic.config
        self._settings = GroupSettings(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
        )
        self.consumer_settings = ConsumerGroupSettings(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
            tuple(name.strip() for name in config.group_consumer_assignors.split(",")),
        )
        self.topics = BrokerTopics(topics)
        self.partitions = partitions
        self._log = OffsetsLog(pending, partitions)
        self._groups: dict[str, Group] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self.offsets = OffsetTable()
        self.partitions.begin(self)
        self._check_retention_later()

    # Partitions of `__consumer_offsets`.

    def load(self, partitions: Mapping[int, PartitionLog]) -> Iterator[None]:
        """Load the groups of some partitions, a step at a time."""
        replayed = Replayed()
        yield from self._log.replay(partitions, replayed.take)
        self.offsets.update(replayed.offsets)
        now_ms = self._clock.monotonic_ms()
        for group_id, stored in replayed.classic.items():
            self._groups[group_id] = restore(group_id, self._settings, stored, now_ms)
        for group_id, image in replayed.consumer.items():
            group = self._groups[group_id] = ConsumerGroup(group_id, self.settings_of(group_id), image)
            group.resume(now_ms)
        for group_id in (*replayed.classic, *replayed.consumer):
            self._set_timer(self._groups[group_id])

    def loaded(self, _partitions: Collection[int]) -> None:
        """Serve the loaded groups: nothing to do until their members send requests."""

    def drop(self, partition: int) -> None:
        """Drop the groups of a partition; waiting members must find the next coordinator."""
        self._pending.drop(partition)
        for group_id in self.partitions.kept_in(partition, self.all_ids()):
            group = self._groups.get(group_id)
            self._forget(group_id)
            self.offsets.drop_group(group_id)
            if isinstance(group, ClassicGroup):
                send(turned_away(group))

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of one KIP-848 group: its own on top of the broker's."""
        own = self._dynamic.group_config(group_id)
        return replace(
            self.consumer_settings,
            session_timeout_ms=own.consumer_session_timeout_ms,
            heartbeat_interval_ms=own.consumer_heartbeat_interval_ms,
        )

    def settings_changed(self, group_id: str) -> None:
        """Apply changed settings to a group, if it exists."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.settings = self.settings_of(group_id)

    def close(self) -> None:
        """Cancel the timers."""
        self.partitions.close()
        self._retention_timer.cancel()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # Looking groups up.

    def group(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return a group of KIP-848."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def any_group(self, group_id: str) -> Group | None:
        """Return a group of either protocol; None if it only has offsets."""
        return self._groups.get(group_id)

    def why_not(self, group_id: str, kind: str) -> str:
        """Return why there is no group of this kind, `classic` or `consumer`, in Kafka's words."""
        if group_id in self._groups or self.offsets.of_group(group_id):
            return f"Group {group_id} is not a {kind} group."
        return f"Group {group_id} not found."

    def all_ids(self) -> list[str]:
        """Return all group ids, including groups that only have offsets."""
        return sorted(set(self._groups) | set(self.offsets.groups()))

    def topics_changed(self) -> None:
        """Note that a topic was created or deleted: topic patterns are resolved again."""
        self.topics.version += 1

    # Classic groups.

    def group_to_join(self, group_id: str) -> ClassicGroup:
        """Return a classic group, created if needed.

        Raises:
            KafkaError: INVALID_GROUP_ID; INCONSISTENT_GROUP_PROTOCOL if it is a KIP-848 group with members;
                GROUP_MAX_SIZE_REACHED when there are too many groups; or if it could not be written down.
        """
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and group.image.members:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group_id} uses the consumer protocol")
        self._check_room(group_id)
        now_ms = self._clock.now_ms()
        first = encode_classic(group_id, StoredGroup("", 0, None, None, now_ms, ()), now_ms)
        self._append(group_id, [*self._removal_of(group), first])
        self._forget(group_id)
        made = self._groups[group_id] = ClassicGroup(group_id, self._settings)
        return made

    def carry_out(self, group: ClassicGroup, answers: list[Answer]) -> None:
        """Write a group if it asks for that, send its answers, and set its timer."""
        if group.unwritten:
            now_ms = self._clock.now_ms()
            try:
                self._append(group.group_id, [encode_classic(group.group_id, store(group, now_ms), now_ms)])
            except KafkaError as error:
                self._note_refusal(f"group {group.group_id} could not be written: {error}")
                answers = group.not_written(answers, self._clock.monotonic_ms())
        send(answers)
        self._set_timer(group)

    # Groups of KIP-848.

    def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """Handle a member's heartbeat; when this returns, its changes are in the log.

        Raises:
            KafkaError: those of `ConsumerGroup.heartbeat`, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED when there are
                too many groups, COORDINATOR_NOT_AVAILABLE if it could not be written.
        """
        old = self._groups.get(group_id)
        if isinstance(old, ConsumerGroup):
            group, removal = old, []
        else:
            self._check_upgrade(group_id, old, request)
            group, removal = ConsumerGroup(group_id, self.settings_of(group_id)), self._removal_of(old)
        decision = group.heartbeat(request, self.topics, self._clock.now_ms())
        if group is not old:
            self._check_room(group_id)
        self._settle(group, decision, removal)
        assert decision.answer is not None
        return decision.answer

    def remove_member(self, group: ConsumerGroup, member_id: str) -> None:
        """Remove a member on an administrator's request. Raises KafkaError if the change could not be written."""
        self._settle(group, group.remove([member_id], self.topics))

    def _check_upgrade(self, group_id: str, group: Group | None, request: Heartbeat) -> None:
        empty = group is None or (
            isinstance(group, ClassicGroup) and group.state is GroupState.EMPTY and not group.pending_members
        )
        if not empty:
            self._note_refusal(
                f"group {group_id}: a consumer of the protocol of KIP-848 (group.protocol=consumer) is refused while "
                "members of the classic protocol are in the group: stop those first, the group's offsets stay; or set "
                "group.protocol=classic",
                f"protocol of group {group_id}",
            )
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} has members of the classic protocol")
        if request.member_epoch != 0:
            what = "Group" if request.member_epoch < 0 else "Consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")

    def _settle(self, group: ConsumerGroup, decision: Decision, removal: Collection[Record] = ()) -> None:
        """Write a decision, then apply it."""
        now_ms = self._clock.now_ms()
        records = [*removal, *(encode_change(group.group_id, change, now_ms) for change in decision.changes)]
        if records:
            try:
                self._append(group.group_id, records)
            except KafkaError as error:
                self._note_refusal(f"group {group.group_id} could not be written: {error}")
                text = f"the group's records could not be written: {error.code.name}"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error
        if self._groups.get(group.group_id) is not group:
            self._forget(group.group_id)
            self._groups[group.group_id] = group
        group.accept(decision, self._clock.monotonic_ms(), self.topics.version)
        self._set_timer(group)

    # Timers.

    def _set_timer(self, group: Group, not_before_ms: int = 0) -> None:
        deadline_ms = group.next_deadline_ms
        current = self._timers.get(group.group_id)
        if current is not None:
            if deadline_ms is not None and current[0] <= deadline_ms and not not_before_ms:
                return  # it fires early, finds nothing due, and is set again
            current[1].cancel()
            del self._timers[group.group_id]
        if deadline_ms is None:
            return
        deadline_ms = max(deadline_ms, not_before_ms)
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        timer = self._scheduler.call_later(delay_ms / 1000, lambda: self._on_timer(group))
        self._timers[group.group_id] = (deadline_ms, timer)

    def _on_timer(self, group: Group) -> None:
        del self._timers[group.group_id]
        self._expire(group)

    def _expire(self, group: Group) -> None:
        """Do what is due: expire sessions, complete rebalances."""
        now_ms = self._clock.monotonic_ms()
        if isinstance(group, ClassicGroup):
            before = set(group.members)
            answers = group.expire(now_ms)
            self._note_gone(group, before - set(group.members))
            self.carry_out(group, answers)
            return
        decision = group.expire(now_ms, self.topics)
        if decision is None:
            self._set_timer(group)
            return
        before = set(group.image.members)
        try:
            self._settle(group, decision)
        except KafkaError:
            self._set_timer(group, not_before_ms=now_ms + RETRY_MS)
            return
        self._note_gone(group, before - set(group.image.members))

    def _note_gone(self, group: Group, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            logger.info("group %s: member %s did not answer in time and is removed", group.group_id, member_id)

    # Offsets.

    def commit_error(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        partitions: Callable[[], Iterable[tuple[uuid.UUID, int]]],
        version: int,
        transactional: bool = False,
    ) -> ErrorCode:
        """Check whether a member of either protocol, or a client without a group protocol, may commit offsets.

        ``epoch`` is the member's generation or epoch; ``version`` is that of the OffsetCommit.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            now_ms = self._clock.monotonic_ms()
            return group.commit_error(member_id, instance_id, epoch, now_ms, transactional)
        if group is not None:
            return group.commit_error(member_id, epoch, version, partitions(), transactional)
        if epoch < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_COMMIT_VERSION else ErrorCode.ILLEGAL_GENERATION

    def commit(self, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset | None]) -> None:
        """Commit offsets, or remove them (None); when this returns they are in the log.

        Raises:
            KafkaError: if the append failed; then nothing has changed.
        """
        now_ms = self._clock.now_ms()
        changes = {OffsetKey(group_id, *where): value for where, value in offsets.items()}
        self._append(group_id, [encode(key, value, now_ms) for key, value in changes.items()])
        for key, value in changes.items():
            self.offsets.put(key, value)

    def end_transaction(self, partition: int, marker: Marker) -> None:
        """Commit or drop the pending offsets of a transaction, as its marker says."""
        if not self.partitions.has(partition):
            return  # it will be loaded with the rest
        for record in self._pending.end(partition, marker.producer_id, marker.committed):
            key = decode_key(record.key)
            assert key is not None
            self.offsets.put(key, None if record.value is None else decode_value(record.value))

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets. Raises KafkaError if that could not be written."""
        group = self._groups.get(group_id)
        due_ms = None if group is None else group.next_deadline_ms
        if group is not None and due_ms is not None and due_ms <= self._clock.monotonic_ms():
            self._expire(group)  # an expired session counts as ended, however late its timer fires
        offsets = self.offsets.of_group(group_id)
        if group is None and not offsets:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ClassicGroup):
            if group.state is not GroupState.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP
        elif group is not None and group.image.members:
            return ErrorCode.NON_EMPTY_GROUP
        waiting = self._pending.keys_of_group(group_id)
        if offsets or waiting:
            self._remove_offsets(
                group_id, list(dict.fromkeys((*offsets, *((key.topic, key.partition) for key in waiting))))
            )
        if group is not None:
            self._append(group_id, self._removal_of(group))
            if isinstance(group, ClassicGroup):
                group.delete()
            self._forget(group_id)
        return ErrorCode.NONE

    def forget_topic(self, topic: str) -> None:
        """Remove every offset of a deleted topic, including pending ones of transactions.

        Raises:
            KafkaError: if some groups' offsets could not be removed; the others are removed.
        """
        failure: KafkaError | None = None
        by_group: dict[str, list[tuple[str, int]]] = {}
        for key in dict.fromkeys((*self.offsets.keys_of_topic(topic), *self._pending.keys_of_topic(topic))):
            by_group.setdefault(key.group_id, []).append((key.topic, key.partition))
        for group_id, removals in by_group.items():
            try:
                self._remove_offsets(group_id, removals)
            except KafkaError as error:
                failure = error
        if failure is not None:
            raise failure

    def remove_expired(self) -> None:
        """Remove expired offsets, and the groups that have neither members nor offsets."""
        now_ms = self._clock.now_ms()
        retention_ms = self._dynamic.config.offsets_retention_minutes * 60_000
        pending = self._pending
        for group_id in self.all_ids():
            group, offsets = self._groups.get(group_id), self.offsets.of_group(group_id)
            gone = expired(group, offsets, now_ms, retention_ms) if offsets else []
            if gone and pending:
                gone = [place for place in gone if not pending.is_pending(OffsetKey(group_id, *place))]
            if gone:
                logger.info("group %s: %d committed offsets have expired", group_id, len(gone))
                self._remove_offsets(group_id, gone)
            if group is None or self.offsets.of_group(group_id) or pending.keys_of_group(group_id):
                continue
            idle = group.next_deadline_ms is None if isinstance(group, ClassicGroup) else not group.image.members
            if idle:
                self.delete(group_id)

    def _check_retention_later(self) -> None:
        interval_ms = self._dynamic.config.offsets_retention_check_interval_ms
        self._retention_timer = self._scheduler.call_later(interval_ms / 1000, self._check_retention)

    def _check_retention(self) -> None:
        try:
            self.remove_expired()
        except KafkaError as error:
            self._note_refusal(f"expired offsets could not be removed, and are tried again later: {error}")
        self._check_retention_later()

    def _remove_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> None:
        for start in range(0, len(partitions), MAX_REMOVALS_PER_BATCH):
            self.commit(group_id, dict.fromkeys(partitions[start : start + MAX_REMOVALS_PER_BATCH]))

    # Shared.

    def _append(self, group_id: str, records: list[Record]) -> None:
        self._log.append(group_id, records)

    def _check_room(self, group_id: str) -> None:
        if group_id not in self._groups and len(self._groups) >= MAX_GROUPS:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the broker keeps at most {MAX_GROUPS} groups")

    def _removal_of(self, group: Group | None) -> list[Record]:
        """Return the records that remove a group without members, to be written with those of its replacement."""
        if group is None:
            return []
        now_ms = self._clock.now_ms()
        if isinstance(group, ClassicGroup):
            return [encode_classic(group.group_id, None, now_ms)]
        return removal_of(group.group_id, bool(group.image.target_epoch), now_ms)

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer[1].cancel()
