"""TLS contexts from Kafka's settings, and errors in the terms of those settings.

Keys and certificates are read once, when the broker starts. The private key is passed to OpenSSL through a file, since
it accepts nothing else; a key in the settings goes through a temporary file that only its owner can read
and that is removed when the context is created.
"""

from __future__ import annotations

import ssl
import tempfile

from sparkonce.broker_lite.security.acls import ANONYMOUS, USER_PREFIX
from sparkonce.broker_lite.security.principals import mapped, subject_of
from sparkonce.broker_lite.security.settings import ListenerConfig, TlsConfig

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsError(Exception):
    """Keys or certificates cannot be used; the message names the setting."""


def server_context(listener: ListenerConfig) -> ssl.SSLContext:
    """Return the context of a TLS listener.

    Raises:
        TlsError: if keys or certificates cannot be read or do not match.
    """
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
    where = f"listener {listener}: ssl.keystore.location={tls.keystore_location}"
    try:
        if tls.keystore_location is not None:
            _load_chain(context, tls.keystore_location, tls)
        else:
            where = f"listener {listener}: ssl.keystore.key and ssl.keystore.certificate.chain"
            assert tls.key is not None
            assert tls.certificate_chain is not None
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(f"{_lines(tls.key)}\n{_lines(tls.certificate_chain)}\n")
                file.flush()
                _load_chain(context, file.name, tls)
    except ssl.SSLError as error:
        reason = error.reason or "no private key and certificate chain in PEM, or a wrong ssl.key.password"
        raise TlsError(f"{where} cannot be used: {reason}") from None
    except OSError as error:
        raise TlsError(f"{where} cannot be read: {error.strerror}") from None


def _load_chain(context: ssl.SSLContext, path: str, tls: TlsConfig) -> None:
    def password() -> str:
        # Without this, OpenSSL would prompt on the terminal.
        if tls.key_password is None:
            raise TlsError("the private key is encrypted: set ssl.key.password")
        return tls.key_password

    context.load_cert_chain(path, password=password)


def _load_authorities(context: ssl.SSLContext, tls: TlsConfig, listener: str) -> None:
    where = f"listener {listener}: ssl.truststore.location={tls.truststore_location}"
    try:
        if tls.truststore_location is not None:
            context.load_verify_locations(cafile=tls.truststore_location)
        elif tls.truststore_certificates is not None:
            where = f"listener {listener}: ssl.truststore.certificates"
            context.load_verify_locations(cadata=_lines(tls.truststore_certificates))
        elif context.verify_mode is not ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except ssl.SSLError as error:
        raise TlsError(f"{where} cannot be used: {error.reason or 'no certificates in PEM'}") from None
    except OSError as error:
        raise TlsError(f"{where} cannot be read: {error.strerror}") from None


def _lines(pem: str) -> str:
    """Restore line ends of PEM text in a properties file: there they are written as a backslash and an n."""
    return pem.replace("\\n", "\n").strip()


def principal_of(connection: ssl.SSLObject, tls: TlsConfig) -> str:
    """Return the principal of the peer.

    Raises:
        PrincipalError: if no rule matches the name in the certificate.
    """
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    return USER_PREFIX + mapped(subject_of(certificate), tls.principal_rules)


def explain(error: ssl.SSLError) -> str:
    """Return why a handshake failed, in a client's terms."""
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
