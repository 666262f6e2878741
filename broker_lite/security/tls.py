"""TLS contexts from Kafka's settings, and errors in the terms of those settings.

Keys and certificates are read once, when the broker starts. Stores of Java are converted to PEM first.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from sparkonce.broker_lite.security.acls import ANONYMOUS, USER_PREFIX
from sparkonce.broker_lite.security.principals import mapped, subject_of
from sparkonce.broker_lite.security.settings import ListenerConfig, TlsConfig
from sparkonce.kafka.key_stores import KeyStore, KeyStoreError, read_key_store
from sparkonce.kafka.tls import load_chain, weakness

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsError(Exception):
    """Keys or certificates cannot be used; the message names the setting."""


def server_context(listener: ListenerConfig) -> ssl.SSLContext:
    """Return the context of a TLS listener. Raises TlsError if keys or certificates cannot be read or do not match."""
    tls = listener.tls
    assert tls is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in tls.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[tls.client_auth]
    _load_key(context, tls, listener.name)
    _load_authorities(context, tls, listener.name)
    return context


def _load_key(context: ssl.SSLContext, tls: TlsConfig, listener: str) -> None:
    where, key_password = f"listener {listener}: ssl.keystore.location={tls.keystore_location}", tls.key_password
    if tls.keystore_location is None:
        where = f"listener {listener}: ssl.keystore.key and ssl.keystore.certificate.chain"
        assert tls.key is not None
        assert tls.certificate_chain is not None
        text = f"{_lines(tls.key)}\n{_lines(tls.certificate_chain)}\n".encode()
    else:
        text = _read(where, tls.keystore_location)
        store = _store(where, text, tls.keystore_password, tls.key_password)
        if store is not None and store.key is None:
            raise TlsError(f"{where} cannot be used: there is no private key in this store")
        if store is not None and store.key is not None:
            text, key_password = (store.key + store.chain).encode(), None
    try:
        load_chain(context, text, key_password, "ssl.key.password")
    except KeyStoreError as error:
        raise TlsError(f"{where} cannot be used: {error}") from None


def _load_authorities(context: ssl.SSLContext, tls: TlsConfig, listener: str) -> None:
    where = f"listener {listener}: ssl.truststore.location={tls.truststore_location}"
    if tls.truststore_location is not None:
        text = _read(where, tls.truststore_location)
        store = _store(where, text, tls.truststore_password, None, with_key=False)
        if store is not None:
            text = store.trusted.encode()
    elif tls.truststore_certificates is not None:
        where = f"listener {listener}: ssl.truststore.certificates"
        text = _lines(tls.truststore_certificates).encode()
    else:
        if context.verify_mode is not ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(cadata=text.decode("ascii", "ignore"))  # comments may be in any script
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "no certificates that could be trusted"
        raise TlsError(f"{where} cannot be used: {reason}") from None
    # As in Java, each certificate in it is trusted, not only roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _read(where: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise TlsError(f"{where} cannot be read: {error.strerror}") from None


def _store(
    where: str, data: bytes, password: str | None, key_password: str | None, *, with_key: bool = True
) -> KeyStore | None:
    """Read a JKS or PKCS12 store, whatever type is set; None if it is neither, as a PEM file is."""
    try:
        return read_key_store(data, password, key_password, with_key=with_key)
    except KeyStoreError as error:
        setting = "ssl.keystore.password" if with_key else "ssl.truststore.password"
        raise TlsError(f"{where} cannot be read: {error} ({setting})") from None


def _lines(pem: str) -> str:
    """Restore line ends of PEM text in a properties file: there they are written as a backslash and an n."""
    return pem.replace("\\n", "\n").strip()


def principal_of(connection: ssl.SSLObject, tls: TlsConfig) -> str:
    """Return the principal of the peer. Raises PrincipalError if no rule matches the name in the certificate."""
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    return USER_PREFIX + mapped(subject_of(certificate), tls.principal_rules)


def explain(error: ssl.SSLError) -> str:
    """Describe in a client's words why a handshake failed."""
    weak = weakness(error)
    if weak is not None:
        return f"the client's certificate is refused: {weak}"
    reason = error.reason or str(error)
    if reason in (
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "UNEXPECTED_MESSAGE",
        "BAD_PACKET_LENGTH",
        "UNKNOWN_PROTOCOL",
    ):
        return f"what came is not TLS ({reason}); the client's security.protocol must be SSL or SASL_SSL here"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return f"{reason}: ssl.client.auth=required"
    return reason
