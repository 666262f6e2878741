"""SASL over Kafka's own requests (KIP-43, KIP-152): SaslHandshake names the mechanism, SaslAuthenticate carries it.

The mechanisms' arithmetic is kafka-python's. Both requests are small and their old versions plain, so they are written
by hand here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_lite.protocol.primitives import Reader, put_bytes, put_string
from connectors.kafka_once.settings import Sasl

if TYPE_CHECKING:
    from connectors.kafka_once.connection import Connection

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36


class SaslError(PermissionError):
    """The broker does not offer the mechanism, or does not accept the user. Never retried."""


def log_in(connection: Connection, sasl: Sasl) -> None:
    """Log in, on a connection that is fresh.

    Raises:
        SaslError: if the broker refuses.

    """
    host, port = connection.address
    body = bytearray()
    put_string(body, sasl.mechanism, flexible=False)
    reader = Reader(connection.request(SASL_HANDSHAKE, 1, body))
    if reader.int16():
        offered = [reader.string(flexible=False) for _ in range(reader.array_length(flexible=False))]
        raise SaslError(
            f"broker {host}:{port} does not offer SASL mechanism {sasl.mechanism}; it offers {', '.join(offered)}: "
            "set kafka.sasl.mechanism"
        )
    mechanism = _mechanism(sasl)
    while not mechanism.is_done():
        body = bytearray()
        put_bytes(body, mechanism.auth_bytes(), flexible=False)
        reader = Reader(connection.request(SASL_AUTHENTICATE, 0, body))
        error, message = reader.int16(), reader.nullable_string(flexible=False)
        if error:
            raise SaslError(
                f"broker {host}:{port} refused user {sasl.username!r} ({sasl.mechanism}): {message or error}; check "
                "kafka.sasl.username and kafka.sasl.password"
            )
        mechanism.receive(bytes(reader.bytes(flexible=False)))


def _mechanism(sasl: Sasl) -> Any:
    from kafka.net.sasl import get_sasl_mechanism

    return get_sasl_mechanism(sasl.mechanism)(
        sasl_mechanism=sasl.mechanism, sasl_plain_username=sasl.username, sasl_plain_password=sasl.password
    )
