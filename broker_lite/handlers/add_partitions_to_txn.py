"""AddPartitionsToTxn, versions 0 to 5.

Clients use it up to version 3; version 4 and later are for brokers that verify, or add to, several transactions at once
(KIP-890), and need ClusterAction. Clients with KIP-890 part 2 do not send it: their first write to
a partition adds it (`transaction_verification.py`). Absent: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, LEGACY, Producer, TopicPartition
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import producer_error
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode

PRODUCER_FENCED_FROM = 2
BATCHED_FROM = 4
_Errors = dict[TopicPartition, ErrorCode]
_Results = list[tuple[str, list[tuple[int, int]]]]


async def handle(broker: Broker, request: Request) -> Body:
    """Add partitions to transactions, all of a transaction or none; or verify that they are in it."""
    wanted, version = request.message(), request.version
    if version < BATCHED_FROM:
        await broker.transactions.ended(wanted.v3_and_below_transactional_id)
        return await _of_client(broker, request, wanted)
    if not authorized_on_cluster(broker, request, Operation.CLUSTER_ACTION):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), results_by_transaction=[])
    if len(wanted.transactions) == 1:
        await broker.transactions.ended(wanted.transactions[0].transactional_id)
    return await _of_broker(broker, request, wanted)


async def _of_broker(broker: Broker, request: Request, wanted: Any) -> Body:
    results: list[tuple[Any, _Errors]] = []
    for each in wanted.transactions:
        producer = Producer(each.transactional_id, each.producer_id, each.producer_epoch)
        places = _places(each.topics)
        here = broker.transactions.partitions.error_of(each.transactional_id)
        errors: _Errors
        if here is not ErrorCode.NONE:
            errors = dict.fromkeys(places, here)
        elif each.verify_only:
            errors = broker.transactions.transactions.verify_partitions(producer, places)
        else:
            errors = _add(broker, request, producer, places, EPOCH_BUMP)
        results.append((each, errors))

    unsafe = await broker.transactions.partitions.safe([each.transactional_id for each in wanted.transactions])
    told = []
    for each, errors in results:
        refused = unsafe.get(each.transactional_id)
        shown = errors if refused is None else dict.fromkeys(errors, refused)
        told.append((each.transactional_id, _by_topic(each.topics, shown)))
    return request.response(error_code=0, results_by_transaction=told)


async def _of_client(broker: Broker, request: Request, wanted: Any) -> Body:
    name, topics = wanted.v3_and_below_transactional_id, wanted.v3_and_below_topics
    producer = Producer(name, wanted.v3_and_below_producer_id, wanted.v3_and_below_producer_epoch)
    places, partitions = _places(topics), broker.transactions.partitions
    error = partitions.error_of(name)
    if error is ErrorCode.NONE:
        errors = _add(broker, request, producer, places, LEGACY)
        error = await partitions.safe_error(name)
    if error is not ErrorCode.NONE:
        errors = dict.fromkeys(places, error)
    return request.response(results_by_topic_v3_and_below=_by_topic(topics, errors))


def _add(
    broker: Broker, request: Request, producer: Producer, places: list[TopicPartition], client_version: int
) -> _Errors:
    transactional_id = ResourceType.TRANSACTIONAL_ID
    by_client = request.version < BATCHED_FROM
    if by_client and not authorized(broker, request, Operation.WRITE, transactional_id, producer.transactional_id):
        return dict.fromkeys(places, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = {}
    for place in places:
        error = _place_error(broker, request, *place, by_client)
        if error is not ErrorCode.NONE:
            refused[place] = error
    if refused:
        return dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    decision = broker.transactions.transactions.add_partitions(producer, places, client_version, broker.clock.now_ms())
    error = broker.transactions.carry_out(decision).error
    return dict.fromkeys(places, producer_error(error, request.version, PRODUCER_FENCED_FROM))


def _place_error(broker: Broker, request: Request, name: str, index: int, by_client: bool) -> ErrorCode:
    # As in Kafka, whatever a client is allowed: its transaction writes no markers into internal topics.
    if by_client and (
        broker.is_internal(name) or not authorized(broker, request, Operation.WRITE, ResourceType.TOPIC, name)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.topic(name)
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _places(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _by_topic(topics: Iterable[Any], errors: _Errors) -> _Results:
    return [(each.name, [(index, int(errors[each.name, index])) for index in each.partitions]) for each in topics]
