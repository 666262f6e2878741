"""FindCoordinator v0 to v6 and DescribeCluster v0 to v2: this broker is all there is."""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.authorization import NOT_ASKED, as_set, cluster_operations
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode
from broker_lite.security.acls import Operation, ResourceType
from broker_lite.security.authorizer import authorized

GROUP_KEY = 0
TRANSACTION_KEY = 1
SEVERAL_KEYS_FROM = 4
BROKER_ENDPOINTS = 1


def handle_find_coordinator(broker: Broker, request: Request) -> Body:
    """Name this broker as the coordinator of every group and transactional id; share groups (KIP-932) have none."""
    wanted, version = request.message(), request.version
    if version < SEVERAL_KEYS_FROM:
        return request.response(**_coordinator(broker, request, wanted.key_type, wanted.key))
    kind = apis.response_class(request.api_key).Coordinator
    keys = wanted.coordinator_keys or ()
    return request.response(
        coordinators=[
            kind(version=version, key=key, **_coordinator(broker, request, wanted.key_type, key)) for key in keys
        ]
    )


_KINDS = {
    GROUP_KEY: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION_KEY: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def _coordinator(broker: Broker, request: Request, key_type: int, key: str) -> dict[str, Any]:
    if key_type not in _KINDS:
        return _no_coordinator(ErrorCode.INVALID_REQUEST, "this broker coordinates groups and transactions only")
    resource_type, refusal = _KINDS[key_type]
    if not authorized(broker, request, Operation.DESCRIBE, resource_type, key):
        return _no_coordinator(refusal, None)
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": broker.config.node_id,
        "host": request.endpoint.host,
        "port": request.endpoint.port,
    }


def _no_coordinator(error: ErrorCode, text: str | None) -> dict[str, Any]:
    return {"error_code": int(error), "error_message": text, "node_id": -1, "host": "", "port": -1}


def handle_describe_cluster(broker: Broker, request: Request) -> Body:
    """Describe the cluster; its controllers' own endpoints are not to be reached."""
    wanted, version = request.message(), request.version
    if wanted.endpoint_type != BROKER_ENDPOINTS:
        return request.response(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message="only brokers can be described here",
            endpoint_type=wanted.endpoint_type,
            cluster_id=broker.cluster_id,
            brokers=[],
        )
    node = apis.response_class(request.api_key).DescribeClusterBroker(
        version=version,
        broker_id=broker.config.node_id,
        host=request.endpoint.host,
        port=request.endpoint.port,
        rack=None,
        is_fenced=False,
    )
    operations = NOT_ASKED
    if wanted.include_cluster_authorized_operations:
        operations = cluster_operations(broker, request)
    return request.response(
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=broker.config.node_id,
        brokers=[node],
        authorized_operations=as_set(operations),
    )
