"""Writing and restoring a classic group, and its invariants.

Theory of operation: Kafka writes a group when its leader's assignment has arrived, when it has become empty, and when
a static member was replaced by one with the same instance id; never in between. A restored group is Stable with all its
members, whose sessions restart, or Empty. Of the members' protocols only the metadata of the selected one is kept.

`Replayed` is the sum of all records of `__consumer_offsets`: the last of each key.
"""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.consumer_group_image import GroupImage
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import (
    Answer,
    GroupSettings,
    GroupState,
    JoinAnswer,
    Member,
    SyncAnswer,
)
from sparkonce.broker_lite.coordinators.group_records import ClassicRecord, StoredGroup, StoredMember, decode
from sparkonce.broker_lite.coordinators.offsets import OffsetTable
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import Record


def store(group: ClassicGroup, timestamp_ms: int) -> StoredGroup:
    """Return the group's content to write now; ``timestamp_ms`` is since 1970."""
    group.unwritten = False
    group.state_timestamp_ms = timestamp_ms
    members = tuple(
        StoredMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(group.protocol_name),
            member.assignment,
        )
        for member in group.members.values()
    )
    name = group.protocol_name
    return StoredGroup(group.protocol_type or "", group.generation, name, group.leader_id, timestamp_ms, members)


def restore(group_id: str, settings: GroupSettings, stored: StoredGroup, now_ms: int) -> ClassicGroup:
    """Return the restored group."""
    group = ClassicGroup(group_id, settings)
    group.generation, group.state_timestamp_ms = stored.generation, stored.state_timestamp_ms
    group.protocol_type, group.protocol_name = stored.protocol_type or None, stored.protocol_name
    for each in stored.members:
        group.members[each.member_id] = Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout_ms,
            each.rebalance_timeout_ms,
            ((stored.protocol_name or "", each.subscription),),
            session_deadline_ms=now_ms + each.session_timeout_ms,
            assignment=each.assignment,
            synced=True,
        )
        if each.group_instance_id is not None:
            group.static_members[each.group_instance_id] = each.member_id
    if group.members:
        group.state = GroupState.STABLE
        group.leader_id = stored.leader_id if stored.leader_id in group.members else next(iter(group.members))
    return group


def turned_away(group: ClassicGroup) -> list[Answer]:
    """Return the answers to all waiting members: another broker coordinates the group now."""
    answers: list[Answer] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            answers.append(JoinAnswer(member.awaiting_join, ErrorCode.NOT_COORDINATOR, member.member_id))
        if member.awaiting_sync is not None:
            answers.append(SyncAnswer(member.awaiting_sync, ErrorCode.NOT_COORDINATOR))
        member.awaiting_join = member.awaiting_sync = None
    return answers


def check_invariants(group: ClassicGroup) -> None:
    """Assert the invariants between any two events; used by tests and by the simulator."""
    members = group.members.values()
    assert (group.state in (GroupState.EMPTY, GroupState.DEAD)) == (not group.members)
    assert all(m.awaiting_join is None or m.awaiting_sync is None for m in members)
    if group.state is not GroupState.PREPARING_REBALANCE:
        assert all(m.awaiting_join is None for m in members)
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert all(m.awaiting_sync is None for m in members)
    waiting = group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    waiting = waiting or not all(m.synced for m in members)
    assert waiting == (group.rebalance_deadline_ms is not None)
    assert (group.leader_id is None) == (not group.members)
    assert group.leader_id is None or group.leader_id in group.members
    assert not set(group.pending_members) & set(group.members)
    static = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
    assert static == group.static_members
    assert group.generation >= 0


class Replayed:
    """The sum of the records: offsets, and groups of both kinds."""

    def __init__(self) -> None:
        self.offsets = OffsetTable()
        self.classic: dict[str, StoredGroup] = {}
        self.consumer: dict[str, GroupImage] = {}

    def take(self, record: Record) -> None:
        """Add one record.

        Raises:
            ProtocolError: if it cannot be parsed; then nothing has changed.
        """
        found = decode(record)
        if found is None:
            self.offsets.replay([record])
        elif isinstance(found, ClassicRecord):
            if found.group is None:
                self.classic.pop(found.group_id, None)
            else:
                self.classic[found.group_id] = found.group
        elif found.change is None:
            self.consumer.pop(found.group_id, None)
        elif record.value is not None or found.group_id in self.consumer:
            # A tombstone does not restore a group of which compaction has left nothing else.
            self.consumer.setdefault(found.group_id, GroupImage()).apply(found.change)
