"""DescribeGroups v0 to v6, ListGroups v0 to v5, DeleteGroups v0 to v2."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.coordinators.offset_expiry import CONSUMER_PROTOCOL_TYPE
from sparkonce.broker_lite.node.authorization import as_set, may_see_group
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.coordinated import NO_REFUSALS, Refusals, error_answer
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM, WRITTEN, Steps, in_turns
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster, authorized_operations

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
NOT_FOUND_FROM = 6


@in_turns
def handle_describe(broker: Broker, request: Request) -> Steps:
    """Describe groups; one that does not exist is Dead."""
    wanted, types, version = request.message(), apis.response_class(request.api_key), request.version
    groups = []
    for group_id in wanted.groups:
        yield ITEM
        refusal = group_refusal(broker, request, Operation.DESCRIBE, group_id)
        if refusal is not ErrorCode.NONE:
            groups.append(_described(types, version, group_id, None, error=refusal))
            continue
        described = _describe(broker, types, version, group_id)
        if wanted.include_authorized_operations:
            operations = authorized_operations(broker, request, ResourceType.GROUP, group_id)
            described.authorized_operations = as_set(operations)
        groups.append(described)

    def refused(refusals: Refusals) -> Body:
        unsafe = {each: _described(types, version, each, None, error=error) for each, error in refusals.items()}
        return request.response(groups=[unsafe.get(each.group_id, each) for each in groups])

    return broker.groups.partitions.answer(request, wanted.groups, request.response(groups=groups), refused)


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
    # While a rebalance is under way there is no protocol that all agreed on.
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


def handle_list(broker: Broker, request: Request) -> Body | None:
    """List the groups that are coordinated here, by state (KIP-518) and type (KIP-848) if asked."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    partitions = broker.groups.partitions
    if partitions.is_loading:
        return request.response(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), groups=[])
    states = {state.lower() for state in wanted.states_filter or ()}
    kinds = {kind.lower() for kind in wanted.types_filter or ()}
    groups = []
    every = authorized_on_cluster(broker, request, Operation.DESCRIBE, log_denial=False)
    for group_id in broker.groups.all_ids():
        if not every and not may_see_group(broker, request, group_id):
            continue
        state, kind, protocol_type = _listed(broker, group_id)
        if (states and state.lower() not in states) or (kinds and kind not in kinds):
            continue
        listed = types.ListedGroup(
            version=version,
            group_id=group_id,
            protocol_type=protocol_type,
            group_state=state,
            group_type=kind,
        )
        groups.append(listed)
    body = request.response(error_code=0, groups=groups)
    return partitions.answer(request, [each.group_id for each in groups], body, error_answer(request, groups=[]))


def _listed(broker: Broker, group_id: str) -> tuple[str, str, str]:
    """Return a group's state, type and protocol type; a group that only has offsets is classic and empty."""
    group = broker.groups.any_group(group_id)
    if group is None:
        return GroupState.EMPTY.value, CLASSIC_TYPE, ""
    if isinstance(group, ConsumerGroup):
        return group.state.value, CONSUMER_TYPE, CONSUMER_PROTOCOL_TYPE
    return group.state.value, CLASSIC_TYPE, group.protocol_type or ""


@in_turns
def handle_delete(broker: Broker, request: Request) -> Steps:
    """Delete groups that have no members, and their offsets."""
    wanted = request.message()
    errors = []
    for group_id in wanted.groups_names:
        errors.append((group_id, _delete(broker, request, group_id)))
        yield WRITTEN

    def answer(refusals: Refusals) -> Body:
        kind, version = apis.response_class(request.api_key).DeletableGroupResult, request.version
        results = [
            kind(version=version, group_id=group_id, error_code=int(refusals.get(group_id, error)))
            for group_id, error in errors
        ]
        return request.response(results=results)

    return broker.groups.partitions.answer(request, wanted.groups_names, answer(NO_REFUSALS), answer)


def _delete(broker: Broker, request: Request, group_id: str) -> ErrorCode:
    refusal = group_refusal(broker, request, Operation.DELETE, group_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    try:
        return broker.groups.delete(group_id)
    except KafkaError as error:
        broker.note_refusal(f"DeleteGroups of group {group_id}: {error}")
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
