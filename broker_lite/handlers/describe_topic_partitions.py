"""DescribeTopicPartitions v0 (KIP-966): topics by name, some partitions at a time, with a cursor. Absent: nothing."""

from __future__ import annotations

import uuid
from typing import Any

from sparkonce.broker_lite.log.directories import check_topic_name
from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node import cluster_view
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_operations
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import ZERO_UUID

MAX_PARTITIONS_PER_ANSWER = 2000
"""Kafka's `max.request.partition.size.limit`."""
NO_OPERATIONS = -(2**31)


async def handle(broker: Broker, request: Request) -> Body:
    """Describe topics in the order of their names, from the cursor on."""
    wanted = request.message()
    everything = not wanted.topics
    asked = {topic.name for topic in broker.topics()} if everything else {each.name for each in wanted.topics}
    cursor, begin = wanted.cursor, ("", 0)
    if cursor is not None:
        begin = (cursor.topic_name, cursor.partition_index)
        if begin[1] < 0 or (not everything and begin[0] not in asked):
            refused = [_topic(request, each.name, ErrorCode.INVALID_REQUEST) for each in wanted.topics]
            return request.response(topics=refused, next_cursor=None)
    found, hidden = [], []
    left = max(min(wanted.response_partition_limit, MAX_PARTITIONS_PER_ANSWER), 1)
    following = None
    for name in sorted(name for name in asked if name >= begin[0]):
        if not authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not everything:
                hidden.append(_topic(request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if not left:
            following = following or (name, 0)
            continue
        topic = broker.topic(name)
        operations = authorized_operations(broker, request, ResourceType.TOPIC, name)
        if topic is None:
            found.append(_topic(request, name, _missing(name), operations=operations))
            continue
        first = begin[1] if name == begin[0] else 0
        indexes = range(first, min(first + left, topic.partition_count))
        found.append(_described(broker, request, topic, indexes, operations))
        left -= len(indexes)
        if indexes.stop < topic.partition_count:
            following, left = (name, indexes.stop), 0
    return request.response(topics=found + hidden, next_cursor=_cursor(request, following))


def _cursor(request: Request, following: tuple[str, int] | None) -> Any:
    if following is None:
        return None
    kind = apis.response_class(request.api_key).Cursor
    return kind(version=request.version, topic_name=following[0], partition_index=following[1])


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _described(broker: Broker, request: Request, topic: Topic, indexes: range, operations: int) -> Any:
    kind = apis.response_class(request.api_key).DescribeTopicPartitionsResponseTopic
    partitions = [
        kind.DescribeTopicPartitionsResponsePartition(
            version=request.version,
            error_code=int(view.error),
            partition_index=index,
            leader_id=view.leader,
            leader_epoch=view.leader_epoch,
            replica_nodes=view.replicas,
            isr_nodes=view.in_sync,
            eligible_leader_replicas=view.eligible,
            last_known_elr=view.last_known_leader,
            offline_replicas=view.offline,
        )
        for index, view in cluster_view.partitions(broker.member.image, topic, indexes)
    ]
    internal = broker.is_internal(topic.name)
    return _topic(request, topic.name, ErrorCode.NONE, topic.topic_id, internal, partitions, operations)


def _topic(
    request: Request,
    name: str,
    error: ErrorCode,
    topic_id: uuid.UUID = ZERO_UUID,
    internal: bool = False,
    partitions: list[Any] | None = None,
    operations: int = NO_OPERATIONS,
) -> Any:
    return apis.response_class(request.api_key).DescribeTopicPartitionsResponseTopic(
        version=request.version,
        error_code=int(error),
        name=name,
        topic_id=topic_id,
        is_internal=internal,
        partitions=partitions or [],
        topic_authorized_operations=operations,
    )
