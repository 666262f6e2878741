"""CreateAcls, DescribeAcls and DeleteAcls, versions 1 to 3; SECURITY_DISABLED while no authorizer is configured.

Absent: rules about delegation tokens and users can be kept, and decide nothing, since those APIs are not served.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM, Steps
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.security.acls import (
    CLUSTER_NAME,
    Binding,
    BindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from sparkonce.broker_lite.security.authorizer import Authorizer, authorized_on_cluster

MAX_NAME_LENGTH = 1024
"""The longest name, principal or host of a rule: the lists are kept in memory."""


@by_the_controller
def handle_create(broker: Broker, request: Request) -> Steps:
    """Add rules, each on its own; acknowledged once they are on the disk."""
    wanted = request.message()
    errors: list[KafkaError | None] = []
    bindings = []
    try:
        authorizer = _authorizer(broker, request, Operation.ALTER)
        for each in wanted.creations:
            yield ITEM
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
    return request.response(
        results=[types.AclCreationResult(version=request.version, **_error_fields(error)) for error in errors]
    )


def handle_describe(broker: Broker, request: Request) -> Body:
    """Return the rules that a filter selects, those about one resource together."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    try:
        found = _authorizer(broker, request, Operation.DESCRIBE).select(_filter(wanted))
    except KafkaError as error:
        return request.response(**_error_fields(error), resources=[])
    kind = types.DescribeAclsResource
    resources = [
        kind(
            version=version,
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[kind.AclDescription(version=version, **_rule_fields(each.rule)) for each in bindings],
        )
        for (resource_type, name, pattern_type), bindings in groupby(found, key=lambda binding: binding[:3])
    ]
    return request.response(error_code=0, error_message=None, resources=resources)


@by_the_controller
def handle_delete(broker: Broker, request: Request) -> Steps:
    """Remove the rules that filters select; acknowledged once that is on the disk."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    results: list[tuple[KafkaError | None, list[Binding]]] = []
    try:
        authorizer = _authorizer(broker, request, Operation.ALTER)
        gone: set[Binding] = set()
        for each in wanted.filters:
            yield ITEM
            try:
                found = authorizer.select(_filter(each))
                gone.update(found)
                results.append((None, found))
            except KafkaError as error:
                results.append((error, []))
        authorizer.remove(gone)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        results = [(error, [])] * len(wanted.filters)
    return request.response(filter_results=[_deleted(types, version, *result) for result in results])


def _deleted(types: Any, version: int, error: KafkaError | None, found: list[Binding]) -> Any:
    kind = types.DeleteAclsFilterResult
    matching = [
        kind.DeleteAclsMatchingAcl(
            version=version,
            error_code=0,
            error_message=None,
            resource_type=binding.resource_type,
            resource_name=binding.name,
            pattern_type=binding.pattern_type,
            **_rule_fields(binding.rule),
        )
        for binding in found
    ]
    return kind(version=version, matching_acls=matching, **_error_fields(error))


def _authorizer(broker: Broker, request: Request, operation: Operation) -> Authorizer:
    if not authorized_on_cluster(broker, request, operation):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{operation.name} on the cluster is not allowed")
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return broker.authorizer


def _binding(wanted: Any) -> Binding:
    """Read a rule to add; the checks are those of Kafka's AclApis and AclControlManager."""
    if wanted.resource_type not in _BOUND_TYPES:
        raise _invalid(f"Invalid resourceType {wanted.resource_type}")
    if wanted.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {wanted.resource_pattern_type}")
    if wanted.operation not in _BOUND_OPERATIONS:
        raise _invalid(f"Invalid operation {wanted.operation}")
    if wanted.permission_type not in (Permission.ALLOW, Permission.DENY):
        raise _invalid(f"Invalid permissionType {wanted.permission_type}")
    if wanted.resource_type == ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not wanted.resource_name:
        raise _invalid("Resource name should not be empty")
    if ":" not in wanted.principal:
        raise _invalid("the principal has no colon between its type and its name, as in User:alice")
    if not wanted.host:
        raise _invalid("the host is empty; * stands for every host")
    if max(len(wanted.resource_name), len(wanted.principal), len(wanted.host)) > MAX_NAME_LENGTH:
        raise _invalid(f"a name is longer than {MAX_NAME_LENGTH} characters")
    rule = Rule(wanted.principal, wanted.host, wanted.operation, wanted.permission_type)
    return Binding(wanted.resource_type, wanted.resource_name, wanted.resource_pattern_type, rule)


_BOUND_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
_BOUND_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}


def _filter(wanted: Any) -> BindingFilter:
    """Read a filter; the fields of DescribeAcls and DeleteAcls have the same names."""
    known = (
        (wanted.resource_type_filter, ResourceType),
        (wanted.pattern_type_filter, PatternType),
        (wanted.operation, Operation),
        (wanted.permission_type, Permission),
    )
    for number, kind in known:
        if number <= 0 or number not in set(kind):
            raise _invalid(f"the filter has the unknown {kind.__name__} {number}")
    return BindingFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _error_fields(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(error.code), "error_message": error.message or error.code.name}


def _rule_fields(rule: Rule) -> dict[str, Any]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }
