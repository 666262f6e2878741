"""Which committed offsets are too old to keep (Kafka's OffsetExpirationCondition, KIP-211).

Theory of operation: an offset is kept for `offsets.retention.minutes` after the last member stopped needing it:

    the group                                  counted from
    has members that subscribe to the topic    never expires
    has members that do not                    the commit
    classic and Empty                          when it became empty
    of KIP-848 and Empty, or offsets only      the commit

A classic group with members whose subscriptions cannot be read, or that is in a rebalance, keeps all its offsets.
"""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.coordinators.offsets import CommittedOffset
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.primitives import Reader

CONSUMER_PROTOCOL_TYPE = "consumer"

Group = ClassicGroup | ConsumerGroup


def expired(
    group: Group | None, offsets: dict[tuple[str, int], CommittedOffset], now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """Return the partitions whose offsets expire; ``now_ms`` is since 1970."""
    before_ms = now_ms - retention_ms
    if isinstance(group, ClassicGroup) and group.protocol_type:
        if group.state is GroupState.EMPTY:
            became_empty_ms = group.state_timestamp_ms
            return [
                where
                for where, offset in offsets.items()
                if max(became_empty_ms, offset.commit_timestamp_ms) <= before_ms
            ]
        if group.state is not GroupState.STABLE or subscribed_topics(group) is None:
            return []
    needed = (subscribed_topics(group) if group is not None else None) or frozenset()
    return [
        where for where, offset in offsets.items() if where[0] not in needed and offset.commit_timestamp_ms <= before_ms
    ]


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Return the topics that the members subscribe to; None if unknown."""
    if isinstance(group, ConsumerGroup):
        members = group.image.members.values()
        return frozenset().union(*(group.image.subscribed_topics(member) for member in members))
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    try:
        topics = [_topics_of(member.metadata(group.protocol_name)) for member in group.members.values()]
    except ProtocolError:
        return None
    return frozenset().union(*topics)


def is_subscribed(group: Group | None, topic: str) -> bool:
    """Whether an offset of this topic may not be deleted manually, since a member needs it."""
    if group is None:
        return False
    topics = subscribed_topics(group)
    if topics is None:
        return isinstance(group, ClassicGroup) and group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return topic in topics


def _topics_of(subscription: bytes) -> frozenset[str]:
    """Parse the topics of a ConsumerProtocolSubscription; all versions begin alike."""
    reader = Reader(subscription)
    reader.int16()
    return frozenset(reader.string(flexible=False) for _ in range(reader.array_length(flexible=False)))
