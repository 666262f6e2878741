"""SCRAM (RFC 5802, RFC 7677), the server's side, as in Kafka's ScramSaslServer. Pure: the nonce is passed in.

Theory of operation: a credential is stored as salt, stored key, server key and iterations; these verify a proof but
cannot create one, nor reveal the password. The client sends its user name and a nonce; the server answers with
both nonces, salt and iterations; the client proves that it knows the password; the server proves that it knows the
credential. No answer contains the names of users or the reasons of failures. Absent: channel binding (Kafka has none),
delegation tokens.

The library scramp (1.5) was compared: it prepares passwords (SASLprep), requires salts of twelve bytes or more, and
rejects extensions and every authorization id, all of which differs from Kafka.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from sparkonce.broker_lite.security.mechanism import SaslError

MAX_ITERATIONS: Final = 16384
"""The most that AlterUserScramCredentials accepts, as in Kafka: the client computes as many for each login."""

DEFAULT_ITERATIONS: Final = 4096


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of the two mechanisms; `number` is Kafka's in the admin protocol."""

    name: str
    number: int
    hash_name: str
    min_iterations: int = 4096


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
SCRAM_MECHANISMS: Final = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The stored form of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: ScramMechanism, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
        """Return the credential of a salted password."""
        client_key = _mac(mechanism, salted, b"Client Key")
        return cls(salt, _hash(mechanism, client_key), _mac(mechanism, salted, b"Server Key"), iterations)

    @classmethod
    def of_password(cls, mechanism: ScramMechanism, salt: bytes, password: str, iterations: int) -> ScramCredential:
        """Return the credential of a password; as in Kafka its UTF-8 bytes are used unchanged, without SASLprep."""
        import hashlib

        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.of_salted(mechanism, salt, salted, iterations)


# RFC 5802, section 7. Of the channel binding flags only "n" (not supported) and "y" (server seems not to support
# it) can be served. Patterns and cryptography are loaded on first use: a broker without SASL starts faster.
_SASL_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST = (
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_SASL_NAME}))?,)(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})"
    r"(?:,[^\x00]*)?)"
)
_CLIENT_FINAL = (
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>{_PRINTABLE})(?:,[^\x00]*?)?)"
    r",p=(?P<proof>[A-Za-z0-9/+=]+)"
)


class ScramServer:
    """One exchange: `evaluate` takes the client's two messages in turn."""

    def __init__(
        self, mechanism: ScramMechanism, credential_of: Callable[[str], ScramCredential | None], nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._server_nonce = nonce
        self._credential: ScramCredential | None = None
        self._first: tuple[str, str, str, str] | None = None
        self.complete = False
        self.user = ""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a message.

        Raises:
            SaslError: if the client is not authenticated, or does not speak SCRAM; the exchange is over.
        """
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise SaslError("a SCRAM message is not UTF-8") from None
        if self._first is None:
            return self._evaluate_first(message)
        if self.complete:
            raise SaslError("a SCRAM message after the last one")
        return self._evaluate_final(message, self._first)

    def _evaluate_first(self, message: str) -> bytes:
        match = _pattern(_CLIENT_FIRST).fullmatch(message)
        if match is None:
            raise SaslError("the first SCRAM message is malformed")
        user = match["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._credential_of(user)
        if credential is None:
            raise SaslError(f"user {user!r} has no credential for {self._mechanism.name}")
        if match["authzid"] not in (None, match["name"]):
            raise SaslError(
                f"user {user!r} asks to act as another",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        if credential.iterations < self._mechanism.min_iterations:
            raise SaslError(f"the credential of {user!r} has too few iterations")
        nonce = match["nonce"] + self._server_nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={nonce},s={salt},i={credential.iterations}"
        self._credential, self.user = credential, user
        self._first = (match["header"], match["bare"], nonce, answer)
        return answer.encode()

    def _evaluate_final(self, message: str, first: tuple[str, str, str, str]) -> bytes:
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None
        header, bare, nonce, server_first = first
        match = _pattern(_CLIENT_FINAL).fullmatch(message)
        if match is None:
            raise SaslError(f"the final SCRAM message of {self.user!r} is malformed")
        import hmac

        if not hmac.compare_digest(match["nonce"].encode(), nonce.encode()):
            raise SaslError(f"the final SCRAM message of {self.user!r} has another nonce")
        if match["binding"] != base64.b64encode(header.encode()).decode():
            raise SaslError(f"the final SCRAM message of {self.user!r} has another channel binding than the first")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise SaslError(f"the proof of {self.user!r} is not in base 64") from None
        signed = f"{bare},{server_first},{match['without_proof']}".encode()
        signature = _mac(mechanism, credential.stored_key, signed)
        client_key = bytes(left ^ right for left, right in zip(signature, proof, strict=False))
        if not hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key):
            raise SaslError(f"wrong password of {self.user!r}")
        self.complete = True
        return b"v=" + base64.b64encode(_mac(mechanism, credential.server_key, signed))


def _mac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    import hmac

    return hmac.digest(key, data, mechanism.hash_name)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    import hashlib

    return hashlib.new(mechanism.hash_name, data).digest()


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)
