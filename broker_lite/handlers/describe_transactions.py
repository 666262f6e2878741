"""DescribeTransactions version 0: the coordinator's state of transactional ids (KIP-664). Absent: nothing."""

from __future__ import annotations

from sparkonce.broker_lite.node.authorization import may_see_transactional_id
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol.errors import ErrorCode

_State = tuple[int, str, str, int, int, int, int, list[tuple[str, list[int]]]]


async def handle(broker: Broker, request: Request) -> Body:
    """Describe transactional ids, with those partitions that the client may see."""
    wanted, partitions = request.message().transactional_ids, broker.transactions.partitions
    states = []
    seen_in: dict[str, int | None] = {}
    for each in wanted:
        state = _describe(broker, request, each)
        if state[0] in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            seen_in[each] = partitions.epoch_now(each)
        states.append((each, state))
        await broker.turns.spend(request, ITEM)
    unsafe = await partitions.safe_since(seen_in)
    told = [_unknown(each, unsafe[each]) if each in unsafe else state for each, state in states]
    return request.response(transaction_states=told)


def _describe(broker: Broker, request: Request, transactional_id: str) -> _State:
    if not may_see_transactional_id(broker, request, transactional_id):
        return _unknown(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return _unknown(transactional_id, ErrorCode.INVALID_REQUEST)
    here = broker.transactions.partitions.error_of(transactional_id)
    if here is not ErrorCode.NONE:
        return _unknown(transactional_id, here)
    known = broker.transactions.transactions.get(transactional_id)
    if known is None:
        return _unknown(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(known.partitions):
        if authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(index)
    return (
        0,
        transactional_id,
        known.state.value,
        known.timeout_ms,
        known.start_ms,
        known.producer_id,
        known.epoch,
        list(topics.items()),
    )


def _unknown(transactional_id: str, error: ErrorCode) -> _State:
    return (int(error), transactional_id, "", 0, 0, 0, 0, [])
