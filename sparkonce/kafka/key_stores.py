"""Key and trust stores of Java: PKCS12 and JKS, converted to PEM for OpenSSL.

PKCS12 is read by `cryptography`. JKS is Sun's own format, and small, so it is read here: entries (private keys with
their chains, and trusted certificates), then a digest over the password and all that precedes it
(``sun.security.provider.JavaKeyStore``). A private key in it is encrypted with a key stream derived from the password
with SHA-1 (``sun.security.provider.KeyProtector``).

The library pyjks (20.0) reads it too. It supports no Python after 3.8, and needs two more compiled packages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

JKS_MAGIC = 0xFEEDFEED
JCEKS_MAGIC = 0xCECECECE
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_SUN_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1."""


class KeyStoreError(ValueError):
    """A store cannot be read; the message has the reason, and none of its contents."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """The contents of a store, in PEM."""

    key: str | None = field(default=None, repr=False)
    """The first private key."""
    chain: str = ""
    """Its certificate chain, the key's own certificate first."""
    trusted: str = ""
    """All certificates without a key."""


def read_key_store(
    data: bytes, password: str | None, key_password: str | None = None, *, with_key: bool = True
) -> KeyStore | None:
    """Read a PKCS12 or JKS store; None if it is neither, as a PEM file is.

    Without ``with_key``, as of a trust store, the private keys of a JKS store are ignored, as Java does: they may
    have a password of their own.

    Raises:
        KeyStoreError: if the password is missing or wrong, or the store is damaged or of another kind.
    """
    (magic,) = struct.unpack_from(">I", data) if len(data) >= 4 else (0,)
    if magic == JCEKS_MAGIC:
        raise KeyStoreError("it is a JCEKS store; keytool -importkeystore … -deststoretype PKCS12 converts it")
    try:
        if magic == JKS_MAGIC:
            return _jks(data, password, password if key_password is None else key_password, with_key=with_key)
        if data[:1] == b"\x30":
            return _pkcs12(data, password)
    except KeyStoreError:
        raise
    except (struct.error, IndexError, ValueError) as error:  # the last one also for a password that is no text
        raise KeyStoreError("it is damaged") from error
    return None


def pem(label: str, der: bytes) -> str:
    """Return bytes in PEM form."""
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


def _pkcs12(data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ModuleNotFoundError as error:
        raise KeyStoreError(
            "it is a PKCS12 store, which needs the package cryptography: pip install 'sparkonce[broker]'"
        ) from error

    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise KeyStoreError(
            "it is a PKCS12 store, and needs a password" if password is None else "the password is wrong"
        ) from error
    others = "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in store.additional_certs)
    if store.key is None or store.cert is None:
        return KeyStore(trusted=others)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = store.cert.certificate.public_bytes(Encoding.PEM).decode()
    return KeyStore(key, own + others, own + others)


def _jks(data: bytes, password: str | None, key_password: str | None, *, with_key: bool) -> KeyStore:
    if password is not None:
        digest = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + data[:-_DIGEST_BYTES]).digest()  # noqa: S324
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise KeyStoreError("the password is wrong, or it is damaged")
    keys: list[tuple[bytes, list[bytes]]] = []
    trusted: list[bytes] = []
    for protected, certificates in _entries(data):
        if protected is None:
            trusted += certificates
        else:
            keys.append((protected, certificates))
    key = None
    if keys and with_key:
        if key_password is None:
            raise KeyStoreError("it is a JKS store with a private key, and needs a password")
        key = pem("PRIVATE KEY", _unprotected(keys[0][0], key_password))
    chain = "".join(pem("CERTIFICATE", each) for each in keys[0][1]) if keys else ""
    return KeyStore(key, chain, "".join(pem("CERTIFICATE", each) for each in trusted))


def _entries(data: bytes) -> Iterator[tuple[bytes | None, list[bytes]]]:
    """Yield each entry's protected key, if it has one, and its certificates."""
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (1, 2):
        raise KeyStoreError("it is damaged, or of a later version")
    position = 12

    def block(form: str) -> bytes:
        nonlocal position
        (size,) = struct.unpack_from(form, data, position)
        start = position + struct.calcsize(form)
        position = start + size
        if position > len(data) - _DIGEST_BYTES:
            raise IndexError("an entry is longer than the store")
        return data[start:position]

    def certificate() -> bytes:
        if version == 2:
            block(">H")  # the type, X.509
        return block(">I")

    for _ in range(count):
        (kind,) = struct.unpack_from(">I", data, position)
        position += 4
        block(">H")  # the alias
        position += 8  # its creation time
        if kind == _KEY_ENTRY:
            protected = block(">I")
            (chained,) = struct.unpack_from(">I", data, position)
            position += 4
            yield protected, [certificate() for _ in range(chained)]
        elif kind == _CERTIFICATE_ENTRY:
            yield None, [certificate()]
        else:
            raise KeyStoreError("it is damaged, or of a kind that JKS does not have")


def _unprotected(protected: bytes, password: str) -> bytes:
    """Return the key, in PKCS8, of an ``EncryptedPrivateKeyInfo`` of Sun's key protector."""
    secret = password.encode("utf-16-be")
    algorithm, value = _sequence(_sequence(protected)[0])
    if _sequence(algorithm)[0] != _SUN_KEY_PROTECTOR:
        raise KeyStoreError("its private key is encrypted in a way that JKS does not have")
    stream, hidden, digest = value[:20], value[20:-20], value[-20:]
    plain = bytearray()
    for start in range(0, len(hidden), _DIGEST_BYTES):
        stream = hashlib.sha1(secret + stream).digest()  # noqa: S324 - it is what the format has
        plain += bytes(a ^ b for a, b in zip(hidden[start : start + _DIGEST_BYTES], stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), digest):  # noqa: S324
        raise KeyStoreError("the password of its private key is wrong (ssl.key.password)")
    return bytes(plain)


def _sequence(data: bytes) -> list[bytes]:
    """Return the contents of the consecutive DER values in ``data``."""
    found = []
    position = 0
    while position < len(data):
        size = data[position + 1]
        position += 2
        if size & 0x80:
            wide = size & 0x7F
            size = int.from_bytes(data[position : position + wide], "big")
            position += wide
        if position + size > len(data):
            raise IndexError("a value is longer than what it is in")
        found.append(data[position : position + size])
        position += size
    return found
