"""Private keys for OpenSSL, and what to do about certificates that it refuses: for both sides of a connection.

OpenSSL loads a private key only from a file; one from a store or from settings goes through a file in memory, which
never outlives this process. Systems without such files use a temporary one that only its owner can read and that is
deleted at once.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final

from sparkonce.kafka.key_stores import KeyStoreError

_STRONGER_KEY: Final = "make a new certificate with a key of at least 2048 bits (RSA) or 256 bits (EC)"
_WEAK: Final = {
    "EE_KEY_TOO_SMALL": f"its key is too small for OpenSSL: {_STRONGER_KEY}",
    "CA_KEY_TOO_SMALL": f"the key of an authority in its chain is too small for OpenSSL: {_STRONGER_KEY} for it, and "
    "sign again what it has signed",
    "CA_MD_TOO_WEAK": "it, or an authority in its chain, is signed with SHA-1 or MD5, which is too weak for OpenSSL: "
    "have it signed again with SHA-256 (keytool -sigalg SHA256withRSA, openssl -sha256)",
}
"""Certificates that Java may accept, by OpenSSL's reasons. Python's own default fixes OpenSSL's security level."""
_WEAK_BY_VERIFY_CODE: Final = {66: "EE_KEY_TOO_SMALL", 67: "CA_KEY_TOO_SMALL", 68: "CA_MD_TOO_WEAK"}


def load_chain(context: ssl.SSLContext, pem: bytes, password: str | None, setting: str) -> None:
    """Load a private key with its certificates; `setting` is its password's. Raises KeyStoreError with the reason."""

    def given() -> str:
        # Without this, OpenSSL would prompt on the terminal.
        if password is None:
            raise KeyStoreError(f"the private key is encrypted; set {setting}")
        return password

    with _as_file(pem) as name:
        try:
            context.load_cert_chain(name, password=given)
        except ssl.SSLError as error:
            reason = error.reason or f"no private key and certificates in PEM, or a wrong {setting}"
            raise KeyStoreError(with_advice(reason)) from None


def with_advice(reason: str) -> str:
    """Add to a reason of OpenSSL's what to do, if it is about a certificate's strength."""
    return f"{reason}: {_WEAK[reason]}" if reason in _WEAK else reason


def weakness(error: ssl.SSLError) -> str | None:
    """Return why a peer's certificate is too weak, and what to do; None if that is not what is wrong."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    reason = _WEAK_BY_VERIFY_CODE.get(getattr(error, "verify_code", 0))
    return None if reason is None else with_advice(reason)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield the name of a file with this content, unreadable for other users and not left behind by a crash."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("key.pem"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("wb", suffix=".pem") as file:
            file.write(content)
            file.flush()
            yield file.name
