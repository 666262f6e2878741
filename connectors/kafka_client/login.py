"""SASL over Kafka's own requests (KIP-43, KIP-152): SaslHandshake names the mechanism, SaslAuthenticate carries it.

The mechanisms' arithmetic is kafka-python's. Both requests are small and their old versions plain, so they are
hand-written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.protocol.primitives import Reader, put_bytes, put_string
from sparkonce.connectors.kafka_client.security import OAuth, Sasl

if TYPE_CHECKING:
    from sparkonce.connectors.kafka_client.connection import Connection

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
            if sasl.oauth is not None:
                from sparkonce.connectors.kafka_client.oauth import forget

                forget(sasl.oauth)
            who = f"user {sasl.username!r}" if sasl.oauth is None else "the token"
            check = "kafka.sasl.username and kafka.sasl.password" if sasl.oauth is None else "kafka.sasl.oauthbearer.*"
            raise SaslError(f"broker {host}:{port} refused {who} ({sasl.mechanism}): {message or error}; check {check}")
        mechanism.receive(bytes(reader.bytes(flexible=False)))


def _mechanism(sasl: Sasl) -> Any:
    from kafka.net.sasl import get_sasl_mechanism

    if sasl.oauth is not None:
        return _Bearer(sasl.oauth)
    return get_sasl_mechanism(sasl.mechanism)(
        sasl_mechanism=sasl.mechanism, sasl_plain_username=sasl.username, sasl_plain_password=sasl.password
    )


class _Bearer:
    """OAUTHBEARER (RFC 7628): one message with the token, and one more byte to end what the broker has refused."""

    def __init__(self, oauth: OAuth) -> None:
        from sparkonce.connectors.kafka_client.oauth import token  # HTTP, which no worker else should wait for

        extensions = "".join(f"\x01{name}={text}" for name, text in oauth.extensions)
        self._message = f"n,,\x01auth=Bearer {token(oauth)}{extensions}\x01\x01".encode()
        self._done = False

    def is_done(self) -> bool:
        return self._done

    def auth_bytes(self) -> bytes:
        return self._message

    def receive(self, answer: bytes) -> None:
        """Handle the broker's response: empty, or why it refuses, which it explains after one more byte."""
        self._done = not answer
        self._message = b"\x01"
