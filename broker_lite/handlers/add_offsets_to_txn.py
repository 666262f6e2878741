"""AddOffsetsToTxn v0 to v4; with KIP-890 part 2 the first TxnOffsetCommit replaces it. Absent: nothing."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, partition_of
from sparkonce.broker_lite.coordinators.transaction_messages import LEGACY, Producer
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import producer_error
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol.errors import ErrorCode

PRODUCER_FENCED_FROM = 2


async def handle(broker: Broker, request: Request) -> Body:
    """Add the partition of `__consumer_offsets` that keeps a group, before offsets are committed to it."""
    wanted, partitions = request.message(), broker.transactions.partitions
    error = _offsets_error(broker, request, wanted)
    if error is ErrorCode.NONE:  # a stranger cannot tell by the time it takes what the transaction does
        await broker.transactions.ended(wanted.transactional_id)
        error = partitions.error_of(wanted.transactional_id)
    if error is not ErrorCode.NONE:
        return request.response(error_code=int(error))
    topic = broker.topic(OFFSETS_TOPIC)
    count = broker.config.offsets_topic_num_partitions if topic is None else topic.partition_count
    producer = Producer(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
    place = (OFFSETS_TOPIC, partition_of(wanted.group_id, count))
    now_ms = broker.clock.now_ms()
    decision = broker.transactions.transactions.add_partitions(producer, [place], LEGACY, now_ms)
    error = broker.transactions.carry_out(decision).error
    error = producer_error(error, request.version, PRODUCER_FENCED_FROM)
    unsafe = await partitions.safe_error(wanted.transactional_id)
    return request.response(error_code=int(unsafe or error))


def _offsets_error(broker: Broker, request: Request, wanted: Any) -> ErrorCode:
    transactional_id = ResourceType.TRANSACTIONAL_ID
    if not authorized(broker, request, Operation.WRITE, transactional_id, wanted.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not authorized(broker, request, Operation.READ, ResourceType.GROUP, wanted.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE
