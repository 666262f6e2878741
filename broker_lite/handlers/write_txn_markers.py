"""WriteTxnMarkers, versions 1 to 2: the ends of transactions as another broker or an administrator's tool has them.

Version 2 tells by which protocol the transaction was decided (KIP-1228). Kafka's `kafka-transactions.sh abort` ends a
transaction by it that nobody coordinates any more. Absent: nothing.
"""

from __future__ import annotations

from typing import Any

from broker_lite.coordinators.producer_state import Marker
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.security.acls import Operation
from broker_lite.security.authorizer import authorized_on_cluster

TRANSACTION_VERSION_FROM = 2


def handle(broker: Broker, request: Request) -> Body:
    """Write each marker into each of its partitions."""
    wanted = request.message()
    allowed = authorized_on_cluster(broker, request, Operation.ALTER) or authorized_on_cluster(
        broker, request, Operation.CLUSTER_ACTION
    )
    results = []
    for each in wanted.markers:
        version = each.transaction_version if request.version >= TRANSACTION_VERSION_FROM else 0
        marker = Marker(each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch, version)
        topics = [
            (topic.name, [(index, int(_write(broker, topic.name, index, marker, allowed))) for index in indexes])
            for topic, indexes in _topics(each)
        ]
        results.append((each.producer_id, topics))
    return request.response(markers=results)


def _topics(marker: Any) -> list[tuple[Any, list[int]]]:
    return [(topic, list(topic.partition_indexes)) for topic in marker.topics]


def _write(broker: Broker, topic: str, index: int, marker: Marker, allowed: bool) -> ErrorCode:
    if not allowed:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    try:
        broker.transactions.write_marker(topic, index, marker)
    except KafkaError as error:
        broker.note_refusal(f"WriteTxnMarkers for {topic}-{index}: {error}")
        return error.code
    return ErrorCode.NONE
