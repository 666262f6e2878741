"""Shared by the handlers of requests from brokers to the controller (KIP-631).

Only brokers of a cluster may send them, and a broker that is not the controller answers NOT_CONTROLLER. The response
waits until the decision is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from sparkonce.broker_lite.cluster.roles import ControllerRole
from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.controller.records import MetadataRecord
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import Handler
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

Answer = TypeVar("Answer")


def controller_of(broker: Broker, request: Request) -> ControllerRole:
    """Return this broker's controller role, for a request that only brokers may send.

    Raises:
        ProtocolError: if this broker is standalone.
        KafkaError: CLUSTER_AUTHORIZATION_FAILED.
    """
    broker.member.controller.check_has_others()
    if not authorized_on_cluster(broker, request, Operation.CLUSTER_ACTION):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return broker.member.controller


def decide(
    broker: Broker, request: Request, decision: Callable[[Controller], tuple[list[MetadataRecord], Answer]]
) -> tuple[ErrorCode, Answer | None]:
    """Let this broker's controller decide; returns its answer, or the error in place of one."""
    try:
        return ErrorCode.NONE, controller_of(broker, request).decide(decision)
    except KafkaError as error:
        return error.code, None


def once_written(handler: Handler) -> Handler:
    """Let a handler's response wait until the controller's decisions are durable; NOT_CONTROLLER if it resigns."""

    @wraps(handler)
    async def handle(broker: Broker, request: Request) -> Body:
        body = await handler(broker, request)
        controller = broker.member.controller
        if not controller.active or await controller.written():
            return body
        return request.response(error_code=int(ErrorCode.NOT_CONTROLLER))

    return handle
