"""Shared by the handlers of groups: types of groups, and errors of requests."""

from __future__ import annotations

from sparkonce.broker_lite.node.authorization import group_error
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol.errors import ErrorCode

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"


def group_refusal(broker: Broker, request: Request, operation: Operation, group_id: str) -> ErrorCode:
    """Check that the client may do that to a group, and that this broker coordinates it; return NONE or the error."""
    return group_error(broker, request, operation, group_id) or broker.groups.partitions.error_of(group_id)
