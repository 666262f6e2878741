"""Shared by the handlers of access control lists: the authorizer, filters, and fields of responses."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Request
from sparkonce.broker_lite.security.acls import BindingFilter, Operation, PatternType, Permission, ResourceType, Rule
from sparkonce.broker_lite.security.authorizer import Authorizer, authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


def configured_authorizer(broker: Broker, request: Request, operation: Operation) -> Authorizer:
    """Return the authorizer. Raises KafkaError CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED."""
    if not authorized_on_cluster(broker, request, operation):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{operation.name} on the cluster is not allowed")
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return broker.authorizer


def binding_filter(wanted: Any) -> BindingFilter:
    """Parse a filter; the fields of DescribeAcls and DeleteAcls have the same names."""
    known = (
        (wanted.resource_type_filter, ResourceType),
        (wanted.pattern_type_filter, PatternType),
        (wanted.operation, Operation),
        (wanted.permission_type, Permission),
    )
    for number, kind in known:
        if number <= 0 or number not in set(kind):
            raise invalid_request(f"the filter has the unknown {kind.__name__} {number}")
    return BindingFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def invalid_request(text: str) -> KafkaError:
    """Return the error of an invalid rule or filter."""
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def error_fields(error: KafkaError | None) -> dict[str, Any]:
    """Return the fields of a response for an error, or for none."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(error.code), "error_message": error.message or error.code.name}


def rule_fields(rule: Rule) -> dict[str, Any]:
    """Return the fields of a response that describe a rule."""
    return {
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }
