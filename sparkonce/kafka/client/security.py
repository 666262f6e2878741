"""The ``kafka.ssl.*`` and ``kafka.sasl.*`` settings: declared once, and read into `Tls` and `Sasl`.

Names are those of Kafka's Java clients, and for certificates and users also those of librdkafka. No secret is in an
error, nor in a ``repr``. Files are not read here but where a connection is opened (`kafka.client.tls`),
which may be on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparkonce.kafka.jaas import JaasError, LoginModule, read_jaas
from sparkonce.options import KAFKA_FORMAT as FORMAT
from sparkonce.options import OptionError, SettingTable
from sparkonce.settings import boolean, long, names, password, settings_of, text

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STORE_TYPES = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_OLD_TLS_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_LOGIN_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""Apache Kafka's login modules without their package, and the mechanisms of each."""
_OAUTH_HANDLER = "OAuthBearerLoginCallbackHandler"
_OAUTH = "sasl.oauthbearer."


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates and keys, and the allowed versions and ciphers. Contents, if set, take precedence over locations."""

    ca_location: str | None = None
    """A file of certificates to trust: PEM, PKCS12 or JKS, detected from its content."""
    ca_pem: str | None = field(default=None, repr=False)
    ca_password: str | None = field(default=None, repr=False)
    certificate_location: str | None = None
    """A file of this client's certificate, with the key unless ``key_location`` has it: PEM, PKCS12 or JKS."""
    certificate_pem: str | None = field(default=None, repr=False)
    certificate_password: str | None = field(default=None, repr=False)
    """The password of the store ``certificate_location``."""
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS
    ciphers: tuple[str, ...] = ()
    """Java's or OpenSSL's names; empty: OpenSSL's default."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """The source of tokens: a client's credentials, or a file that another process refreshes."""

    token_url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    url_encoded: bool = False
    """Whether id and secret are encoded before they are joined (RFC 6749 requires it, not every server does it)."""
    timeout_ms: int = 10_000
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with the token (KIP-342)."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """The user, and the mechanism."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    oauth: OAuth | None = None


_PATH = "path"
_PEM_TEXT = "PEM text"


def _upper(allowed: tuple[str, ...], otherwise: str = "") -> Callable[[str], str]:
    """Return a function that reads one of these words, in any case."""

    def parse(text: str) -> str:
        if text.upper() not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}{otherwise}")
        return text.upper()

    return parse


_store_type = _upper(STORE_TYPES, "; keytool -importkeystore … -deststoretype PKCS12 converts others")


def _checks_hosts(text: str) -> bool:
    """Read ``ssl.endpoint.identification.algorithm``."""
    if text.lower() not in ("https", "", "none"):
        raise ValueError("expected https, or nothing to accept a certificate for any host name")
    return text.lower() == "https"


def _versions(text: str) -> tuple[str, ...]:
    """Read ``ssl.enabled.protocols``: versions that OpenSSL no longer supports are ignored, if there are others."""
    given = [name.strip() for name in text.split(",") if name.strip()] or TLS_VERSIONS
    odd = [name for name in given if name not in (*TLS_VERSIONS, *_OLD_TLS_VERSIONS)]
    found = tuple(name for name in TLS_VERSIONS if name in given)
    if odd or not found:
        raise ValueError("expected TLSv1.2, TLSv1.3 or both, separated by a comma")
    return found


