"""The client's side of TLS: a context from the settings, and the options of a connection that uses it.

Stores of Java are converted to PEM first.
"""

from __future__ import annotations

import re
import socket
import ssl
import textwrap
from pathlib import Path

from sparkonce.kafka.client.security import Tls
from sparkonce.kafka.key_stores import KeyStore, KeyStoreError, read_key_store
from sparkonce.kafka.tls import load_chain, weakness
from sparkonce.options import OptionError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TLS_1_3 = re.compile(r"TLS_(?!.*_WITH_)")
"""The form of TLS 1.3's suite names in Java and in OpenSSL: they name no key exchange."""
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Build a context that checks the broker's certificate, against the system's authorities by default.

    Raises:
        OptionError: if certificates or keys cannot be read or do not match; it names setting and file, and no secret.
    """
    context = _trusting(tls) if tls.ca_location or tls.ca_pem else ssl.create_default_context()
    context.check_hostname = tls.check_hostname
    versions = [_VERSIONS[name] for name in _allowed_versions(tls)]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    older = [openssl_name(name) for name in tls.ciphers if not _TLS_1_3.match(name)]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise OptionError(
                f"kafka_once: option kafka.ssl.cipher.suites={','.join(tls.ciphers)!r} names no suite that OpenSSL has "
                "on this machine"
            ) from error
    if tls.certificate_location or tls.certificate_pem:
        _load_certificate(context, tls)
    return context


def wrap(raw: socket.socket, tls: Tls, host: str) -> ssl.SSLSocket:
    """Start TLS. Raises OptionError as `tls_context`, or OSError if the two sides do not agree."""
    try:
        wrapped = tls_context(tls).wrap_socket(raw, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        weak = weakness(error)
        if weak is None:
            raise
        raise ssl.SSLCertVerificationError(
            error.errno, f"the certificate of broker {host} is refused: {weak}"
        ) from error
    agreed = wrapped.cipher()
    if tls.ciphers and agreed is not None and agreed[0] not in {openssl_name(name) for name in tls.ciphers}:
        wrapped.close()
        raise PermissionError(f"broker {host} chose the cipher suite {agreed[0]}, not in kafka.ssl.cipher.suites")
    return wrapped


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite, given Java's (as in RFC 5246) or OpenSSL's."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"
    cipher = re.sub(r"_CBC(?=_SHA)", "", re.sub(r"^(AES|CAMELLIA|ARIA)_(?=\d)", r"\1", cipher))
    start = "" if exchange == "RSA" else f"{exchange}-"
    return (start + cipher).replace("_", "-")


def _allowed_versions(tls: Tls) -> tuple[str, ...]:
    """Exclude a version without an allowed suite: OpenSSL sets the suites of TLS 1.3 separately from older ones."""
    if not tls.ciphers:
        return tls.versions
    newer = [bool(_TLS_1_3.match(name)) for name in tls.ciphers]
    found = tuple(name for name in tls.versions if (name == "TLSv1.3") in newer)
    if not found:
        raise OptionError(
            "kafka_once: options kafka.ssl.cipher.suites and kafka.ssl.enabled.protocols do not match: none of the "
            f"suites is of {' or '.join(tls.versions)}"
        )
    return found


def _trusting(tls: Tls) -> ssl.SSLContext:
    if tls.ca_pem:
        where, text = "kafka.ssl.truststore.certificates", lines(tls.ca_pem)
    else:
        assert tls.ca_location is not None
        where = f"kafka.ssl.truststore.location={tls.ca_location}"
        data = _bytes(where, tls.ca_location)
        store = _store(where, data, tls.ca_password, None, "kafka.ssl.truststore.password", with_key=False)
        text = store if isinstance(store, str) else store.trusted
    if "-----BEGIN" not in text:
        raise OptionError(f"kafka_once: option {where}: there is no certificate in it that could be trusted")
    try:
        context = ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise OptionError(f"kafka_once: option {where} cannot be used: its certificates are damaged") from error
    # As in Java, each certificate in it is trusted, not only roots; and without this flag, the checks of RFC 5280 on CA
    # certificates would depend on the version of Python, which has them from 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    key_password = tls.key_password
    if tls.certificate_pem and tls.key_pem:
        where, text = "kafka.ssl.keystore.certificate.chain and .key", lines(tls.key_pem) + lines(tls.certificate_pem)
    else:
        assert tls.certificate_location is not None
        where = f"kafka.ssl.keystore.location={tls.certificate_location}"
        data = _bytes(where, tls.certificate_location)
        store = _store(where, data, tls.certificate_password, tls.key_password, "kafka.ssl.keystore.password")
        if isinstance(store, KeyStore):
            if store.key is None:
                raise OptionError(f"kafka_once: option {where}: there is no private key in this store")
            if tls.key_location:
                raise OptionError(
                    f"kafka_once: option kafka.ssl.key.location={tls.key_location} would not be used: the store "
                    f"{tls.certificate_location} has a private key of its own; leave one of them out"
                )
            text, key_password = store.key + store.chain, None
        else:
            text = store
            if tls.key_location:
                text = _text(f"kafka.ssl.key.location={tls.key_location}", tls.key_location) + store
    _load_chain(context, text, key_password, where)


def _load_chain(context: ssl.SSLContext, text: str, key_password: str | None, where: str) -> None:
    try:
        load_chain(context, text.encode(), key_password, "kafka.ssl.key.password")
    except KeyStoreError as error:
        raise OptionError(f"kafka_once: option {where} cannot be used: {error}") from None


def _store(
    where: str,
    data: bytes,
    password: str | None,
    key_password: str | None,
    password_name: str,
    *,
    with_key: bool = True,
) -> KeyStore | str:
    """Read a file of certificates, or of a key and certificates: the contents of a Java store, or else its text."""
    try:
        found = read_key_store(data, password, key_password, with_key=with_key)
    except KeyStoreError as error:
        raise OptionError(f"kafka_once: option {where} cannot be read: {error} ({password_name})") from None
    return found if found is not None else _decoded(where, data)


def _text(where: str, location: str) -> str:
    return _decoded(where, _bytes(where, location))


def _bytes(where: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise OptionError(
            f"kafka_once: option {where} cannot be read on {socket.gethostname()}: {error.strerror}; the file must be "
            "on every machine that runs tasks"
        ) from None


def _decoded(where: str, data: bytes) -> str:
    text = data.decode("ascii", "ignore")  # comments may be in any script
    if "-----BEGIN" not in text:
        raise OptionError(f"kafka_once: option {where} cannot be read: it is neither PEM, PKCS12 nor JKS")
    return text + "\n"


def lines(text: str) -> str:
    r"""Return PEM in lines, given in one line, with blanks or ``\n`` instead, as in properties files."""

    def block(found: re.Match[str]) -> str:
        label, body = found[1], found[2]
        if ":" in body:  # headers of an encrypted key in the old format, which need separate lines
            return found[0] + "\n"
        packed = "".join(body.split())
        return f"-----BEGIN {label}-----\n" + "\n".join(textwrap.wrap(packed, 64)) + f"\n-----END {label}-----\n"

    return "".join(map(block, _PEM_BLOCK.finditer(text.replace("\\n", "\n"))))
