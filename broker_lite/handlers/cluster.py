"""FindCoordinator v0 to v6 and DescribeCluster v0 to v2: this broker is all there is."""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode

GROUP_KEY = 0
TRANSACTION_KEY = 1
SEVERAL_KEYS_FROM = 4
BROKER_ENDPOINTS = 1


def handle_find_coordinator(broker: Broker, request: Request) -> Body:
    """Name this broker as the coordinator of every group; share groups (KIP-932) have none.

    Transactional ids are sent here as well, to be refused by InitProducerId with a reason.
    """
    wanted, version = request.message(), request.version
    served = wanted.key_type in (GROUP_KEY, TRANSACTION_KEY)
    if version < SEVERAL_KEYS_FROM:
        return request.response(**_coordinator(broker, request, served))
    kind = apis.response_class(request.api_key).Coordinator
    keys = wanted.coordinator_keys or ()
    return request.response(
        coordinators=[kind(version=version, key=key, **_coordinator(broker, request, served)) for key in keys]
    )


def _coordinator(broker: Broker, request: Request, served: bool) -> dict[str, Any]:
    if not served:
        text = "this broker coordinates consumer groups only"
        return {
            "error_code": int(ErrorCode.INVALID_REQUEST), "error_message": text, "node_id": -1, "host": "", "port": -1
        }  # fmt: skip
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": broker.config.node_id,
        "host": request.endpoint.host,
        "port": request.endpoint.port,
    }


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
    return request.response(
        error_code=0, cluster_id=broker.cluster_id, controller_id=broker.config.node_id, brokers=[node]
    )
