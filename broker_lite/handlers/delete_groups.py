"""DeleteGroups v0 to v2: deletes groups without members, and their offsets."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import WRITTEN
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


async def handle(broker: Broker, request: Request) -> Body:
    """Delete groups without members, and their offsets; a client that goes ends this between two groups."""
    wanted, partitions = request.message(), broker.groups.partitions
    errors: list[tuple[str, ErrorCode]] = []
    deleted_in: dict[str, int | None] = {}
    for group_id in wanted.groups_names:
        errors.append((group_id, _delete(broker, request, group_id)))
        if errors[-1][1] is ErrorCode.NONE:
            deleted_in[group_id] = partitions.epoch_now(group_id)
        await broker.turns.spend(request, WRITTEN)
    unsafe = await partitions.safe_since(deleted_in)
    kind, version = apis.response_class(request.api_key).DeletableGroupResult, request.version
    results = [
        kind(version=version, group_id=group_id, error_code=int(unsafe.get(group_id, error)))
        for group_id, error in errors
    ]
    return request.response(results=results)


def _delete(broker: Broker, request: Request, group_id: str) -> ErrorCode:
    refusal = group_refusal(broker, request, Operation.DELETE, group_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    try:
        return broker.groups.delete(group_id)
    except KafkaError as error:
        broker.note_refusal(f"DeleteGroups of group {group_id}: {error}")
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
