"""DescribeClientQuotas v0 and v1 (KIP-546), for ConfigCommand: there are none. Absent: AlterClientQuotas."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
    """List no quota."""
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE_CONFIGS):
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return request.response(error_code=code, error_message=None, entries=None)
    return request.response(error_code=0, error_message="", entries=[])
