"""DeleteTopics, versions 1 to 6; by name, or from version 6 by id (KIP-516); forwarded to the controller.

Kafka's controller also deletes internal topics, which loses all groups' offsets, or all open transactions. Here the
coordinators are in the same process and hold the content of those topics, so they are rejected, with the error of
DeleteRecords and Produce.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.replica_assignments import MAX_RECORDS, too_many_records
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import MetadataRecord

BY_ID_FROM = 6
_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
}
"""Kafka's default messages of errors (Errors.java)."""


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Delete topics, with their files, before the answer is sent; other brokers of a cluster follow later."""
    wanted = request.message()
    asked: Counter[tuple[str | None, uuid.UUID]]
    if request.version < BY_ID_FROM:
        asked = Counter((name, ZERO_UUID) for name in wanted.topic_names)
    else:
        asked = Counter((each.name, each.topic_id or ZERO_UUID) for each in wanted.topics)
    found = []
    doomed: dict[uuid.UUID, Topic] = {}
    for (name, topic_id), count in asked.items():
        await broker.turns.spend(request, ITEM)
        wrong = _wrong(name, topic_id, count)
        if wrong is None:
            each = _find(broker, request, name, topic_id)
        else:
            each = _Found(name, topic_id, ErrorCode.NONE, ErrorCode.INVALID_REQUEST, wrong)
        if each.topic is not None and each.topic.topic_id in doomed:
            each = _Found(each.name, each.topic_id, each.unknown, each.unknown)
        elif each.topic is not None:
            doomed[each.topic.topic_id] = each.topic
        found.append(each)
    failures = await _drop(broker, request, list(doomed.values()))
    results = []
    for each in found:
        await broker.turns.spend(request, ITEM)
        results.append(_answer(request, each, failures))
    return request.response(responses=results)


def _wrong(name: str | None, topic_id: uuid.UUID, count: int) -> str | None:
    """Return why a topic named `count` times is invalid, if it is (Kafka's ControllerApis.deleteTopics)."""
    if name is None and topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if count > 1:
        return "Duplicate topic id." if name is None else "Duplicate topic name."
    return None


class _Found(NamedTuple):
    """The requested topic, if it exists; `topic` is to be deleted if there is no error."""

    name: str | None
    topic_id: uuid.UUID
    unknown: ErrorCode
    error: ErrorCode
    message: str | None = None
    topic: Topic | None = None


def _find(broker: Broker, request: Request, name: str | None, topic_id: uuid.UUID) -> _Found:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = unknown
    topic = broker.topic_by_id(topic_id) if name is None else broker.topic(name)
    if topic is not None or name is not None:
        refused_name = topic.name if topic is not None else name
        assert refused_name is not None
        if not _may_delete(broker, request, refused_name):
            # The name of a topic requested by id is returned only to clients that may see it.
            shown = name if name is not None or not _may_see(broker, request, refused_name) else refused_name
            return _Found(shown, topic_id, unknown, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    message = None
    if not broker.config.delete_topic_enable:
        error = ErrorCode.TOPIC_DELETION_DISABLED
    elif topic is not None and broker.is_internal(topic.name):
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own and cannot be deleted"
    elif topic is not None:
        return _Found(topic.name, topic.topic_id, unknown, ErrorCode.NONE, None, topic)
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    return _Found(name, topic_id, unknown, error, message)


async def _drop(broker: Broker, request: Request, topics: list[Topic]) -> dict[uuid.UUID, KafkaError]:
    """Delete topics together; returns the errors of those that are not deleted."""
    if len(topics) > MAX_RECORDS:
        return {topic.topic_id: too_many_records() for topic in topics}
    failures: dict[uuid.UUID, KafkaError] = {}

    def decision(topic: Topic, controller: Controller) -> tuple[list[MetadataRecord], None]:
        try:
            # By id: the controller may have another topic of that name by now, which the client did not request.
            return controller.delete_topic(topic.topic_id), None
        except KafkaError as error:
            failures[topic.topic_id] = error
            return [], None

    try:
        decisions = [partial(decision, topic) for topic in topics]
        await broker.turns.do(request, broker.member.controller.decide_together(decisions))
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        undecided = [topic.topic_id for topic in topics if broker.topic_by_id(topic.topic_id) is not None]
        failures = dict.fromkeys(undecided, error) | failures
    await broker.turns.do(request, broker.deleted.clean_up(topics))
    return failures


def _answer(request: Request, found: _Found, failures: Mapping[uuid.UUID, KafkaError]) -> Any:
    code, message = found.error, found.message
    failure = None if found.topic is None else failures.get(found.topic.topic_id)
    if failure is not None:
        code = found.unknown if failure.code is ErrorCode.UNKNOWN_TOPIC_ID else failure.code
        message = failure.message
    message = message or _TEXTS.get(code)
    return apis.response_class(request.api_key).DeletableTopicResult(
        version=request.version, name=found.name, topic_id=found.topic_id, error_code=int(code), error_message=message
    )


def _may_delete(broker: Broker, request: Request, name: str) -> bool:
    return authorized_on_cluster(broker, request, Operation.DELETE, log_denial=False) or authorized(
        broker, request, Operation.DELETE, ResourceType.TOPIC, name
    )


def _may_see(broker: Broker, request: Request, name: str) -> bool:
    return authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, name, log_denial=False)
