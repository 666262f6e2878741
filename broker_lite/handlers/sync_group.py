"""SyncGroup v0 to v5 (KIP-345, KIP-559): the leader sends the assignments, every member gets its own."""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.group_messages import Answer, Sync, SyncAnswer
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import sync_error
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.group_responses import encoded, response
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
    """Store the leader's assignments, or wait for them."""
    wanted = request.message()
    group = broker.groups.group(wanted.group_id)
    refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
    if refusal is not ErrorCode.NONE or group is None:
        return encoded(request, SyncAnswer(None, sync_error(refusal or ErrorCode.UNKNOWN_MEMBER_ID)))
    answer: Promise[Answer] = Promise()
    sync = Sync(
        token=answer,
        generation=wanted.generation_id,
        member_id=wanted.member_id,
        group_instance_id=wanted.group_instance_id,
        protocol_type=wanted.protocol_type,
        protocol_name=wanted.protocol_name,
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in wanted.assignments),
    )
    group_id = wanted.group_id
    request.release_body()
    del wanted  # nobody needs the request for as long as the leader may take
    broker.groups.carry_out(group, group.sync(sync, broker.clock.monotonic_ms()))
    return await response(broker.groups.partitions, request, group_id, answer)
