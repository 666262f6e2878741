"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-279, KIP-320): where a leader epoch ended."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.leader import LedPartition
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

UNKNOWN = (-1, -1)


async def handle(broker: Broker, request: Request) -> Body:
    """Return the end of an epoch for each partition."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key).OffsetForLeaderTopicResult
    topics = []
    for topic in wanted.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(_partition(broker, request, types, topic.topic, each))
            await broker.turns.spend(request, ITEM)
        topics.append(types(version=version, topic=topic.topic, partitions=partitions))
    return request.response(topics=topics)


def _partition(broker: Broker, request: Request, types: Any, topic: str, wanted: Any) -> Any:
    code, (epoch, end_offset) = ErrorCode.NONE, UNKNOWN
    try:
        if not authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        led = broker.leading(topic, wanted.partition)
        led.check_epoch(wanted.current_leader_epoch)
        epoch, end_offset = _end(led, wanted.leader_epoch)
    except KafkaError as error:
        code = error.code
    return types.EpochEndOffset(
        version=request.version,
        error_code=int(code),
        partition=wanted.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def _end(led: LedPartition, epoch: int) -> tuple[int, int]:
    log, latest = led.log, led.log.leader_epochs.latest
    if latest < epoch <= led.leader_epoch:  # without records, the current epoch begins at the log end offset
        return epoch if latest < 0 or epoch == led.leader_epoch else latest, log.log_end_offset
    return log.leader_epochs.end_offset(epoch, log.log_end_offset) or UNKNOWN
