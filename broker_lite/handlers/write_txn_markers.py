"""WriteTxnMarkers, versions 1 to 2: transaction markers, sent by another broker or an administrator's tool.

Version 2 carries the protocol by which the transaction was decided (KIP-1228). Kafka's `kafka-transactions.sh abort`
uses it to end a transaction that no broker coordinates any more. Absent: nothing.
"""

from __future__ import annotations

from typing import Final

from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

TRANSACTION_VERSION_FROM = 2

SAFE_TIMEOUT_MS: Final = 30_000
"""How long markers may take to be replicated; Kafka waits as long as `request.timeout.ms`."""

_Errors = dict[TopicPartition, ErrorCode]


async def handle(broker: Broker, request: Request) -> Body:
    """Write each marker into each of its partitions; answered when they are replicated."""
    wanted = request.message()
    allowed = authorized_on_cluster(broker, request, Operation.ALTER) or authorized_on_cluster(
        broker, request, Operation.CLUSTER_ACTION
    )
    results: list[tuple[int, _Errors]] = []
    waits: list[tuple[_Errors, TopicPartition, int]] = []
    for each in wanted.markers:
        version = each.transaction_version if request.version >= TRANSACTION_VERSION_FROM else 0
        marker = Marker(each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch, version)
        errors: _Errors = {}
        for place in [(topic.name, index) for topic in each.topics for index in topic.partition_indexes]:
            errors[place], end = _write(broker, *place, marker, allowed)
            if end is not None:
                waits.append((errors, place, end))
        results.append((each.producer_id, errors))
    # All are requested before the first is awaited: see `Acknowledgements.safe`.
    promises = [broker.member.safe(broker.member.key(*place), end - 1, SAFE_TIMEOUT_MS) for _, place, end in waits]
    for (errors, place, _), promise in zip(waits, promises, strict=True):
        errors[place] = await promise
    return _response(request, results)


def _response(request: Request, results: list[tuple[int, _Errors]]) -> Body:
    markers = []
    for producer_id, errors in results:
        topics: dict[str, list[tuple[int, int]]] = {}
        for (topic, index), error in errors.items():
            topics.setdefault(topic, []).append((index, int(error)))
        markers.append((producer_id, list(topics.items())))
    return request.response(markers=markers)


def _write(broker: Broker, topic: str, index: int, marker: Marker, allowed: bool) -> tuple[ErrorCode, int | None]:
    """Write one marker; returns the log end offset if it must be replicated."""
    if not allowed:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    try:
        return ErrorCode.NONE, broker.transactions.write_marker(topic, index, marker)
    except KafkaError as error:
        broker.note_refusal(f"WriteTxnMarkers for {topic}-{index}: {error}")
        return error.code, None
