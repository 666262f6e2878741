"""ElectLeaders v0 to v2 (KIP-460): preferred and unclean elections by the controller. Absent: nothing."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM, WRITTEN
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = 0, 1
TYPES_FROM = 1


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Elect the leaders of partitions; a request for all omits those that need no election from the response."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.ALTER):
        return _elected(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    kind = wanted.election_type if version >= TYPES_FROM else PREFERRED
    if wanted.topic_partitions is None:
        return _elected(request, ErrorCode.NONE, await _elect_all(broker, request, kind))
    code = ErrorCode.NONE if kind in (PREFERRED, UNCLEAN) else ErrorCode.INVALID_REQUEST
    types = apis.response_class(request.api_key).ReplicaElectionResult.PartitionResult
    results = []
    for topic in wanted.topic_partitions:
        partitions = []
        for index in topic.partitions:
            await broker.turns.spend(request, WRITTEN)
            error, text = _election(broker, topic.topic, index, kind)
            partitions.append(types(version=version, partition_id=index, error_code=int(error), error_message=text))
        results.append((topic.topic, partitions))
    return _elected(request, code, results)


async def _elect_all(broker: Broker, request: Request, kind: int) -> list[tuple[str, list[Any]]]:
    types = apis.response_class(request.api_key).ReplicaElectionResult.PartitionResult
    results = []
    for topic in broker.topics():
        partitions = []
        for index in range(topic.partition_count):
            error, text = _election(broker, topic.name, index, kind)
            needed = error is not ErrorCode.ELECTION_NOT_NEEDED
            await broker.turns.spend(request, WRITTEN if needed else ITEM)
            if needed:
                partitions.append(
                    types(version=request.version, partition_id=index, error_code=int(error), error_message=text)
                )
        results.append((topic.name, partitions))
    return results


def _election(broker: Broker, name: str, index: int, kind: int) -> tuple[ErrorCode, str | None]:
    topic = broker.topic(name)
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    key = (topic.topic_id, index)
    try:
        broker.member.controller.decide(lambda controller: (controller.elect(key, unclean=kind == UNCLEAN), None))
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return error.code, error.message
    return ErrorCode.NONE, None


def _elected(request: Request, code: ErrorCode, results: list[tuple[str, list[Any]]]) -> Body:
    version, types = request.version, apis.response_class(request.api_key).ReplicaElectionResult
    elections = [types(version=version, topic=name, partition_result=found) for name, found in results]
    error = {"error_code": int(code)} if version >= TYPES_FROM else {}
    return request.response(replica_election_results=elections, **error)
