"""JoinGroup v0 to v9, SyncGroup v0 to v5, Heartbeat v0 to v4, LeaveGroup v0 to v5: requests to state machine and back.

KIP-394 (two-step join), KIP-345 (static members), KIP-559 (protocol type and name), KIP-800 (reasons, logged).
Absent: the protocol of KIP-848.
"""

from __future__ import annotations

import logging
from typing import Any

from broker_lite.coordinators.group_messages import Answer, Join, JoinAnswer, Sync, SyncAnswer
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

REBALANCE_TIMEOUT_FROM = 1
KNOWN_MEMBER_ID_FROM = 4
NULL_PROTOCOL_NAME_FROM = 7
SKIP_ASSIGNMENT_FROM = 9
LEAVE_SEVERAL_FROM = 3


def handle_join(broker: Broker, request: Request) -> Body | None:
    """Take a member in; the answer comes when the group's rebalance is complete."""
    wanted = request.message()
    try:
        group = broker.groups.group_to_join(wanted.group_id)
    except KafkaError as error:
        send(JoinAnswer(request, error.code, wanted.member_id))
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
    broker.groups.carry_out(group, group.join(join, broker.clock.monotonic_ms()), send)
    return None


def handle_sync(broker: Broker, request: Request) -> Body | None:
    """Take the leader's assignment, or wait for it."""
    wanted = request.message()
    group = broker.groups.group(wanted.group_id)
    if group is None:
        send(SyncAnswer(request, ErrorCode.UNKNOWN_MEMBER_ID))
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
    broker.groups.carry_out(group, group.sync(sync, broker.clock.monotonic_ms()), send)
    return None


def handle_heartbeat(broker: Broker, request: Request) -> Body:
    """Note that a member is alive."""
    wanted = request.message()
    group = broker.groups.group(wanted.group_id)
    error = ErrorCode.UNKNOWN_MEMBER_ID
    if group is not None:
        error = group.heartbeat(
            wanted.member_id, wanted.group_instance_id, wanted.generation_id, broker.clock.monotonic_ms()
        )
        broker.groups.carry_out(group, [], send)
    return request.response(error_code=int(error))


def handle_leave(broker: Broker, request: Request) -> Body:
    """Let one member (to v2) or several (from v3) go."""
    wanted, version = request.message(), request.version
    several = version >= LEAVE_SEVERAL_FROM
    leaving = [(m.member_id, m.group_instance_id, m.reason) for m in wanted.members] if several else []
    if not several:
        leaving = [(wanted.member_id, None, None)]
    group = broker.groups.group(wanted.group_id)
    results = []
    for member_id, instance_id, reason in leaving:
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error, answers = group.leave(member_id, instance_id, broker.clock.monotonic_ms())
            logger.info(
                "group %s: member %s leaves (%s)", wanted.group_id, member_id or instance_id, reason or error.name
            )
            broker.groups.carry_out(group, answers, send)
        results.append((member_id, instance_id, error))
    if not several:
        return request.response(error_code=int(results[0][2]))
    types = apis.response_class(request.api_key)
    members = [
        types.MemberResponse(version=version, member_id=each[0], group_instance_id=each[1], error_code=int(each[2]))
        for each in results
    ]
    return request.response(error_code=0, members=members)


def send(answer: Answer) -> None:
    """Send a state machine's answer to the request that waits for it."""
    request = answer.token
    assert isinstance(request, Request)
    fields = _join_fields(answer, request) if isinstance(answer, JoinAnswer) else _sync_fields(answer)
    request.answer(request.response(**fields))


def _join_fields(answer: JoinAnswer, request: Request) -> dict[str, Any]:
    version = request.version
    types = apis.response_class(request.api_key)
    members = [
        types.JoinGroupResponseMember(version=version, member_id=member_id, group_instance_id=instance, metadata=data)
        for member_id, instance, data in answer.members
    ]
    name = answer.protocol_name
    return {
        "error_code": int(answer.error),
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": name if name is not None or version >= NULL_PROTOCOL_NAME_FROM else "",
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": members,
    }


def _sync_fields(answer: SyncAnswer) -> dict[str, Any]:
    return {
        "error_code": int(answer.error),
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
