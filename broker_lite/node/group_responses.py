"""Sends the answers of classic groups' state machines to the waiting requests: JoinGroup and SyncGroup."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.coordinators.group_messages import Answer, JoinAnswer, SyncAnswer
from sparkonce.broker_lite.node.request import Request
from sparkonce.kafka.protocol import apis

NULL_PROTOCOL_NAME_FROM = 7


def send(answer: Answer) -> None:
    """Send a state machine's answer to the waiting request."""
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
