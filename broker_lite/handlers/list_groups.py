"""ListGroups v0 to v5: the groups coordinated here, optionally by state (KIP-518) and type (KIP-848)."""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.coordinators.offset_expiry import CONSUMER_PROTOCOL_TYPE
from sparkonce.broker_lite.node.authorization import may_see_group
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.group_answers import CLASSIC_TYPE, CONSUMER_TYPE
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
    """List the groups coordinated here, optionally by state (KIP-518) and type (KIP-848)."""
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
    unsafe = await partitions.all_safe()  # also for groups that are gone, or no longer as the filter says
    if unsafe is not ErrorCode.NONE:
        return request.response(error_code=int(unsafe), groups=[])
    return request.response(error_code=0, groups=groups)


def _listed(broker: Broker, group_id: str) -> tuple[str, str, str]:
    """Return a group's state, type and protocol type; a group that only has offsets is classic and empty."""
    group = broker.groups.any_group(group_id)
    if group is None:
        return GroupState.EMPTY.value, CLASSIC_TYPE, ""
    if isinstance(group, ConsumerGroup):
        return group.state.value, CONSUMER_TYPE, CONSUMER_PROTOCOL_TYPE
    return group.state.value, CLASSIC_TYPE, group.protocol_type or ""
