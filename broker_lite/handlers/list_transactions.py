"""ListTransactions versions 0 to 2: the transactional ids of a coordinator (KIP-664).

Filters: state, producer id, age (KIP-994), and an RE2 pattern (KIP-1152).
Absent: nothing.
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.topic_patterns import PatternError, matching
from sparkonce.broker_lite.coordinators.transaction_messages import Transaction, TransactionState
from sparkonce.broker_lite.node.authorization import may_see_transactional_id
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol.errors import ErrorCode

STATES = frozenset(state.value for state in TransactionState)
DURATION_FROM = 1
PATTERN_FROM = 2


async def handle(broker: Broker, request: Request) -> Body:
    """List the transactional ids coordinated here that match all filters."""
    wanted, partitions = request.message(), broker.transactions.partitions
    nothing: dict[str, list[object]] = {"unknown_state_filters": [], "transaction_states": []}
    if partitions.is_loading:
        return request.response(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), **nothing)
    now_ms = broker.clock.now_ms()
    found = [each for each in broker.transactions.transactions.all() if _passes(each, wanted, request.version, now_ms)]
    pattern = wanted.transactional_id_pattern if request.version >= PATTERN_FROM else None
    if pattern:
        try:
            names = matching(pattern, [each.transactional_id for each in found])
        except PatternError as error:
            broker.note_refusal(f"ListTransactions by {request.client_id}@{request.client_host}: {error}")
            return request.response(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION), **nothing)
        found = [each for each in found if each.transactional_id in names]
    states = [
        (each.transactional_id, each.producer_id, each.state.value)
        for each in found
        if may_see_transactional_id(broker, request, each.transactional_id, named=False)
    ]
    unknown = [state for state in wanted.state_filters if state not in STATES]
    unsafe = await partitions.all_safe()  # also for transactions that are no longer as the filters say
    if unsafe is not ErrorCode.NONE:
        return request.response(error_code=int(unsafe), **nothing)
    return request.response(error_code=0, unknown_state_filters=unknown, transaction_states=states)


def _passes(known: Transaction, wanted: Any, version: int, now_ms: int) -> bool:
    longer_than_ms = wanted.duration_filter if version >= DURATION_FROM else -1
    return (
        (not wanted.state_filters or known.state.value in wanted.state_filters)
        and (not wanted.producer_id_filters or known.producer_id in wanted.producer_id_filters)
        and (longer_than_ms < 0 or now_ms - known.start_ms > longer_than_ms)
    )
