"""What the SASL mechanisms have in common: a server takes tokens until it is complete or raises `SaslError`."""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """An exchange that failed. `str()` says why, for the log; `shown` is what the client may know, None: nothing."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


class MechanismServer(Protocol):
    """One exchange of a mechanism."""

    @property
    def complete(self) -> bool:
        """Whether the client has proved to be `user`."""

    @property
    def user(self) -> str:
        """Who the client is, once complete."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to the client's token.

        Raises:
            SaslError: if the exchange failed.
        """
