"""DescribeProducers version 0: a partition's producers and their open transactions (KIP-664). Absent: nothing."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

_Producer = tuple[int, int, int, int, int, int]
_Partition = tuple[int, int, str | None, list[_Producer]]


async def handle(broker: Broker, request: Request) -> Body:
    """Describe the producers of each partition."""
    topics = []
    for topic in request.message().topics:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(_describe(broker, request, topic.name, index))
            await broker.turns.spend(request, ITEM * (1 + len(partitions[-1][-1])))
        topics.append((topic.name, partitions))
    return request.response(topics=topics)


def _describe(broker: Broker, request: Request, topic: str, index: int) -> _Partition:
    if not authorized(broker, request, Operation.READ, ResourceType.TOPIC, topic):
        return (index, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None, [])
    try:
        entries = broker.leading(topic, index).log.producers.entries()
    except KafkaError as error:
        return (index, int(error.code), error.message or None, [])
    producers = [
        (
            each.producer_id,
            each.epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.coordinator_epoch,
            each.current_transaction_first_offset,
        )
        for each in entries
    ]
    return (index, 0, None, producers)
