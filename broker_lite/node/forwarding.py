"""Forwarding of clients' requests that only the controller can answer (Envelope v0, KIP-590).

Theory of operation: a client may send them to any broker. A broker that is not the controller puts the unchanged
request, if it is well-formed, into an envelope, with the sender's principal and address; the controller unwraps it and
answers it as that client's, and the response returns the same way. If the receiver is no longer the controller, the
request is sent to the next one. If no controller is found in time, the client's connection is closed, and it retries
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from sparkonce.broker_lite.cluster.roles import ControllerRole
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import DROP, Body, Request
from sparkonce.broker_lite.node.turns import Steps, one_after_the_other
from sparkonce.broker_lite.security.acls import packed_address
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.frames import (
    encode_request_header,
    read_response_header,
)

LOOPBACK: Final = "127.0.0.1"


def by_the_controller(handler: Callable[[Broker, Request], Steps]) -> Callable[[Broker, Request], Body | None]:
    """Run a handler on the controller's broker only, one request after the other."""

    @one_after_the_other
    @wraps(handler)
    def handle(broker: Broker, request: Request) -> Steps:
        member = broker.member
        body = bytes(request.body)  # a forwarded request may outlive the read buffer
        controller = member.controller
        if controller.active:
            epoch = controller.epoch
            try:
                answer = yield from handler(broker, request)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
            else:
                if controller.active and controller.epoch == epoch:
                    otherwise = partial(_send_on, broker, request, body)
                    return answer_when_written(controller, request, answer, otherwise)
        _send_on(broker, request, body)
        return None

    return handle


def answer_when_written(
    controller: ControllerRole, request: Request, answer: Body | None, otherwise: Callable[[], None]
) -> Body | None:
    """Return an answer if all decisions of this controller are durable; else send it when they are.

    `otherwise` is called instead if the controller resigns before: its decisions may be durable or not.
    """
    if answer is None or controller.is_written:
        return answer
    controller.when_written(lambda is_written: request.answer(answer) if is_written else otherwise())
    return None


def enclose(message: Any) -> Any:
    """Put a request of this broker itself into an envelope, without a client's principal."""
    key, version = message.API_KEY, message.version
    data = encode_request_header(key, version, 0, "") + apis.encode_request(message, version)
    return apis.request(
        ApiKey.ENVELOPE,
        0,
        request_data=bytes(data),
        request_principal=None,
        client_host_address=packed_address(LOOPBACK),
    )


def enclosed_answer(api_key: int, version: int, envelope: Any) -> Any:
    """Extract the response from an envelope returned without an error."""
    _, position = read_response_header(api_key, version, envelope.response_data)
    return apis.decode_response(api_key, version, envelope.response_data[position:])


def _send_on(broker: Broker, request: Request, body: bytes) -> None:
    member = broker.member
    header = encode_request_header(request.api_key, request.version, request.correlation_id, request.client_id)
    envelope = apis.request(
        ApiKey.ENVELOPE,
        0,
        request_data=bytes(header) + body,
        request_principal=request.principal.encode(),
        client_host_address=packed_address(request.client_host) or packed_address(LOOPBACK),
    )

    def answered(answer: Any) -> None:
        if answer is None or answer.error_code or answer.response_data is None:
            request.answer(DROP)
            return
        member.poll()  # so that this broker has applied what the client's response reports
        _, position = read_response_header(request.api_key, request.version, answer.response_data)
        request.answer([answer.response_data[position:]])

    try:
        _check(request, body, envelope)
    except ProtocolError as error:
        broker.note_refusal(f"closing connection from {request.client_host}: {error}")
        request.answer(DROP)
        return
    member.send_to_controller(envelope, answered)


def _check(request: Request, body: bytes, envelope: Any) -> None:
    """Check that the controller can parse a client's request: if not, it would close the connection of this broker.

    Raises:
        ProtocolError: if it cannot.
    """
    apis.decode_request(request.api_key, request.version, body)
    apis.decode_request(ApiKey.ENVELOPE, envelope.version, apis.encode_request(envelope, envelope.version))
