"""InitProducerId, versions 0 to 5: a producer id, and for a transactional id the next epoch (KIP-360).

As in Kafka, an idempotent producer that sends it again gets a new id. Absent: version 6, by which a
producer keeps a transaction open over its own restart (KIP-939).
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.transaction_messages import Decision, Producer
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import producer_error
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_any, authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

PRODUCER_FROM = 3
PRODUCER_FENCED_FROM = 4


async def handle(broker: Broker, request: Request) -> Body:
    """Return a producer id and epoch."""
    wanted = request.message()
    name = wanted.transactional_id
    refusal = _refusal(broker, request, name)
    if refusal is not ErrorCode.NONE:
        return request.response(error_code=int(refusal), producer_id=-1, producer_epoch=-1)
    await broker.producer_ids.ready()
    if name is not None:
        await broker.transactions.ended(name)
    try:
        decision = _decide(broker, request, wanted)
    except KafkaError as failure:
        broker.note_refusal(f"InitProducerId: {failure}")
        decision = Decision(failure.code)
    unsafe = ErrorCode.NONE if name is None else await broker.transactions.partitions.safe_error(name)
    if unsafe is not ErrorCode.NONE:
        return request.response(error_code=int(unsafe), producer_id=-1, producer_epoch=-1)
    error = producer_error(decision.error, request.version, PRODUCER_FENCED_FROM)
    return request.response(error_code=int(error), producer_id=decision.producer_id, producer_epoch=decision.epoch)


def _decide(broker: Broker, request: Request, wanted: Any) -> Decision:
    if wanted.transactional_id is None:
        return Decision(ErrorCode.NONE, broker.producer_ids.take(), 0)
    here = broker.transactions.partitions.error_of(wanted.transactional_id)
    if here is not ErrorCode.NONE:
        return Decision(here)
    named = request.version >= PRODUCER_FROM
    producer = Producer(
        wanted.transactional_id, wanted.producer_id if named else -1, wanted.producer_epoch if named else -1
    )
    timeout_ms, now_ms = wanted.transaction_timeout_ms, broker.clock.now_ms()
    decision = broker.transactions.transactions.init_producer_id(producer, timeout_ms, now_ms)
    return broker.transactions.carry_out(decision)


def _refusal(broker: Broker, request: Request, transactional_id: str | None) -> ErrorCode:
    """Return the error, if any: a client that may write to any topic may be idempotent (KIP-679)."""
    if transactional_id is not None:
        if authorized(broker, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.NONE
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if authorized_on_cluster(broker, request, Operation.IDEMPOTENT_WRITE) or authorized_on_any(
        broker, request, Operation.WRITE, ResourceType.TOPIC
    ):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
