"""ListConfigResources v0 and v1 (KIP-1000, KIP-1142), as DescribeConfigs. Absent: clients' metrics, loggers."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.described_settings import ConfigResource
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode

TYPES_FROM = 1


async def handle(broker: Broker, request: Request) -> Body:
    """List the resources of the requested types, or of all."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE_CONFIGS):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), config_resources=[])
    if version < TYPES_FROM:
        return request.response(error_code=0, config_resources=[])
    kinds = set(wanted.resource_types or ConfigResource)
    if not kinds <= set(ConfigResource):
        return request.response(error_code=int(ErrorCode.UNSUPPORTED_VERSION), config_resources=[])
    names = {
        ConfigResource.GROUP: broker.dynamic.groups,
        ConfigResource.BROKER: [str(node_id) for node_id in sorted(broker.member.image.brokers)],
        ConfigResource.TOPIC: [topic.name for topic in broker.topics()],
    }
    types = apis.response_class(request.api_key).ConfigResource
    resources = [
        types(version=version, resource_name=name, resource_type=int(kind))
        for kind, found in names.items()
        if kind in kinds
        for name in found
    ]
    return request.response(error_code=0, config_resources=resources)
