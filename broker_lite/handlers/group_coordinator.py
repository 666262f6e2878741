"""All groups of the broker: their state machines, their timers, their committed offsets.

Theory of operation: each group is a `ClassicGroup`; after every event its answers are sent and one timer is set to
its next deadline. Commits are appended to `__consumer_offsets` before they are acknowledged or seen by anyone, and
read back from there at the start. Group membership is not kept over a restart: members find that out by
UNKNOWN_MEMBER_ID and join again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker_lite.coordinators.group import ClassicGroup
from broker_lite.coordinators.group_messages import Answer, GroupSettings, GroupState
from broker_lite.coordinators.offsets import (
    OFFSETS_TOPIC,
    CommittedOffset,
    OffsetKey,
    OffsetTable,
    encode,
    partition_of,
)
from broker_lite.handlers.purgatory import Timer
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import Record, decode_records, encode_batch, scan

if TYPE_CHECKING:
    from broker_lite.handlers.broker import Broker

logger = logging.getLogger(__name__)

MAX_GROUPS = 100_000
LEADER_EPOCH = 0
REPLAY_BYTES = 4 * 1024 * 1024
OFFSETS_TOPIC_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}


class GroupCoordinator:
    """Groups by id."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self._settings = GroupSettings(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
        )
        self.offsets = OffsetTable()
        self._groups: dict[str, ClassicGroup] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._replay()

    def group(self, group_id: str) -> ClassicGroup | None:
        """Give a group that has, or lately had, members."""
        return self._groups.get(group_id)

    def group_to_join(self, group_id: str) -> ClassicGroup:
        """Give a group, made if need be.

        Raises:
            KafkaError: INVALID_GROUP_ID, or GROUP_MAX_SIZE_REACHED when there are too many groups.
        """
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self._groups.get(group_id)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the broker keeps at most {MAX_GROUPS} groups")
            group = self._groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def all_ids(self) -> list[str]:
        """Give the ids of groups with members and of groups with offsets only."""
        return sorted(set(self._groups) | set(self.offsets.groups()))

    def carry_out(self, group: ClassicGroup, answers: list[Answer], send: Callable[[Answer], None]) -> None:
        """Send a group's answers and set its timer."""
        for answer in answers:
            send(answer)
        self._set_timer(group, send)

    def _set_timer(self, group: ClassicGroup, send: Callable[[Answer], None]) -> None:
        deadline_ms = group.next_deadline_ms
        current = self._timers.get(group.group_id)
        if current is not None:
            if deadline_ms is not None and current[0] <= deadline_ms:
                return  # it wakes early, finds nothing due, and is set again
            current[1].cancel()
            del self._timers[group.group_id]
        if deadline_ms is None:
            if group.state is GroupState.EMPTY and not group.pending_members:
                self._groups.pop(group.group_id, None)
            return
        delay_ms = max(deadline_ms - self._broker.clock.monotonic_ms(), 0)
        timer = self._broker.scheduler.call_later(delay_ms / 1000, lambda: self._on_timer(group, send))
        self._timers[group.group_id] = (deadline_ms, timer)

    def _on_timer(self, group: ClassicGroup, send: Callable[[Answer], None]) -> None:
        del self._timers[group.group_id]
        before = set(group.members)
        answers = group.expire(self._broker.clock.monotonic_ms())
        for member_id in before - set(group.members):
            logger.info("group %s: member %s did not answer in time and is removed", group.group_id, member_id)
        self.carry_out(group, answers, send)

    def commit(self, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset | None]) -> None:
        """Keep offsets, or with None remove them; when this returns they are in the log.

        Raises:
            KafkaError: if the append failed; then nothing has changed.
        """
        self._append(group_id, {OffsetKey(group_id, *where): value for where, value in offsets.items()})

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group and its offsets; only without members."""
        group = self._groups.get(group_id)
        offsets = self.offsets.of_group(group_id)
        if group is None and not offsets:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None:
            error = group.delete()
            if error is not ErrorCode.NONE:
                return error
            del self._groups[group_id]
            timer = self._timers.pop(group_id, None)
            if timer is not None:
                timer[1].cancel()
        if offsets:
            self.commit(group_id, dict.fromkeys(offsets))
        return ErrorCode.NONE

    def forget_topic(self, topic: str) -> None:
        """Remove every offset of a topic that has been deleted."""
        by_group: dict[str, dict[OffsetKey, CommittedOffset | None]] = {}
        for key in self.offsets.keys_of_topic(topic):
            by_group.setdefault(key.group_id, {})[key] = None
        for group_id, removals in by_group.items():
            self._append(group_id, removals)

    def _append(self, group_id: str, changes: Mapping[OffsetKey, CommittedOffset | None]) -> None:
        broker = self._broker
        topic = broker.topic(OFFSETS_TOPIC)
        if topic is None:
            count = broker.config.offsets_topic_num_partitions
            topic = broker.create_topic(OFFSETS_TOPIC, count, OFFSETS_TOPIC_SETTINGS)
        now_ms = broker.clock.now_ms()
        batch = encode_batch([encode(key, value, now_ms) for key, value in changes.items()])
        index = partition_of(group_id, len(topic.partitions))
        topic.partitions[index].append(batch, LEADER_EPOCH, now_ms)
        broker.purgatory.appended(OFFSETS_TOPIC, index, len(batch))
        for key, value in changes.items():
            self.offsets.put(key, value)

    def _replay(self) -> None:
        topic = self._broker.logs.topics.get(OFFSETS_TOPIC)
        for log in topic.partitions if topic is not None else ():
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                stretch = log.read(offset, REPLAY_BYTES, min_one_batch=True)
                data = stretch.file.pread(stretch.size, stretch.position)
                for position, header in scan(data):
                    batch = memoryview(data)[position : position + header.size]
                    records: list[Record] = decode_records(batch)
                    self.offsets.replay(records)
                    offset = header.next_offset
