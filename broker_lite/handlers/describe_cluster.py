"""DescribeCluster, versions 0 to 2 (KIP-700, KIP-919)."""

from __future__ import annotations

from sparkonce.broker_lite.node import cluster_view
from sparkonce.broker_lite.node.authorization import NOT_ASKED, as_set, cluster_operations
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode

BROKER_ENDPOINTS = 1


async def handle(broker: Broker, request: Request) -> Body:
    """Describe the cluster; controllers have no endpoints of their own."""
    wanted, version = request.message(), request.version
    if wanted.endpoint_type != BROKER_ENDPOINTS:
        return request.response(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message="only brokers can be described here",
            endpoint_type=wanted.endpoint_type,
            cluster_id=broker.cluster_id,
            brokers=[],
        )
    kind = apis.response_class(request.api_key).DescribeClusterBroker
    brokers = [
        kind(version=version, broker_id=each.node_id, host=each.host, port=each.port, rack=None, is_fenced=False)
        for each in cluster_view.nodes(broker.member, request)
    ]
    operations = NOT_ASKED
    if wanted.include_cluster_authorized_operations:
        operations = cluster_operations(broker, request)
    return request.response(
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=broker.member.image.controller_id,
        brokers=brokers,
        authorized_operations=as_set(operations),
    )
