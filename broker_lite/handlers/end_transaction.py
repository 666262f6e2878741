"""EndTxn, versions 0 to 5; version 5 returns a new epoch for the producer's next transaction (KIP-890 part 2).

The response is sent when the decision is in the log, and replicated in a cluster; a standalone broker has written the
markers by then, up to a limit. Any client that knows producer id and epoch may decide, as in Kafka, for external
two-phase commit. Absent: nothing.
"""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, LEGACY, Decision, Producer
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import producer_error
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

PRODUCER_FENCED_FROM = 2
EPOCH_BUMP_FROM = 5


async def handle(broker: Broker, request: Request) -> Body:
    """Commit or abort a transaction."""
    wanted, version = request.message(), request.version
    if not authorized(broker, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, wanted.transactional_id):
        return request.response(error_code=int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    here = broker.transactions.partitions.error_of(wanted.transactional_id)
    if here is not ErrorCode.NONE:
        return request.response(error_code=int(here))
    try:
        decision = broker.transactions.transactions.end(
            Producer(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch),
            wanted.committed,
            EPOCH_BUMP if version >= EPOCH_BUMP_FROM else LEGACY,
            broker.clock.now_ms(),
        )
    except KafkaError as refused:
        broker.note_refusal(f"EndTxn of {wanted.transactional_id}: {refused}")
        decision = Decision(refused.code)
    decision = broker.transactions.carry_out(decision)
    unsafe = await broker.transactions.partitions.safe_error(wanted.transactional_id)
    if unsafe is not ErrorCode.NONE:
        return request.response(error_code=int(unsafe))
    error = producer_error(decision.error, version, PRODUCER_FENCED_FROM)
    return request.response(error_code=int(error), producer_id=decision.producer_id, producer_epoch=decision.epoch)
