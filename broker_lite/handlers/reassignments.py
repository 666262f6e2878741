"""ElectLeaders v0 to v2, AlterPartitionReassignments v0 and v1, ListPartitionReassignments v0 (KIP-460, KIP-455).

The controller elects and moves. Where there is one broker, it is the preferred leader of all partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.replica_assignments import check_replicas
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM, WRITTEN, Steps
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import Record

PREFERRED, UNCLEAN = 0, 1
TYPES_FROM = 1
FACTOR_FROM = 1


@by_the_controller
def handle_elect(broker: Broker, request: Request) -> Steps:
    """Elect the leaders of partitions; where all are meant, those that need no election are not named."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.ALTER):
        return _elected(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    kind = wanted.election_type if version >= TYPES_FROM else PREFERRED
    if wanted.topic_partitions is None:
        return _elected(request, ErrorCode.NONE, (yield from _elect_all(broker, request, kind)))
    code = ErrorCode.NONE if kind in (PREFERRED, UNCLEAN) else ErrorCode.INVALID_REQUEST
    types = apis.response_class(request.api_key).ReplicaElectionResult.PartitionResult
    results = []
    for topic in wanted.topic_partitions:
        partitions = []
        for index in topic.partitions:
            yield WRITTEN
            error, text = _election(broker, topic.topic, index, kind)
            partitions.append(types(version=version, partition_id=index, error_code=int(error), error_message=text))
        results.append((topic.topic, partitions))
    return _elected(request, code, results)


def _elect_all(broker: Broker, request: Request, kind: int) -> Generator[int, None, list[tuple[str, list[Any]]]]:
    types = apis.response_class(request.api_key).ReplicaElectionResult.PartitionResult
    results = []
    for topic in broker.topics():
        partitions = []
        for index in range(topic.partition_count):
            error, text = _election(broker, topic.name, index, kind)
            needed = error is not ErrorCode.ELECTION_NOT_NEEDED
            yield WRITTEN if needed else ITEM
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


@by_the_controller
def handle_alter(broker: Broker, request: Request) -> Steps:
    """Begin moves, or cancel them."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.ALTER):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), responses=[])
    types = apis.response_class(request.api_key).ReassignableTopicResponse
    may_change_factor = version < FACTOR_FROM or wanted.allow_replication_factor_change
    answers = []
    for topic in wanted.topics:
        partitions = []
        for each in topic.partitions:
            code, text = ErrorCode.NONE, None
            yield WRITTEN
            try:
                _move(broker, topic.name, each, may_change_factor)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    raise
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


def _move(broker: Broker, name: str, wanted: Any, may_change_factor: bool) -> None:
    topic = broker.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= wanted.partition_index < topic.partition_count:
        text = f"Unable to find partition {name}:{wanted.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    target = wanted.replicas
    if target is not None:
        check_replicas(broker, target)
    key = (topic.topic_id, wanted.partition_index)

    def reassign(controller: Controller) -> tuple[list[Record], None]:
        state = controller.image.partition(key)
        if state is not None and target is not None and not may_change_factor:
            now = len(state.replicas) - len(state.adding_replicas)
            if len(target) != now:
                text = f"The replication factor is changed from {now} to {len(target)}"
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        return controller.reassign(key, target), None

    broker.member.controller.decide(reassign)


def handle_list(broker: Broker, request: Request) -> Body:
    """List the moves that are under way, of the partitions asked for or of all."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=None, topics=[])
    asked = None
    if wanted.topics is not None:
        asked = {each.name: frozenset(each.partition_indexes) for each in wanted.topics}
    kind = apis.response_class(request.api_key).OngoingTopicReassignment
    topics = []
    for topic in broker.member.image.topics.values():
        partitions = [
            kind.OngoingPartitionReassignment(
                version=version,
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding_replicas),
                removing_replicas=list(state.removing_replicas),
            )
            for index, state in topic.partitions.items()
            if (state.adding_replicas or state.removing_replicas)
            and (asked is None or index in asked.get(topic.name, ()))
        ]
        if partitions:
            topics.append(kind(version=version, name=topic.name, partitions=partitions))
    return request.response(error_code=0, error_message=None, topics=topics)
