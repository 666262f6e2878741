"""FindCoordinator v0 to v6: the leader of the partition that keeps an id; its topic is created on first use."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.leader import endpoints_of_leaders
from sparkonce.broker_lite.node.request import Body, Endpoint, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.produce import LeaderHint

GROUP_KEY = 0
TRANSACTION_KEY = 1
SEVERAL_KEYS_FROM = 4


async def handle(broker: Broker, request: Request) -> Body:
    """Return the coordinators of groups or transactional ids; share groups (KIP-932) have none."""
    wanted = request.message()
    await broker.member.failover()
    version = request.version
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
        return _no_coordinator(ErrorCode.INVALID_REQUEST, "brokers here coordinate groups and transactions only")
    resource_type, refusal = _KINDS[key_type]
    if not authorized(broker, request, Operation.DESCRIBE, resource_type, key):
        return _no_coordinator(refusal, None)
    try:
        node_id, endpoint = _leader(broker, request, key_type, key)
    except KafkaError as error:
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message or None)
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _leader(broker: Broker, request: Request, key_type: int, key: str) -> tuple[int, Endpoint]:
    """Return the leader of a key's partition, and its listener of the client's name. Raises KafkaError without one."""
    partitions = (broker.groups if key_type == GROUP_KEY else broker.transactions).partitions
    partitions.index_of(key)
    leader = partitions.leader_of(key)
    if leader is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody leads the partition of {partitions.topic}")
    if leader == broker.config.node_id:
        return leader, request.endpoint
    hint = LeaderHint(leader, 0)
    for found in endpoints_of_leaders(broker.member.image, broker.config.node_id, request.endpoint, [hint]):
        return found.node_id, Endpoint(found.host, found.port)
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {leader} has no listener of this name")


def _no_coordinator(error: ErrorCode, text: str | None) -> dict[str, Any]:
    return {"error_code": int(error), "error_message": text, "node_id": -1, "host": "", "port": -1}
