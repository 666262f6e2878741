"""DeleteTopics, versions 1 to 6; by name, or from version 6 by id (KIP-516). In a cluster, the controller's to do.

Kafka's controller deletes internal topics too, and whoever does that loses all groups' offsets, or every transaction
that is under way. Here the coordinators are in the same process and hold what is in those topics, so they are refused,
with the error that DeleteRecords and Produce have for them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

from broker_lite.handlers.broker import Broker, Topic
from broker_lite.handlers.forwarding import by_the_controller
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.primitives import ZERO_UUID
from broker_lite.security.acls import Operation, ResourceType
from broker_lite.security.authorizer import authorized, authorized_on_cluster

BY_ID_FROM = 6
_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
}
"""What Kafka says of errors by themselves (Errors.java)."""


@by_the_controller
def handle(broker: Broker, request: Request) -> Body:
    """Delete topics; done when the answer goes out, files and all unless brokers of a cluster still have to hear it."""
    wanted = request.message()
    if request.version < BY_ID_FROM:
        topics = Counter((name, ZERO_UUID) for name in wanted.topic_names)
    else:
        topics = Counter((each.name, each.topic_id or ZERO_UUID) for each in wanted.topics)
    results = []
    for (name, topic_id), count in topics.items():
        wrong = _wrong(name, topic_id, count)
        if wrong is not None:
            results.append(_result(request, name, topic_id, ErrorCode.INVALID_REQUEST, wrong))
        else:
            results.append(_delete(broker, request, name, topic_id))
    return request.response(responses=results)


def _wrong(name: str | None, topic_id: uuid.UUID, count: int) -> str | None:
    """Return what is wrong with how a topic is named `count` times (Kafka's ControllerApis.deleteTopics)."""
    if name is None and topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if count > 1:
        return "Duplicate topic id." if name is None else "Duplicate topic name."
    return None


def _delete(broker: Broker, request: Request, name: str | None, topic_id: uuid.UUID) -> Any:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = unknown
    topic = broker.topic_by_id(topic_id) if name is None else broker.topic(name)
    if topic is not None or name is not None:
        refused_name = topic.name if topic is not None else name
        assert refused_name is not None
        if not _may_delete(broker, request, refused_name):
            # The name of a topic that was given by id is told to those only who may see it.
            shown = name if name is not None or not _may_see(broker, request, refused_name) else refused_name
            return _result(request, shown, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    message = None
    if not broker.config.delete_topic_enable:
        error = ErrorCode.TOPIC_DELETION_DISABLED
    elif topic is not None and broker.is_internal(topic.name):
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own and cannot be deleted"
    elif topic is not None:
        error = ErrorCode.NONE
        try:
            _drop(broker, topic)
        except KafkaError as failure:
            if failure.code is ErrorCode.NOT_CONTROLLER:
                raise
            error = unknown if failure.code is ErrorCode.UNKNOWN_TOPIC_ID else failure.code
            message = failure.message
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    return _result(request, name, topic_id, error, message)


def _drop(broker: Broker, topic: Topic) -> None:
    if broker.member is None:
        broker.delete_topic(topic)
        return
    # By its id: the controller may know of another topic of that name by now, which nobody has asked to delete.
    broker.member.controller.decide(lambda controller: (controller.delete_topic(topic.topic_id), None))


def _result(
    request: Request, name: str | None, topic_id: uuid.UUID, error: ErrorCode, message: str | None = None
) -> Any:
    message = message or _TEXTS.get(error)
    return apis.response_class(request.api_key).DeletableTopicResult(
        version=request.version, name=name, topic_id=topic_id, error_code=int(error), error_message=message
    )


def _may_delete(broker: Broker, request: Request, name: str) -> bool:
    return authorized_on_cluster(broker, request, Operation.DELETE, log_denial=False) or authorized(
        broker, request, Operation.DELETE, ResourceType.TOPIC, name
    )


def _may_see(broker: Broker, request: Request, name: str) -> bool:
    return authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, name, log_denial=False)
