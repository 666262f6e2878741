"""Heartbeat v0 to v4: a classic member is alive, and learns of a rebalance. KIP-345 (static members)."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import heartbeat_error
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
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
    unsafe = ErrorCode.NONE if refusal else await broker.groups.partitions.safe_error(group_id)
    return request.response(error_code=int(unsafe or heartbeat_error(error)))
