"""ConsumerGroupDescribe v0 and v1 (KIP-848, KIP-1099): groups and their members. Absent: nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.consumer_group_image import ConsumerMember, Owned
from sparkonce.broker_lite.node.authorization import NOT_ASKED, find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized_operations
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode

CONSUMER_MEMBER = 1
"""The type of a member that uses this protocol (KIP-1099)."""


async def handle(broker: Broker, request: Request) -> Body:
    """Describe groups of this protocol."""
    wanted = request.message()
    groups = [_describe(broker, request, wanted, group_id) for group_id in wanted.group_ids]
    refusals = await broker.groups.partitions.safe(wanted.group_ids)
    unsafe = {each: _not_described(request, each, error) for each, error in refusals.items()}
    return request.response(groups=[unsafe.get(each.group_id, each) for each in groups])


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
    """Return the names of partitions; those of deleted topics are omitted."""
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
