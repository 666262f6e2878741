"""Checks of topics, groups and the cluster: does it exist, and may this client do that to it.

Kafka's order: by name, authorization is checked first, so that what a client may not see looks as if it did not exist;
by id, existence is checked first, since ids reveal nothing.
"""

from __future__ import annotations

import uuid

from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Request
from sparkonce.broker_lite.security.acls import CLUSTER_NAME, Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster, authorized_operations
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


def find_topic(
    broker: Broker, request: Request, operation: Operation, name: str | None, topic_id: uuid.UUID | None = None
) -> tuple[Topic | None, ErrorCode]:
    """Return a topic by its id, or without one by its name; or None and the client's error."""
    if topic_id is not None:
        topic, unknown = broker.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None:
            return None, unknown
        if not authorized(broker, request, operation, ResourceType.TOPIC, topic.name):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return topic, ErrorCode.NONE
    assert name is not None
    if not authorized(broker, request, operation, ResourceType.TOPIC, name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.topic(name)
    return topic, ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_topic(broker: Broker, request: Request, operation: Operation, name: str) -> None:
    """Check that a client may do something to a topic. Raises KafkaError TOPIC_AUTHORIZATION_FAILED."""
    if not authorized(broker, request, operation, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def may_see_transactional_id(broker: Broker, request: Request, transactional_id: str, *, named: bool = True) -> bool:
    """Whether a client may know of a transactional id; that it may not is logged if it has ``named`` it."""
    kind = ResourceType.TRANSACTIONAL_ID
    return authorized(broker, request, Operation.DESCRIBE, kind, transactional_id, log_denial=named)


NOT_ASKED = -(2**31)
"""The value of authorized operations that the client did not request."""


def as_set(bits: int) -> frozenset[int] | None:
    """Return authorized operations in the form of kafka-python's codecs."""
    return None if bits == NOT_ASKED else frozenset(index for index in range(32) if bits >> index & 1)


def cluster_operations(broker: Broker, request: Request) -> int:
    """Return what the client may do to the cluster, as a bit field (KIP-430); 0 if it may not even see it."""
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE):
        return 0
    return authorized_operations(broker, request, ResourceType.CLUSTER, CLUSTER_NAME)


def group_error(broker: Broker, request: Request, operation: Operation, group_id: str) -> ErrorCode:
    """Return GROUP_AUTHORIZATION_FAILED if the client may not do that to this group, else NONE."""
    if authorized(broker, request, operation, ResourceType.GROUP, group_id):
        return ErrorCode.NONE
    return ErrorCode.GROUP_AUTHORIZATION_FAILED


def may_see_group(broker: Broker, request: Request, group_id: str) -> bool:
    """Whether the client may see a group that it did not name."""
    return authorized(broker, request, Operation.DESCRIBE, ResourceType.GROUP, group_id, log_denial=False)
