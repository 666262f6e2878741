"""JoinGroup v0 to v9 (KIP-394, KIP-345, KIP-559, KIP-800). Absent: classic members in groups of KIP-848."""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.group_messages import Answer, Join, JoinAnswer
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import join_error
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.group_responses import encoded, response
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

REBALANCE_TIMEOUT_FROM = 1
KNOWN_MEMBER_ID_FROM = 4
SKIP_ASSIGNMENT_FROM = 9


async def handle(broker: Broker, request: Request) -> Body:
    """Add a member; the answer comes when the group's rebalance is complete."""
    wanted = request.message()
    try:
        refusal = group_refusal(broker, request, Operation.READ, wanted.group_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)
        group = broker.groups.group_to_join(wanted.group_id)
    except KafkaError as error:
        return encoded(request, JoinAnswer(None, join_error(error.code), wanted.member_id))
    session_timeout_ms = wanted.session_timeout_ms
    later = request.version >= REBALANCE_TIMEOUT_FROM
    answer: Promise[Answer] = Promise()
    join = Join(
        token=answer,
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
    group_id = wanted.group_id
    request.release_body()
    del wanted  # nobody needs the request for as long as a rebalance may take
    broker.groups.carry_out(group, group.join(join, broker.clock.monotonic_ms()))
    return await response(broker.groups.partitions, request, group_id, answer)