def _protocol(text: str) -> tuple[str, ...]:
    """Read ``ssl.protocol``: the newest allowed version."""
    if text not in ("", "TLS", *TLS_VERSIONS):
        raise ValueError("expected TLS, TLSv1.2 or TLSv1.3")
    return TLS_VERSIONS if text in ("", "TLS") else TLS_VERSIONS[: TLS_VERSIONS.index(text) + 1]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings of a reader or a producer, under the names of Kafka's Java clients and librdkafka."""

    security_protocol: str = text(
        "PLAINTEXT",
        "whether the connection is encrypted, and whether the client authenticates",
        value="|".join(PROTOCOLS),
        parse=_upper(PROTOCOLS),
    )
    ssl_truststore_location: str | None = text(
        None,
        "trusted certificates: a file in PEM, PKCS12 or JKS. By default the system's authorities are trusted",
        value=_PATH,
    )
    ssl_truststore_password: str | None = password(None, "the password of a PKCS12 or JKS file", value="text")
    ssl_truststore_type: str | None = text(
        None,
        "the format of the file; accepted, but detected from its content",
        value="|".join(STORE_TYPES),
        parse=_store_type,
    )
    ssl_truststore_certificates: str | None = text(None, "the certificates themselves", value=_PEM_TEXT)
    ssl_ca_location: str | None = text(None, "librdkafka's name for ssl.truststore.location", value=_PATH)
    ssl_ca_pem: str | None = text(None, "librdkafka's name for ssl.truststore.certificates", value=_PEM_TEXT)
    ssl_keystore_location: str | None = text(
        None,
        "this client's private key and certificates: a file in PEM, PKCS12 or JKS. If it has several keys, the first "
        "is used",
        value=_PATH,
    )
    ssl_keystore_password: str | None = password(None, "the password of a PKCS12 or JKS file", value="text")
    ssl_keystore_type: str | None = text(
        None,
        "the format of the file; accepted, but detected from its content",
        value="|".join(STORE_TYPES),
        parse=_store_type,
    )
    ssl_keystore_certificate_chain: str | None = text(
        None, "the client's certificates themselves; with ssl.keystore.key", value=_PEM_TEXT
    )
    ssl_keystore_key: str | None = password(None, "the private key itself", value=_PEM_TEXT)
    ssl_key_password: str | None = password(None, "the password of the private key, if it has its own", value="text")
    ssl_certificate_location: str | None = text(
        None, "librdkafka's name: a PEM file of the client's certificates", value=_PATH
    )
    ssl_key_location: str | None = text(None, "librdkafka's name: a PEM file of the private key", value=_PATH)
    check_hostname: bool = text(
        True,
        "`https`: the certificate must match the broker's host name. Empty: the host name is not checked",
        name="ssl.endpoint.identification.algorithm",
        default_text="https",
        value="https or nothing",
        parse=_checks_hosts,
    )
    ssl_enabled_protocols: tuple[str, ...] = text(
        TLS_VERSIONS,
        "the enabled protocol versions; older ones in the list are never used",
        value="TLSv1.2 and TLSv1.3, separated by a comma",
        parse=_versions,
    )
    ssl_protocol: tuple[str, ...] = text(
        TLS_VERSIONS,
        "the newest protocol version that may be used",
        default_text="TLS",
        value="TLS|TLSv1.2|TLSv1.3",
        parse=_protocol,
    )
    ssl_cipher_suites: tuple[str, ...] = names(
        (),
        "the cipher suites that may be used, by Java's names or OpenSSL's. With TLS 1.3 the server chooses, and a "
        "connection with any other suite is closed",
        default_text="OpenSSL's",
        value="names, separated by commas",
    )


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Authentication settings of a reader or a producer."""

    sasl_mechanism: str = text(
        "",
        "the mechanism by which the client authenticates",
        default_text="required with SASL",
        value="|".join(MECHANISMS),
        parse=str.upper,
    )
    sasl_jaas_config: str | None = password(
        None, "a login module's line, as in Java's client: " + ", ".join(_LOGIN_MODULES), value="text"
    )
    sasl_username: str | None = text(None, "librdkafka's name for username in the line", value="text")
    sasl_password: str | None = password(None, "librdkafka's name for password in the line", value="text")
    token_url: str = text(
        "",
        "OAUTHBEARER: the token endpoint (client credentials), or with `file:` a file that holds a token",
        name=f"{_OAUTH}token.endpoint.url",
        value="http(s) or file URL",
    )
    client_id: str | None = text(
        None,
        "OAUTHBEARER: the client id; also `clientId` in the line",
        name=f"{_OAUTH}client.credentials.client.id",
        value="text",
    )
    client_secret: str | None = password(
        None,
        "OAUTHBEARER: the client secret; also `clientSecret` in the line",
        name=f"{_OAUTH}client.credentials.client.secret",
        value="text",
    )
    scope: str | None = text(
        None, "OAUTHBEARER: the requested scope; also `scope` in the line", name=f"{_OAUTH}scope", value="text"
    )
    url_encoded: bool = boolean(
        False, "OAUTHBEARER: whether id and secret are URL-encoded in the header", name=f"{_OAUTH}header.urlencode"
    )
    sasl_login_connect_timeout_ms: int = long(
        10_000, "OAUTHBEARER: how long the token endpoint may take to respond", least=1
    )
    sasl_login_callback_handler_class: str | None = text(
        None,
        "OAUTHBEARER: only Kafka's own class is accepted; tokens are requested in the same way here",
        value=f"…{_OAUTH_HANDLER}",
    )


_TLS, _SASL = settings_of(TlsSettings, group="TLS"), settings_of(SaslSettings, group="Authentication")
SECURITY = {**_TLS, **_SASL}
"""Settings of readers and producers for TLS and authentication."""

_MECHANISMS_TEXT = ", ".join(MECHANISMS)
_JAVA_CLASS = "a Java class cannot be loaded"
_KERBEROS = f"Kerberos (GSSAPI) is not; kafka.sasl.mechanism is one of {_MECHANISMS_TEXT}"
_ASSERTION = (
    "tokens are obtained by client credentials, or from a file: set kafka.sasl.oauthbearer.token.endpoint.url and "
    "kafka.sasl.oauthbearer.client.credentials.client.id, or have another process refresh a file and set file:…"
)
_JAVA_TLS = f"{_JAVA_CLASS}, and TLS is that of Python's OpenSSL: leave it out"
_STORES = "set key and certificates in PEM, PKCS12 or JKS"

REFUSED_SECURITY = {
    "sasl.kerberos.*": _KERBEROS,
    "sasl.client.callback.handler.class": f"{_JAVA_CLASS}; kafka.sasl.mechanism is one of {_MECHANISMS_TEXT}",
    "sasl.login.class": f"{_JAVA_CLASS}; kafka.sasl.mechanism is one of {_MECHANISMS_TEXT}",
    f"{_OAUTH}jwt.retriever.class": f"{_JAVA_CLASS}; {_ASSERTION}",
    f"{_OAUTH}assertion.*": _ASSERTION,
    "ssl.engine.factory.class": f"{_JAVA_TLS}; {_STORES}",
    "ssl.provider": _JAVA_TLS,
    "security.providers": _JAVA_TLS,
}
"""Settings that neither readers nor producers support, and what to use instead."""

_BROKERS = "tokens are validated by the broker; the client sends them unchanged"
_REFRESH = "a token is requested when a connection is opened and the last one is about to expire"
_OPENSSL = "TLS is that of Python's OpenSSL, which has one algorithm for this"
SECURITY_WITHOUT_EFFECT = {
    **dict.fromkeys(
        [
            f"{_OAUTH}{name}"
            for name in (
                "clock.skew.seconds",
                "expected.audience",
                "expected.issuer",
                "jwks.endpoint.refresh.ms",
                "jwks.endpoint.retry.backoff.max.ms",
                "jwks.endpoint.retry.backoff.ms",
                "jwks.endpoint.url",
                "jwt.validator.class",
                "scope.claim.name",
                "sub.claim.name",
            )
        ],
        _BROKERS,
    ),
    **dict.fromkeys(
        [
            f"sasl.login.{name}"
            for name in (
                "read.timeout.ms",
                "refresh.buffer.seconds",
                "refresh.min.period.seconds",
                "refresh.window.factor",
                "refresh.window.jitter",
                "retry.backoff.max.ms",
                "retry.backoff.ms",
            )
        ],
        _REFRESH,
    ),
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
}
"""Settings without effect for readers and producers, and why."""


def read_security(given: Mapping[str, str], table: SettingTable) -> tuple[Tls | None, Sasl | None]:
    """Read the security settings of a connection. The names must have been checked before.

    Raises:
        OptionError: if a setting is missing, unreadable or at odds with another. Secrets are not shown.
    """
    protocol = table.values(given, {"security.protocol": _TLS["security.protocol"]})["security_protocol"]
    return (
        _tls(TlsSettings(**table.values(given, _TLS))) if protocol.endswith("SSL") else None,
        _sasl(SaslSettings(**table.values(given, _SASL))) if protocol.startswith("SASL") else None,
    )


def _check_files(given: TlsSettings) -> None:
    """Reject contradictions that would be ignored: the system's CAs would be trusted, or no certificate be sent."""
    for name, setting in _TLS.items():
        if setting.value == _PATH and getattr(given, setting.field) == "":
            raise OptionError(f"{FORMAT}: option kafka.{name} is empty: name a file, or leave it out")
    if given.ssl_key_location and not (given.ssl_certificate_location or given.ssl_keystore_location):
        raise OptionError(
            f"{FORMAT}: options kafka.ssl.key.location and kafka.ssl.certificate.location go together, and the "
            "certificate is missing"
        )


