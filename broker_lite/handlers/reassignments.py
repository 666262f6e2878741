"""ElectLeaders v0 to v2, AlterPartitionReassignments v0 and v1, ListPartitionReassignments v0 (KIP-460, KIP-455).

There is one broker. It leads all partitions and is the preferred leader of each, so no election is needed; moving a
partition to where it is succeeds, any other move is refused, and none is ever under way.
"""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.create_partitions import check_replicas
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.security.acls import Operation
from broker_lite.security.authorizer import authorized_on_cluster

PREFERRED, UNCLEAN = 0, 1
TYPES_FROM = 1
FACTOR_FROM = 1


def handle_elect(broker: Broker, request: Request) -> Body:
    """Say of each partition named that no election is needed; where all are meant, those are not even named."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.ALTER):
        return _elected(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    if wanted.topic_partitions is None:
        return _elected(request, ErrorCode.NONE, [(topic.name, []) for topic in broker.topics()])
    kind = wanted.election_type if version >= TYPES_FROM else PREFERRED
    code = ErrorCode.NONE if kind in (PREFERRED, UNCLEAN) else ErrorCode.INVALID_REQUEST
    types = apis.response_class(request.api_key).ReplicaElectionResult.PartitionResult
    results = []
    for topic in wanted.topic_partitions:
        partitions = []
        for index in topic.partitions:
            error, text = _election(broker, topic.topic, index, kind)
            partitions.append(types(version=version, partition_id=index, error_code=int(error), error_message=text))
        results.append((topic.topic, partitions))
    return _elected(request, code, results)


def _election(broker: Broker, name: str, index: int, kind: int) -> tuple[ErrorCode, str]:
    topic = broker.topic(name)
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."


def _elected(request: Request, code: ErrorCode, results: list[tuple[str, list[Any]]]) -> Body:
    version, types = request.version, apis.response_class(request.api_key).ReplicaElectionResult
    elections = [types(version=version, topic=name, partition_result=found) for name, found in results]
    error = {"error_code": int(code)} if version >= TYPES_FROM else {}
    return request.response(replica_election_results=elections, **error)


def handle_alter(broker: Broker, request: Request) -> Body:
    """Judge each move: to this broker alone, which is done already, or refused."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.ALTER):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), responses=[])
    types = apis.response_class(request.api_key).ReassignableTopicResponse
    answers = []
    for topic in wanted.topics:
        partitions = []
        for each in topic.partitions:
            code, text = ErrorCode.NONE, None
            try:
                _move(broker, topic.name, each)
            except KafkaError as error:
                code, text = error.code, error.message or None
            partitions.append(
                types.ReassignablePartitionResponse(
                    version=version, partition_index=each.partition_index, error_code=int(code), error_message=text
                )
            )
        answers.append(types(version=version, name=topic.name, partitions=partitions))
    factor = (
        {"allow_replication_factor_change": wanted.allow_replication_factor_change} if version >= FACTOR_FROM else {}
    )
    return request.response(error_code=0, error_message=None, responses=answers, **factor)


def _move(broker: Broker, name: str, wanted: Any) -> None:
    topic = broker.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= wanted.partition_index < topic.partition_count:
        text = f"Unable to find partition {name}:{wanted.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if wanted.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(broker, wanted.replicas)


def handle_list(broker: Broker, request: Request) -> Body:
    """List no move."""
    allowed = authorized_on_cluster(broker, request, Operation.DESCRIBE)
    code = ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return request.response(error_code=int(code), error_message=None, topics=[])
