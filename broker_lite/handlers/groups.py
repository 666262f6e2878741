"""JoinGroup v0 to v9, SyncGroup v0 to v5, Heartbeat v0 to v4, LeaveGroup v0 to v5: requests to state machine and back.

KIP-394 (two-step join), KIP-345 (static members), KIP-559 (protocol type and name), KIP-800 (reasons, logged).
The protocol of KIP-848: `consumer_groups.py`.
Absent: classic members in its groups, except that LeaveGroup removes its static members by instance id.
"""

from __future__ import annotations

import logging

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.group_messages import Join, JoinAnswer, Sync, SyncAnswer
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import heartbeat_error, join_error, sync_error
from sparkonce.broker_lite.node.coordinated import error_answer
from sparkonce.broker_lite.node.group_answers import group_refusal, send
from sparkonce.broker_lite.node.group_coordinator import Group
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.security.acls import Operation

logger = logging.getLogger(__name__)

REBALANCE_TIMEOUT_FROM = 1
KNOWN_MEMBER_ID_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
LEAVE_SEVERAL_FROM = 3


def handle_join(broker: Broker, request: Request) -> Body | None:
    """Add a member; the answer comes when the group's rebalance is complete."""
    wanted = request.message()
    try:
        refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)
        group = broker.groups.group_to_join(wanted.group_id)
    except KafkaError as error:
        send(JoinAnswer(request, join_error(error.code), wanted.member_id))
        return None
    session_timeout_ms = wanted.session_timeout_ms
    later = request.version >= REBALANCE_TIMEOUT_FROM
    join = Join(
        token=request,
        member_id=wanted.member_id,
        new_member_id=f"{wanted.group_instance_id or request.client_id}-{broker.new_uuid()}",
        group_instance_id=wanted.group_instance_id,
        client_id=request.client_id,
        client_host=f"/{request.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=max(wanted.rebalance_timeout_ms if later else session_timeout_ms, 0),
        protocol_type=wanted.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in wanted.protocols),
        require_known_member_id=request.version >= KNOWN_MEMBER_ID_FROM,
        supports_skip_assignment=request.version >= SKIP_ASSIGNMENT_FROM,
    )
    broker.groups.carry_out(group, group.join(join, broker.clock.monotonic_ms()))
    return None


def handle_sync(broker: Broker, request: Request) -> Body | None:
    """Take the leader's assignment, or wait for it."""
    wanted = request.message()
    group = broker.groups.group(wanted.group_id)
    refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
    if refusal is not ErrorCode.NONE or group is None:
        send(SyncAnswer(request, sync_error(refusal or ErrorCode.UNKNOWN_MEMBER_ID)))
        return None
    sync = Sync(
        token=request,
        generation=wanted.generation_id,
        member_id=wanted.member_id,
        group_instance_id=wanted.group_instance_id,
        protocol_type=wanted.protocol_type,
        protocol_name=wanted.protocol_name,
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in wanted.assignments),
    )
    broker.groups.carry_out(group, group.sync(sync, broker.clock.monotonic_ms()))
    return None


def handle_heartbeat(broker: Broker, request: Request) -> Body | None:
    """Note that a member is alive."""
    wanted = request.message()
    group_id: str = wanted.group_id
    group = broker.groups.group(group_id)
    refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
    error = refusal or ErrorCode.UNKNOWN_MEMBER_ID
    if group is not None and not refusal:
        error = group.heartbeat(
            wanted.member_id, wanted.group_instance_id, wanted.generation_id, broker.clock.monotonic_ms()
        )
        broker.groups.carry_out(group, [])
    body = request.response(error_code=int(heartbeat_error(error)))
    return body if refusal else broker.groups.partitions.answer(request, [group_id], body, error_answer(request))


def handle_leave(broker: Broker, request: Request) -> Body | None:
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
    body = _left(request, results)
    refused = error_answer(request, members=[])
    return broker.groups.partitions.answer(request, [wanted.group_id], body, refused)


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