def _tls(given: TlsSettings) -> Tls:
    _check_files(given)
    if (given.ssl_keystore_key is None) != (given.ssl_keystore_certificate_chain is None):
        raise OptionError(
            f"{FORMAT}: options kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together, and one "
            "of them is missing"
        )
    versions = tuple(name for name in given.ssl_enabled_protocols if name in given.ssl_protocol)
    if not versions:
        raise OptionError(
            f"{FORMAT}: options kafka.ssl.protocol and kafka.ssl.enabled.protocols leave no version of TLS that both "
            "allow"
        )
    return Tls(
        ca_location=given.ssl_truststore_location or given.ssl_ca_location,
        ca_pem=given.ssl_truststore_certificates or given.ssl_ca_pem,
        ca_password=given.ssl_truststore_password,
        certificate_location=given.ssl_keystore_location or given.ssl_certificate_location,
        certificate_pem=given.ssl_keystore_certificate_chain,
        certificate_password=given.ssl_keystore_password,
        key_location=given.ssl_key_location,
        key_pem=given.ssl_keystore_key,
        key_password=given.ssl_key_password,
        check_hostname=given.check_hostname,
        versions=versions,
        ciphers=given.ssl_cipher_suites,
    )


def _sasl(given: SaslSettings) -> Sasl:
    mechanism = given.sasl_mechanism
    if mechanism not in MECHANISMS:
        shown = f"={mechanism!r} is not supported" if mechanism else " is missing, and Kafka's own default is Kerberos"
        raise OptionError(f"{FORMAT}: option kafka.sasl.mechanism{shown}; use one of {_MECHANISMS_TEXT}")
    module = _login_module(given.sasl_jaas_config, mechanism) if given.sasl_jaas_config is not None else None
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, "", "", _oauth(given, module))
    username, password = given.sasl_username, given.sasl_password
    if module is not None:
        username, password = module.options.get("username"), module.options.get("password")
    if not username or not password:
        raise OptionError(
            f"{FORMAT}: kafka.security.protocol asks for SASL, so kafka.sasl.username and kafka.sasl.password (or "
            "kafka.sasl.jaas.config) are required"
        )
    return Sasl(mechanism, username, password)


