"""DescribeAcls, versions 1 to 3; SECURITY_DISABLED while no authorizer is configured. Absent: nothing."""

from __future__ import annotations

from itertools import groupby

from sparkonce.broker_lite.node.acl_requests import binding_filter, configured_authorizer, error_fields, rule_fields
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import KafkaError


async def handle(broker: Broker, request: Request) -> Body:
    """Return the rules that match a filter, grouped by resource."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    try:
        found = configured_authorizer(broker, request, Operation.DESCRIBE).select(binding_filter(wanted))
    except KafkaError as error:
        return request.response(**error_fields(error), resources=[])
    kind = types.DescribeAclsResource
    resources = [
        kind(
            version=version,
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[kind.AclDescription(version=version, **rule_fields(each.rule)) for each in bindings],
        )
        for (resource_type, name, pattern_type), bindings in groupby(found, key=lambda binding: binding[:3])
    ]
    return request.response(error_code=0, error_message="", resources=resources)
