"""SASL mechanisms: their interface, and PLAIN (RFC 4616), as in Kafka's PlainSaslServer. SCRAM: `scram.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

PLAIN: Final = "PLAIN"
_NOBODYS: Final = b"\0"  # no client can send this: NUL separates the parts of its token


class SaslError(Exception):
    """A failed exchange. `str()` is the reason for the log; `shown` is the reason for the client, None: nothing."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


class MechanismServer(Protocol):
    """One exchange of a mechanism."""

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated as `user`."""

    @property
    def user(self) -> str:
        """The authenticated user, once complete."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to the client's token. Raises SaslError if the exchange failed."""


class PlainServer:
    """One exchange of PLAIN, of one token. The password is sent as plain text: use TLS."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.complete = False
        self.user = ""

    def evaluate(self, token: bytes) -> bytes:
        """Return the empty answer to a correct user and password. Raises SaslError if they are wrong."""
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
