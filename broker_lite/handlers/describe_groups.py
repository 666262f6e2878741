"""DescribeGroups v0 to v6: classic groups, their members and assignments."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.node.authorization import as_set
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import CLASSIC_TYPE, group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized_operations
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode

NOT_FOUND_FROM = 6


async def handle(broker: Broker, request: Request) -> Body:
    """Describe groups; one that does not exist is Dead."""
    wanted, types, version = request.message(), apis.response_class(request.api_key), request.version
    groups, partitions = [], broker.groups.partitions
    seen_in: dict[str, int | None] = {}
    for group_id in wanted.groups:
        await broker.turns.spend(request, ITEM)
        refusal = group_refusal(broker, request, Operation.DESCRIBE, group_id)
        if refusal is not ErrorCode.NONE:
            groups.append(_described(types, version, group_id, None, error=refusal))
            continue
        seen_in[group_id] = partitions.epoch_now(group_id)
        described = _describe(broker, types, version, group_id)
        if wanted.include_authorized_operations:
            operations = authorized_operations(broker, request, ResourceType.GROUP, group_id)
            described.authorized_operations = as_set(operations)
        groups.append(described)
    refusals = await partitions.safe_since(seen_in)
    unsafe = {each: _described(types, version, each, None, error=error) for each, error in refusals.items()}
    return request.response(groups=[unsafe.get(each.group_id, each) for each in groups])


def _describe(broker: Broker, types: Any, version: int, group_id: str) -> Any:
    group = broker.groups.group(group_id)
    other_kind = broker.groups.consumer_group(group_id) is not None
    if group is None and not other_kind and broker.groups.offsets.of_group(group_id):
        return _described(types, version, group_id, GroupState.EMPTY)
    if group is None:
        error, text = ErrorCode.NONE, None
        if version >= NOT_FOUND_FROM:
            error, text = ErrorCode.GROUP_ID_NOT_FOUND, broker.groups.why_not(group_id, CLASSIC_TYPE)
        return _described(types, version, group_id, GroupState.DEAD, error=error, text=text)
    # During a rebalance no protocol is selected.
    stable = group.state is GroupState.STABLE
    protocol = (group.protocol_name or "") if stable else ""
    members = [
        types.DescribedGroup.DescribedGroupMember(
            version=version,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]
    return _described(types, version, group_id, group.state, group.protocol_type or "", protocol, members)


def _described(
    types: Any,
    version: int,
    group_id: str,
    state: GroupState | None,
    protocol_type: str = "",
    protocol: str = "",
    members: list[Any] | None = None,
    error: ErrorCode = ErrorCode.NONE,
    text: str | None = None,
) -> Any:
    return types.DescribedGroup(
        version=version,
        error_code=int(error),
        error_message=text,
        group_id=group_id,
        group_state=state.value if state is not None else "",
        protocol_type=protocol_type,
        protocol_data=protocol,
        members=members or [],
    )
