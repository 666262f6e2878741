"""OffsetFetch, versions 1 to 10; several groups from version 8 (KIP-709), topics by id from version 10.

From version 7 a client may ask for stable offsets: UNSTABLE_OFFSET_COMMIT where a transaction is still open (KIP-447).
Absent: nothing.
"""

from __future__ import annotations

from typing import Any

from broker_lite.coordinators.offsets import CommittedOffset
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode
from broker_lite.protocol.primitives import ZERO_UUID

REQUIRE_STABLE_FROM = 7
SEVERAL_GROUPS_FROM = 8
TOPIC_ID_FROM = 10
NOTHING_COMMITTED = CommittedOffset(-1, -1, "", -1)


def handle(broker: Broker, request: Request) -> Body:
    """Give what groups have committed; offset -1 where nothing is."""
    wanted, version = request.message(), request.version
    require_stable = version >= REQUIRE_STABLE_FROM and wanted.require_stable
    types = apis.response_class(request.api_key)
    if version < SEVERAL_GROUPS_FROM:
        return request.response(
            topics=_topics(
                broker, types.OffsetFetchResponseTopic, version, wanted.group_id, wanted.topics, require_stable
            ),
            error_code=0,
        )
    kind = types.OffsetFetchResponseGroup
    groups = [
        kind(
            version=version,
            group_id=each.group_id,
            topics=[]
            if error
            else _topics(broker, kind.OffsetFetchResponseTopics, version, each.group_id, each.topics, require_stable),
            error_code=int(error),
        )
        for each in wanted.groups
        for error in [_member_error(broker, each)]
    ]
    return request.response(groups=groups)


def _member_error(broker: Broker, wanted: Any) -> ErrorCode:
    """From version 9 a member may name itself (KIP-848); a classic group does not look at that."""
    group = broker.groups.consumer_group(wanted.group_id)
    return ErrorCode.NONE if group is None else group.fetch_error(wanted.member_id, wanted.member_epoch)


def _topics(broker: Broker, kind: Any, version: int, group_id: str, wanted: Any, require_stable: bool) -> list[Any]:
    committed = broker.groups.offsets.of_group(group_id)
    topics: list[tuple[str | None, Any, list[int]]]
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for name, partition in sorted(committed):
            by_topic.setdefault(name, []).append(partition)
        topics = [(name, _id_of(broker, name), indexes) for name, indexes in by_topic.items()]
        if version >= TOPIC_ID_FROM:
            topics = [each for each in topics if each[1] != ZERO_UUID]
    else:
        by_id = version >= TOPIC_ID_FROM
        topics = [
            (_name_of(broker, each, version), each.topic_id if by_id else ZERO_UUID, each.partition_indexes)
            for each in wanted
        ]
    unstable = _unstable(broker, group_id) if require_stable else frozenset()
    return [_topic(kind, version, name, topic_id, indexes, committed, unstable) for name, topic_id, indexes in topics]


def _unstable(broker: Broker, group_id: str) -> frozenset[tuple[str, int]]:
    """Give the partitions that a transaction which is still open has offsets for (KIP-447)."""
    return frozenset((key.topic, key.partition) for key in broker.pending_offsets.keys_of_group(group_id))


def _id_of(broker: Broker, name: str) -> Any:
    topic = broker.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


def _name_of(broker: Broker, wanted: Any, version: int) -> str | None:
    if version < TOPIC_ID_FROM:
        return str(wanted.name)
    topic = broker.topic_by_id(wanted.topic_id)
    return None if topic is None else topic.name


def _topic(
    kind: Any,
    version: int,
    name: str | None,
    topic_id: Any,
    indexes: list[int],
    committed: dict[tuple[str, int], CommittedOffset],
    unstable: frozenset[tuple[str, int]],
) -> Any:
    by_id = version >= TOPIC_ID_FROM
    partition_kind = (
        kind.OffsetFetchResponsePartitions if version >= SEVERAL_GROUPS_FROM else kind.OffsetFetchResponsePartition
    )
    error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
    partitions = []
    for index in indexes:
        value = committed.get((name, index), NOTHING_COMMITTED) if name is not None else NOTHING_COMMITTED
        if by_id and not value.is_for(topic_id):
            value = NOTHING_COMMITTED  # of an earlier topic of that name
        waits = name is not None and (name, index) in unstable
        if waits:
            value = NOTHING_COMMITTED
        partition = partition_kind(
            version=version,
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=int(ErrorCode.UNSTABLE_OFFSET_COMMIT if waits else error),
        )
        partitions.append(partition)
    return kind(version=version, partitions=partitions, **({"topic_id": topic_id} if by_id else {"name": name}))
