"""DeleteRecords, versions 0 to 2 (KIP-107): a partition begins at a later offset.

With one replica the low watermark is the log's start at once, so nothing waits.
"""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.security.acls import Operation, ResourceType
from broker_lite.security.authorizer import authorized

NO_WATERMARK = -1


def handle(broker: Broker, request: Request) -> Body:
    """Delete what lies before the offsets named; -1 is the high watermark."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key).DeleteRecordsTopicResult
    topics = [
        types(
            version=version,
            name=topic.name,
            partitions=[_partition(broker, request, types, topic.name, each) for each in topic.partitions],
        )
        for topic in wanted.topics
    ]
    return request.response(topics=topics)


def _partition(broker: Broker, request: Request, types: Any, topic: str, wanted: Any) -> Any:
    low_watermark, code = NO_WATERMARK, ErrorCode.NONE
    try:
        if not authorized(broker, request, Operation.DELETE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if broker.is_internal(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
        log = broker.partition(topic, wanted.partition_index)
        if "delete" not in log.config.cleanup_policy and log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} has no cleanup.policy delete")
        low_watermark = log.delete_records(wanted.offset)
    except KafkaError as error:
        code = error.code
    return types.DeleteRecordsPartitionResult(
        version=request.version,
        partition_index=wanted.partition_index,
        low_watermark=low_watermark,
        error_code=int(code),
    )
