"""The way of a classic group's answers: from its state machine to the requests that wait, JoinGroup and SyncGroup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparkonce.broker_lite.coordinators.group_messages import Answer, JoinAnswer, SyncAnswer, refused
from sparkonce.broker_lite.node.coordinated import Coordinated
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode

NULL_PROTOCOL_NAME_FROM = 7


def send(answers: Iterable[Answer]) -> None:
    """Send a state machine's answers to the requests that wait."""
    for answer in answers:
        assert isinstance(answer.token, Promise)
        answer.token.complete(answer)


async def response(partitions: Coordinated, request: Request, group_id: str, promise: Promise[Answer]) -> Body:
    """Wait for the group's answer; if it depends on a record that may be lost, the member must retry."""
    answer = await promise
    error = await partitions.safe_error(group_id)
    return encoded(request, answer if error is ErrorCode.NONE else refused(answer, error))


def encoded(request: Request, answer: Answer) -> Body:
    """Encode an answer."""
    fields = _join_fields(answer, request) if isinstance(answer, JoinAnswer) else _sync_fields(answer)
    return request.response(**fields)


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
