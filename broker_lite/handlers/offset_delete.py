"""OffsetDelete v0 (KIP-496): removes offsets of topics that no member subscribes to, from groups of both kinds."""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.coordinators.offset_expiry import CONSUMER_PROTOCOL_TYPE, is_subscribed
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


async def handle(broker: Broker, request: Request) -> Body:
    """Delete a group's offsets before the answer is sent. A partition without an offset is no error."""
    wanted = request.message()
    error = group_refusal(broker, request, Operation.DELETE, wanted.group_id) or _group_error(broker, wanted.group_id)
    if error is not ErrorCode.NONE:
        return request.response(error_code=int(error), topics=[])
    group = broker.groups.any_group(wanted.group_id)
    known = broker.groups.offsets.of_group(wanted.group_id)
    removals: list[tuple[str, int]] = []
    results: list[tuple[str, list[tuple[int, ErrorCode]]]] = []
    for each in wanted.topics:
        topic, topic_error = find_topic(broker, request, Operation.READ, each.name)
        if topic is not None and is_subscribed(group, each.name):
            topic_error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        errors = []
        for partition in each.partitions:
            index, error = partition.partition_index, topic_error
            if error is ErrorCode.NONE and topic is not None and not 0 <= index < topic.partition_count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error is ErrorCode.NONE and (each.name, index) in known:
                removals.append((each.name, index))
            errors.append((index, error))
        results.append((each.name, errors))
    if removals:
        try:
            broker.groups.commit(wanted.group_id, dict.fromkeys(removals))
        except KafkaError as refusal:
            broker.note_refusal(f"OffsetDelete of group {wanted.group_id}: {refusal}")
            return request.response(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), topics=[])
    unsafe = await broker.groups.partitions.safe_error(wanted.group_id)
    if unsafe is not ErrorCode.NONE:
        return request.response(error_code=int(unsafe), topics=[])
    return _response(request, results)


def _group_error(broker: Broker, group_id: str) -> ErrorCode:
    group = broker.groups.any_group(group_id)
    if group is None:
        return ErrorCode.NONE if broker.groups.offsets.of_group(group_id) else ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup):
        empty = group.state is GroupState.EMPTY
        if not empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _response(request: Request, results: list[tuple[str, list[tuple[int, ErrorCode]]]]) -> Body:
    kind = apis.response_class(request.api_key).OffsetDeleteResponseTopic
    topics = [
        kind(
            version=request.version,
            name=name,
            partitions=[
                kind.OffsetDeleteResponsePartition(
                    version=request.version, partition_index=index, error_code=int(error)
                )
                for index, error in errors
            ],
        )
        for name, errors in results
    ]
    return request.response(error_code=0, topics=topics)
