"""SASL PLAIN (RFC 4616), the server's side, as in Kafka's PlainSaslServer. The password crosses the net: use TLS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparkonce.broker_lite.security.mechanism import SaslError

PLAIN: Final = "PLAIN"
_NOBODYS: Final = b"\0"  # no client can send this: NUL separates the parts of its token


class PlainServer:
    """One exchange, of one token."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.complete = False
        self.user = ""

    def evaluate(self, token: bytes) -> bytes:
        """Return the empty answer to a right user and password.

        Raises:
            SaslError: if they are not.
        """
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslError("the PLAIN token is not UTF-8") from None
        if len(parts) != 3:
            raise SaslError(f"the PLAIN token has {len(parts)} parts; expected 3")
        authorization_id, user, password = parts
        if not user or not password:
            raise SaslError("the PLAIN token has an empty user or password")
        import hmac  # imported lazily: faster start of a broker without SASL

        expected = self._passwords.get(user)
        right = hmac.compare_digest(password.encode(), expected.encode() if expected is not None else _NOBODYS)
        if not right:
            reason = f"wrong password of {user!r}" if expected is not None else f"unknown user {user!r}"
            raise SaslError(reason, "Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslError(
                f"user {user!r} asks to act as another",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.complete, self.user = True, user
        return b""
