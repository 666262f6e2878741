"""SaslAuthenticate v0 to v2 on an open connection, where it is too late: see `broker_lite/security/sasl.py`."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(_broker: Broker, request: Request) -> Body:
    """Reject the request."""
    text = "SaslAuthenticate request received after successful authentication"
    return request.response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message=text, auth_bytes=b"")
