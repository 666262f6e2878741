"""CreateAcls, versions 1 to 3; SECURITY_DISABLED while no authorizer is configured.

Absent: rules about delegation tokens and users can be stored, but have no effect, since those APIs are not served.
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.acl_requests import configured_authorizer, error_fields, invalid_request
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import (
    CLUSTER_NAME,
    Binding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 1024
"""The longest name, principal or host of a rule: the lists are kept in memory."""


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Add rules, each on its own; acknowledged once they are on the disk."""
    wanted = request.message()
    errors: list[KafkaError | None] = []
    bindings = []
    try:
        authorizer = configured_authorizer(broker, request, Operation.ALTER)
        for each in wanted.creations:
            await broker.turns.spend(request, ITEM)
            try:
                bindings.append(_binding(each))
                errors.append(None)
            except KafkaError as error:
                errors.append(error)
        authorizer.add(bindings)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        errors = [error] * len(wanted.creations)
    types = apis.response_class(request.api_key)
    made = {"error_code": 0, "error_message": ""}  # not null, as in Kafka
    results = [error_fields(error) if error is not None else made for error in errors]
    return request.response(results=[types.AclCreationResult(version=request.version, **each) for each in results])


def _binding(wanted: Any) -> Binding:
    """Parse a rule to add; the checks are those of Kafka's AclApis and AclControlManager."""
    if wanted.resource_type not in _BOUND_TYPES:
        raise invalid_request(f"Invalid resourceType {wanted.resource_type}")
    if wanted.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise invalid_request(f"Invalid patternType {wanted.resource_pattern_type}")
    if wanted.operation not in _BOUND_OPERATIONS:
        raise invalid_request(f"Invalid operation {wanted.operation}")
    if wanted.permission_type not in (Permission.ALLOW, Permission.DENY):
        raise invalid_request(f"Invalid permissionType {wanted.permission_type}")
    if wanted.resource_type == ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise invalid_request(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not wanted.resource_name:
        raise invalid_request("Resource name should not be empty")
    if ":" not in wanted.principal:
        raise invalid_request("the principal has no colon between its type and its name, as in User:alice")
    if not wanted.host:
        raise invalid_request("the host is empty; * stands for every host")
    if max(len(wanted.resource_name), len(wanted.principal), len(wanted.host)) > MAX_NAME_LENGTH:
        raise invalid_request(f"a name is longer than {MAX_NAME_LENGTH} characters")
    rule = Rule(wanted.principal, wanted.host, wanted.operation, wanted.permission_type)
    return Binding(wanted.resource_type, wanted.resource_name, wanted.resource_pattern_type, rule)


_BOUND_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
_BOUND_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}
