"""AlterPartitionReassignments v0 and v1 (KIP-455): the controller begins or cancels reassignments. Absent: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.replica_assignments import check_replicas
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import WRITTEN
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import MetadataRecord

FACTOR_FROM = 1


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Begin or cancel reassignments."""
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
            await broker.turns.spend(request, WRITTEN)
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
        check_replicas(broker.member.image.brokers, target)
    key = (topic.topic_id, wanted.partition_index)

    def reassign(controller: Controller) -> tuple[list[MetadataRecord], None]:
        state = controller.image.partition(key)
        if state is not None and target is not None and not may_change_factor:
            now = len(state.replicas) - len(state.adding_replicas)
            if len(target) != now:
                text = f"The replication factor is changed from {now} to {len(target)}"
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        return controller.reassign(key, target), None

    broker.member.controller.decide(reassign)
