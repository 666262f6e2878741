"""ConsumerGroupHeartbeat v0 and v1: heartbeats of members of KIP-848 groups.

KIP-1082 (from v1 on, members generate their ids). Absent: members of the classic protocol in such a group;
racks, which are stored but not used.
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.consumer_group_image import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from sparkonce.broker_lite.coordinators.consumer_group_messages import Heartbeat, HeartbeatAnswer
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

OWN_MEMBER_ID_FROM = 1


async def handle(broker: Broker, request: Request) -> Body:
    """Handle a heartbeat: a member joins, stays, leaves or changes; answer with its assignment."""
    wanted = request.message()
    try:
        _check(broker, request, wanted)
        answer = broker.groups.heartbeat(wanted.group_id, _heartbeat(broker, request, wanted))
    except KafkaError as refusal:
        return request.response(error_code=int(refusal.code), error_message=refusal.message or None)
    settings = broker.groups.settings_of(wanted.group_id)
    body = request.response(
        error_code=0,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=0 if answer.member_epoch < 0 else settings.heartbeat_interval_ms,
        assignment=_assignment(request, answer),
    )
    error = await broker.groups.partitions.safe_error(wanted.group_id)
    return body if error is ErrorCode.NONE else request.response(error_code=int(error))


def _check(broker: Broker, request: Request, wanted: Any) -> None:
    """Reject invalid requests, as Kafka's GroupCoordinatorService does before it looks up the group."""
    refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
    if refusal is not ErrorCode.NONE:
        raise KafkaError(refusal)
    for name in wanted.subscribed_topic_names or ():
        if find_topic(broker, request, Operation.DESCRIBE, name)[1] is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    epoch = wanted.member_epoch
    joins = epoch == JOINING_EPOCH
    problems = {
        "GroupId can't be empty.": not wanted.group_id,
        "MemberId can't be empty.": not wanted.member_id and (request.version >= OWN_MEMBER_ID_FROM or not joins),
        "InstanceId can't be empty.": wanted.instance_id == "",
        "RackId can't be empty.": wanted.rack_id == "",
        "MemberEpoch is invalid.": epoch < STATIC_LEAVING_EPOCH,
        "RebalanceTimeoutMs must be provided in first request.": joins and wanted.rebalance_timeout_ms == -1,
        "TopicPartitions must be empty when (re-)joining.": joins and wanted.topic_partitions != [],
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.": joins
        and wanted.subscribed_topic_names is None
        and _pattern(request, wanted) is None,
        "InstanceId can't be null.": epoch == STATIC_LEAVING_EPOCH and wanted.instance_id is None,
    }
    for text, holds in problems.items():
        if holds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _pattern(request: Request, wanted: Any) -> str | None:
    pattern: str | None = wanted.subscribed_topic_regex if request.version >= OWN_MEMBER_ID_FROM else None
    return pattern


def _heartbeat(broker: Broker, request: Request, wanted: Any) -> Heartbeat:
    names, owned = wanted.subscribed_topic_names, wanted.topic_partitions
    return Heartbeat(
        member_id=wanted.member_id or str(broker.new_uuid()),
        member_epoch=wanted.member_epoch,
        instance_id=wanted.instance_id,
        rack_id=wanted.rack_id,
        rebalance_timeout_ms=wanted.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_pattern=_pattern(request, wanted),
        server_assignor=wanted.server_assignor,
        owned=None if owned is None else {each.topic_id: frozenset(each.partitions) for each in owned},
        client_id=request.client_id,
        client_host=f"/{request.client_host}",
        may_describe=None if broker.authorizer is None else lambda name: _may_match(broker, request, name),
    )


def _may_match(broker: Broker, request: Request, name: str) -> bool:
    """Whether the client's patterns may match a topic (Kafka's filterTopicDescribeAuthorizedTopics)."""
    return authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, name, log_denial=False)


def _assignment(request: Request, answer: HeartbeatAnswer) -> Any:
    if answer.assignment is None or answer.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
        return None
    version = request.version
    kind = apis.response_class(request.api_key).Assignment
    partitions = [
        kind.TopicPartitions(version=version, topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in answer.assignment.items()
    ]
    return kind(version=version, topic_partitions=partitions)
