"""DeleteAcls, versions 1 to 3; SECURITY_DISABLED while no authorizer is configured. Absent: nothing."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.acl_requests import binding_filter, configured_authorizer, error_fields, rule_fields
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Binding, Operation
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Remove the rules that match the filters; acknowledged once that is on the disk."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    results: list[tuple[KafkaError | None, list[Binding]]] = []
    try:
        authorizer = configured_authorizer(broker, request, Operation.ALTER)
        gone: set[Binding] = set()
        for each in wanted.filters:
            await broker.turns.spend(request, ITEM)
            try:
                found = authorizer.select(binding_filter(each))
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
            **rule_fields(binding.rule),
        )
        for binding in found
    ]
    return kind(version=version, matching_acls=matching, **error_fields(error))
