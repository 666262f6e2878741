"""ConsumerGroupHeartbeat v0 and v1, ConsumerGroupDescribe v0 and v1: the protocol of KIP-848.

KIP-1082 (from v1 on members make up their ids themselves), KIP-1099 (the members' type in a description).
Absent: members of the classic protocol in such a group; racks, which are kept but do not move anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.consumer_group_image import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    Owned,
)
from sparkonce.broker_lite.coordinators.consumer_group_messages import Heartbeat, HeartbeatAnswer
from sparkonce.broker_lite.node.authorization import NOT_ASKED, find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.coordinated import Refusals, error_answer
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_operations

OWN_MEMBER_ID_FROM = 1
CONSUMER_MEMBER = 1
"""The type of a member that uses this protocol (KIP-1099)."""


def handle_heartbeat(broker: Broker, request: Request) -> Body | None:
    """Handle a heartbeat: a member is alive, joins, leaves or has changed; answer with what it shall own."""
    wanted = request.message()
    try:
        _check(broker, request, wanted)
        answer = broker.groups.heartbeat(wanted.group_id, _heartbeat(broker, request, wanted))
    except KafkaError as error:
        return request.response(error_code=int(error.code), error_message=error.message or None)
    settings = broker.groups.settings_of(wanted.group_id)
    body = request.response(
        error_code=0,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=0 if answer.member_epoch < 0 else settings.heartbeat_interval_ms,
        assignment=_told(request, answer),
    )
    return broker.groups.partitions.answer(request, [wanted.group_id], body, error_answer(request))


def _check(broker: Broker, request: Request, wanted: Any) -> None:
    """Refuse invalid requests, as Kafka's GroupCoordinatorService does before it looks at the group."""
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


def _told(request: Request, answer: HeartbeatAnswer) -> Any:
    if answer.assignment is None or answer.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
        return None
    version = request.version
    kind = _assignment_class(request)
    partitions = [
        kind.TopicPartitions(version=version, topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in answer.assignment.items()
    ]
    return kind(version=version, topic_partitions=partitions)


def _assignment_class(request: Request) -> Any:
    return apis.response_class(request.api_key).Assignment


def handle_describe(broker: Broker, request: Request) -> Body | None:
    """Describe groups of this protocol."""
    wanted = request.message()
    groups = [_describe(broker, request, wanted, group_id) for group_id in wanted.group_ids]

    def refused(refusals: Refusals) -> Body:
        unsafe = {each: _not_described(request, each, error) for each, error in refusals.items()}
        return request.response(groups=[unsafe.get(each.group_id, each) for each in groups])

    return broker.groups.partitions.answer(request, wanted.group_ids, request.response(groups=groups), refused)


def _describe(broker: Broker, request: Request, wanted: Any, group_id: str) -> Any:
    error = group_refusal(broker, request, Operation.DESCRIBE, group_id)
    group = broker.groups.consumer_group(group_id)
    if error is not ErrorCode.NONE:
        return _not_described(request, group_id, error)
    if group is None:
        return _not_described(
            request, group_id, ErrorCode.GROUP_ID_NOT_FOUND, broker.groups.why_not(group_id, "consumer")
        )
    if not _may_see_topics(broker, request, group):
        text = "the group has topics that the client may not see"
        return _not_described(request, group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
    operations = NOT_ASKED
    if wanted.include_authorized_operations:
        operations = authorized_operations(broker, request, ResourceType.GROUP, group_id)
    kind, image = _group_class(request), group.image
    return kind(
        version=request.version,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=image.epoch,
        assignment_epoch=image.target_epoch,
        assignor_name=group.assignor,
        members=[_member(broker, request, kind, group, member) for member in image.members.values()],
        authorized_operations=operations,
    )


def _not_described(request: Request, group_id: str, error: ErrorCode, text: str | None = None) -> Any:
    return _group_class(request)(
        version=request.version,
        error_code=int(error),
        error_message=text,
        group_id=group_id,
        group_state="",
        assignor_name="",
        members=[],
    )


def _group_class(request: Request) -> Any:
    return apis.response_class(request.api_key).DescribedGroup


def _may_see_topics(broker: Broker, request: Request, group: ConsumerGroup) -> bool:
    if broker.authorizer is None:
        return True
    image = group.image
    names = {name for member in image.members.values() for name in image.subscribed_topics(member)}
    forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return all(find_topic(broker, request, Operation.DESCRIBE, name)[1] is not forbidden for name in names)


def _member(broker: Broker, request: Request, kind: Any, group: ConsumerGroup, member: ConsumerMember) -> Any:
    target = group.image.targets.get(member.member_id, {})
    return kind.Member(
        version=request.version,
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_pattern or None,
        assignment=_described(broker, request, kind, member.assigned),
        target_assignment=_described(broker, request, kind, target),
        member_type=CONSUMER_MEMBER,
    )


def _described(
    broker: Broker, request: Request, kind: Any, partitions: Owned | Mapping[uuid.UUID, Iterable[int]]
) -> Any:
    """Name the partitions; those of a deleted topic are left out."""
    assignment = kind.Member.Assignment
    version = request.version
    named = []
    for topic_id, indexes in partitions.items():
        topic = broker.topic_by_id(topic_id)
        if topic is not None:
            named.append(
                assignment.TopicPartitions(
                    version=version, topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes)
                )
            )
    return assignment(version=version, topic_partitions=named)