def _login_module(line: str, mechanism: str) -> LoginModule:
    instead = "set kafka.sasl.username and kafka.sasl.password instead"
    try:
        module = read_jaas(line)
    except JaasError as error:
        raise OptionError(f"{FORMAT}: option kafka.sasl.jaas.config cannot be read: {error}. Or {instead}") from None
    name = module.name.rpartition(".")[2]
    if name not in _LOGIN_MODULES:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.jaas.config names a login module other than {', '.join(_LOGIN_MODULES)}; "
            f"set kafka.sasl.mechanism too, or {instead}"
        )
    if mechanism not in _LOGIN_MODULES[name]:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.jaas.config names {name}, which is not for "
            f"kafka.sasl.mechanism={mechanism}; use that of {' or '.join(_LOGIN_MODULES[name])}"
        )
    return module


def _oauth(given: SaslSettings, module: LoginModule | None) -> OAuth:
    handler = given.sasl_login_callback_handler_class
    if handler is not None and handler.rpartition(".")[2] != _OAUTH_HANDLER:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.login.callback.handler.class={handler}: {_JAVA_CLASS}; {_ASSERTION}"
        )
    line = module.options if module is not None else {}
    url = given.token_url
    client_id = given.client_id or line.get("clientId")
    secret = given.client_secret or line.get("clientSecret")
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise OptionError(
            f"{FORMAT}: kafka.sasl.mechanism=OAUTHBEARER needs kafka.sasl.oauthbearer.token.endpoint.url, an http, "
            "https or file URL"
        )
    if "@" in urlsplit(url).netloc:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.oauthbearer.token.endpoint.url must be without user and password; set them "
            f"as {_OAUTH_NAMES}"
        )
    if scheme != "file" and not (client_id and secret):
        raise OptionError(
            f"{FORMAT}: kafka.sasl.mechanism=OAUTHBEARER needs {_OAUTH_NAMES} (or clientId and clientSecret in "
            "kafka.sasl.jaas.config)"
        )
    prefix = "extension_"
    return OAuth(
        url,
        client_id,
        secret,
        given.scope or line.get("scope"),
        given.url_encoded,
        given.sasl_login_connect_timeout_ms,
        tuple(sorted((name.removeprefix(prefix), text) for name, text in line.items() if name.startswith(prefix))),
    )


_OAUTH_NAMES = f"kafka.{_OAUTH}client.credentials.client.id and kafka.{_OAUTH}client.credentials.client.secret"
