"""What handlers of groups share: types of groups, why a request is refused, how answers get to waiting requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.coordinators.group_messages import Answer, JoinAnswer, SyncAnswer
from sparkonce.broker_lite.node.authorization import group_error
from sparkonce.broker_lite.node.request import Request
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.security.acls import Operation

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.broker import Broker

NULL_PROTOCOL_NAME_FROM = 7
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"


def group_refusal(broker: Broker, request: Request, operation: Operation, group_id: str) -> ErrorCode:
    """Check that the client may do that to a group, and that the group is coordinated here: NONE, or the error."""
    return group_error(broker, request, operation, group_id) or broker.groups.partitions.error_of(group_id)


def send(answer: Answer) -> None:
    """Send a state machine's answer to the request that waits for it."""
    request = answer.token
    assert isinstance(request, Request)
    fields = _join_fields(answer, request) if isinstance(answer, JoinAnswer) else _sync_fields(answer)
    request.answer(request.response(**fields))


def _join_fields(answer: JoinAnswer, request: Request) -> dict[str, Any]:
    version = request.version
    types = apis.response_class(request.api_key)
    members = [
        types.JoinGroupResponseMember(version=version, member_id=member_id, group_instance_id=instance, metadata=data)
        for member_id, instance, data in answer.members
    ]
    name = answer.protocol_name
    return {
        "error_code": int(answer.error),
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": name if name is not None or version >= NULL_PROTOCOL_NAME_FROM else "",
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": members,
    }


def _sync_fields(answer: SyncAnswer) -> dict[str, Any]:
    return {
        "error_code": int(answer.error),
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
