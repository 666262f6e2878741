"""AlterReplicaLogDirs, versions 1 and 2 (KIP-113): a broker has one log directory, so replicas never move.

Tools replay plans that name it. A move to it succeeds; any other directory is answered with LOG_DIR_NOT_FOUND, as in
Kafka, where the directory is checked before the partition. For a partition that is named twice the last entry counts.
"""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
    """Return for each replica whether it is in the requested directory."""
    wanted, version = request.message(), request.version
    allowed = authorized_on_cluster(broker, request, Operation.ALTER)
    moves = {
        (topic.name, index): each.path for each in wanted.dirs for topic in each.topics for index in topic.partitions
    }
    kind = apis.response_class(request.api_key).AlterReplicaLogDirTopicResult
    topics: dict[str, list[object]] = {}
    for (name, index), path in moves.items():
        error = _error(broker, name, index, path) if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        topics.setdefault(name, []).append(
            kind.AlterReplicaLogDirPartitionResult(version=version, partition_index=index, error_code=int(error))
        )
    results = [kind(version=version, topic_name=name, partitions=found) for name, found in topics.items()]
    return request.response(results=results)


def _error(broker: Broker, name: str, index: int, path: str) -> ErrorCode:
    if path != broker.logs.log_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.topic(name)
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if index in topic.logs else ErrorCode.REPLICA_NOT_AVAILABLE
