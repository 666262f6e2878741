"""Forwarding of clients' requests that only the controller can answer (Envelope v0, KIP-590).

Theory of operation: a client may send them to any broker. A broker that is not the controller puts the unchanged
request, if it is well-formed, into an envelope, with the sender's principal and address; the controller unwraps it and
answers it as that client's, and the response returns the same way. If the receiver is no longer the controller, the
request is sent to the next one. If no controller is found in time, the client's connection is closed, and it retries
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Request
from sparkonce.broker_lite.security.acls import packed_address
from sparkonce.broker_lite.waiting import Waiting
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.frames import (
    encode_request_header,
    read_response_header,
)

LOOPBACK: Final = "127.0.0.1"


Handler = Callable[[Broker, Request], Waiting[Body]]


def by_the_controller(handler: Handler) -> Handler:
    """Run a handler on the controller's broker only, one request after the other, and answer what is durable."""

    @wraps(handler)
    async def handle(broker: Broker, request: Request) -> Body:
        async with broker.turns.change(request):
            controller = broker.member.controller
            body, epoch = None, controller.epoch
            if controller.active:
                try:
                    body = await handler(broker, request)
                except KafkaError as error:
                    if error.code is not ErrorCode.NOT_CONTROLLER:
                        raise
            # It may have resigned in a turn in between: then what it decided may be durable or not.
            is_decided = body is not None and controller.active and controller.epoch == epoch
            written = controller.written() if is_decided else None
        if body is not None and written is not None and await written:
            return body
        if request.is_forwarded:
            # Forwarded once more it would race with its sender's next attempt, and could undo a later change.
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return await _forward(broker, request)

    return handle


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


async def _forward(broker: Broker, request: Request) -> Body:
    member = broker.member
    header = encode_request_header(request.api_key, request.version, request.correlation_id, request.client_id)
    envelope = apis.request(
        ApiKey.ENVELOPE,
        0,
        request_data=bytes(header) + request.body,
        request_principal=request.principal.encode(),
        client_host_address=packed_address(request.client_host) or packed_address(LOOPBACK),
    )
    _check(request, envelope)
    answer = await member.ask_controller(envelope)
    if answer is None or answer.error_code or answer.response_data is None:
        raise CloseConnectionError
    member.poll()  # so that this broker has applied what the client's response reports
    _, position = read_response_header(request.api_key, request.version, answer.response_data)
    return [answer.response_data[position:]]


def _check(request: Request, envelope: Any) -> None:
    """Check that the controller can parse a client's request: if not, it would close the connection of this broker.

    Raises:
        ProtocolError: if it cannot.
    """
    request.message()
    apis.decode_request(ApiKey.ENVELOPE, envelope.version, apis.encode_request(envelope, envelope.version))
