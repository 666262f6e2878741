"""CreatePartitions, versions 0 to 3 (KIP-195); forwarded to the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.replica_assignments import MAX_RECORDS, check_replicas, too_many_records
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM, WRITTEN
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import MetadataRecord


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Add partitions to topics, each on its own, unless all together are too many.

    Kafka 4.3 creates as many as fit, and then answers UNKNOWN_SERVER_ERROR; clients cannot recover from that.
    """
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key).CreatePartitionsTopicResult
    counts = Counter(each.name for each in wanted.topics)
    results = []
    too_many = _count(broker, wanted.topics) > MAX_RECORDS
    for each in {each.name: each for each in wanted.topics}.values():
        code, text = ErrorCode.NONE, None
        try:
            if too_many:
                raise too_many_records()
            if counts[each.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            await _create(broker, request, each, wanted.validate_only)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            code, text = error.code, error.message or None
        results.append(types(version=version, name=each.name, error_code=int(code), error_message=text))
    return request.response(results=results)


def _count(broker: Broker, wanted: Iterable[Any]) -> int:
    """Return how many partitions would be created."""
    topics = ((each, broker.topic(each.name)) for each in wanted)
    return sum(max(each.count - topic.partition_count, 0) for each, topic in topics if topic is not None)


async def _create(broker: Broker, request: Request, wanted: Any, validate_only: bool) -> None:
    await broker.turns.spend(request, ITEM)
    if not authorized(broker, request, Operation.ALTER, ResourceType.TOPIC, wanted.name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = broker.logs.check_new_partitions(wanted.name, wanted.count)
    if wanted.assignments is not None:
        more = wanted.count - topic.partition_count
        if len(wanted.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {more} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        for each in wanted.assignments:
            check_replicas(broker.member.image.brokers, each.broker_ids)
    if not validate_only:
        replicas = [tuple(each.broker_ids) for each in wanted.assignments or ()]
        await _make(broker, request, topic, wanted.count, replicas)


async def _make(
    broker: Broker, request: Request, topic: Topic, count: int, replicas: Sequence[tuple[int, ...]]
) -> None:
    role, name, topic_id = broker.member.controller, topic.name, topic.topic_id
    await broker.turns.spend(request, WRITTEN)
    more = range(topic.partition_count, count)
    await broker.turns.do(request, role.prepare(name, topic_id, more, topic.settings))

    def create(controller: Controller) -> tuple[list[MetadataRecord], None]:
        return controller.create_partitions(name, count, replicas), None

    try:
        await broker.turns.do(request, role.decide_together([create]))
    finally:
        role.end_preparation(name, topic_id)
