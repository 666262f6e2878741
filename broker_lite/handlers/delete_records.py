"""DeleteRecords v0 to v2 (KIP-107): moves log starts; answered once followers have moved them (`deletions.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import WRITTEN
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions

NO_WATERMARK = -1


async def handle(broker: Broker, request: Request) -> Body:
    """Delete the records before the given offsets; -1 is the high watermark.

    A client that goes ends this between two partitions.
    """
    wanted = request.message()
    deleted: _All = []
    for topic in wanted.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(_delete(broker, request, topic.name, each))
            await broker.turns.spend(request, WRITTEN)
        deleted.append((topic.name, partitions))
    await _wait_for_followers(broker.cluster, deleted, wanted.timeout_ms)
    return _answer(request, deleted)


@dataclass(slots=True)
class _Deleted:
    """The result for one partition."""

    index: int
    low_watermark: int = NO_WATERMARK
    code: ErrorCode = ErrorCode.NONE
    has_followers: bool = False


_All = list[tuple[str, list[_Deleted]]]


def _answer(request: Request, deleted: _All) -> Body:
    version = request.version
    types = apis.response_class(request.api_key).DeleteRecordsTopicResult
    topics = [
        types(
            version=version,
            name=name,
            partitions=[
                types.DeleteRecordsPartitionResult(
                    version=version,
                    partition_index=each.index,
                    low_watermark=each.low_watermark,
                    error_code=int(each.code),
                )
                for each in partitions
            ],
        )
        for name, partitions in deleted
    ]
    return request.response(topics=topics)


async def _wait_for_followers(cluster: ClusterPartitions, deleted: _All, timeout_ms: int) -> None:
    """Wait until the followers have deleted, too; all at the same time."""
    waits = []
    for name, partitions in deleted:
        for each in partitions:
            if each.has_followers:
                try:
                    waits.append((each, cluster.deleted(name, each.index, each.low_watermark, timeout_ms)))
                except KafkaError as error:  # leadership moved since the turn in which it was deleted here
                    each.code, each.low_watermark = error.code, NO_WATERMARK
    for each, promise in waits:
        each.code, each.low_watermark = await promise


def _delete(broker: Broker, request: Request, topic: str, wanted: Any) -> _Deleted:
    """Advance the log start offset here."""
    try:
        if not authorized(broker, request, Operation.DELETE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if broker.is_internal(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
        led = broker.leading(topic, wanted.partition_index)
        log = led.log
        if "delete" not in log.config.cleanup_policy and log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} has no cleanup.policy delete")
        low_watermark = log.delete_records(wanted.offset)
        return _Deleted(wanted.partition_index, low_watermark, has_followers=led.replicas is not None)
    except KafkaError as error:
        return _Deleted(wanted.partition_index, code=error.code)
