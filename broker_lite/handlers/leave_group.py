"""LeaveGroup v0 to v5 (KIP-345, KIP-800): members leave, or are removed by instance id, from either kind of group."""

from __future__ import annotations

import logging

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.group_coordinator import Group
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

LEAVE_SEVERAL_FROM = 3


async def handle(broker: Broker, request: Request) -> Body:
    """Remove one member (to v2) or several (from v3)."""
    wanted, version = request.message(), request.version
    refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
    if refusal is not ErrorCode.NONE:
        return request.response(error_code=int(refusal), members=[])
    several = version >= LEAVE_SEVERAL_FROM
    leaving = [(m.member_id, m.group_instance_id, m.reason) for m in wanted.members] if several else []
    if not several:
        leaving = [(wanted.member_id, None, None)]
    group = broker.groups.any_group(wanted.group_id)
    results = []
    for member_id, instance_id, reason in leaving:
        error = _leave(broker, group, member_id, instance_id)
        logger.info("group %s: member %s leaves (%s)", wanted.group_id, member_id or instance_id, reason or error.name)
        results.append((member_id, instance_id, error))
    unsafe = await broker.groups.partitions.safe_error(wanted.group_id)
    return _left(request, results) if unsafe is ErrorCode.NONE else request.response(error_code=int(unsafe), members=[])


def _left(request: Request, results: list[tuple[str, str | None, ErrorCode]]) -> Body:
    version = request.version
    if version < LEAVE_SEVERAL_FROM:
        return request.response(error_code=int(results[0][2]))
    types = apis.response_class(request.api_key)
    members = [
        types.MemberResponse(version=version, member_id=each[0], group_instance_id=each[1], error_code=int(each[2]))
        for each in results
    ]
    return request.response(error_code=0, members=members)


def _leave(broker: Broker, group: Group | None, member_id: str, instance_id: str | None) -> ErrorCode:
    if isinstance(group, ConsumerGroup):
        member = group.image.static_member(instance_id) if not member_id else None
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            broker.groups.remove_member(group, member.member_id)
        except KafkaError as refusal:
            return refusal.code
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error, answers = group.leave(member_id, instance_id, broker.clock.monotonic_ms())
    broker.groups.carry_out(group, answers)
    return error
