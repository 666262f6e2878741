"""Envelope v0 (KIP-590): a client's request forwarded by another broker (`node/forwarding.py`)."""

from __future__ import annotations

import logging
from typing import Any, Final

from sparkonce.broker_lite.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.controller_requests import controller_of
from sparkonce.broker_lite.node.forwarding import Handler
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Request
from sparkonce.broker_lite.security.acls import host_of
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.frames import encode_response_header, read_request_header

logger = logging.getLogger(__name__)

FORWARDED: Final[dict[int, Handler]] = {
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    ApiKey.ELECT_LEADERS: elect_leaders.handle,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
    ApiKey.CREATE_ACLS: create_acls.handle,
    ApiKey.DELETE_ACLS: delete_acls.handle,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.handle,
}
"""The APIs that an envelope may contain, with their handlers."""


async def handle(broker: Broker, request: Request) -> Body:
    """Answer an envelope's request as its sender's."""
    wanted = request.message()
    try:
        if not controller_of(broker, request).active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        inner = _inner(request, wanted)
    except KafkaError as error:
        return request.response(response_data=None, error_code=int(error.code))
    try:
        body = await FORWARDED[inner.api_key](broker, inner)
    except KafkaError as error:
        return request.response(response_data=None, error_code=int(error.code))
    except CloseConnectionError:  # do not retry: it has failed, or no controller was found in time
        return request.response(response_data=None, error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    except ProtocolError as error:  # such as an unknown version: the connection also carries other clients' requests
        broker.note_refusal(f"an envelope from {request.client_host}: {error}")
        return request.response(response_data=None, error_code=int(ErrorCode.INVALID_REQUEST))
    except Exception as error:
        logger.error("a forwarded request failed: this is a mistake of the broker's", exc_info=error)
        return request.response(response_data=None, error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    return _enclosed(request, inner, body)


def _inner(request: Request, wanted: Any) -> Request:
    frame = memoryview(bytes(wanted.request_data))
    try:
        header = read_request_header(frame)
        host = host_of(bytes(wanted.client_host_address))
        sender = wanted.request_principal
        principal = request.principal if sender is None else bytes(sender).decode()
    except (ProtocolError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no request in an envelope: {error}") from None
    if header.api_key not in FORWARDED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} does not go into an envelope")
    inner = Request(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id or "",
        host,
        frame[header.body_position :],
        principal,
        request.endpoint,
    )
    inner.is_forwarded = True
    return inner


def _enclosed(request: Request, inner: Request, body: Body) -> Body:
    data = bytearray(encode_response_header(inner.api_key, inner.version, inner.correlation_id))
    for part in body:
        assert isinstance(part, (bytes, bytearray, memoryview)), "what the controller answers is no file"
        data += part
    return request.response(response_data=bytes(data), error_code=0)
