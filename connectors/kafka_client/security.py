"""The ``kafka.ssl.*`` and ``kafka.sasl.*`` settings: declared once, and read into `Tls` and `Sasl`.

Names are those of Kafka's Java clients, and for certificates and users also those of librdkafka, since both kinds of
people come here. No secret is in an error, nor in a ``repr``. Files are not looked at here but where a connection is
made (`connectors.kafka_client.tls`), which may be on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparkonce.connectors.kafka_client.jaas import MODULES, LoginModule, read_jaas
from sparkonce.connectors.settings.options import OptionError, boolean, one_of, positive
from sparkonce.connectors.settings.setting_table import FORMAT, Setting, by_name

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STORE_TYPES = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_OLD_TLS_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_OAUTH_HANDLERS = ("OAuthBearerLoginCallbackHandler",)
_OAUTH = "sasl.oauthbearer."
_FILES = (
    "ssl.truststore.location",
    "ssl.ca.location",
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Where certificates and keys are, and what may be negotiated. Contents, where given, win over locations."""

    ca_location: str | None = None
    """A file of certificates to trust: PEM, PKCS12 or JKS, whatever it turns out to be."""
    ca_pem: str | None = field(default=None, repr=False)
    ca_password: str | None = field(default=None, repr=False)
    certificate_location: str | None = None
    """A file of this client's certificate, with the key unless ``key_location`` has it: PEM, PKCS12 or JKS."""
    certificate_pem: str | None = field(default=None, repr=False)
    certificate_password: str | None = field(default=None, repr=False)
    """Of the store that ``certificate_location`` is."""
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS
    ciphers: tuple[str, ...] = ()
    """By their names in Java or in OpenSSL; empty: OpenSSL's own choice."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """Where tokens come from: a client's credentials, or a file that another process refreshes."""

    token_url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    url_encoded: bool = False
    """Whether id and secret are encoded before they are joined (RFC 6749 requires it, not every server does it)."""
    timeout_ms: int = 10_000
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent along with the token (KIP-342)."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """The user, and the mechanism."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    oauth: OAuth | None = None


_PATH = "path"
_PEM_TEXT = "PEM text"


def _versions(text: str) -> tuple[str, ...]:
    """Read ``ssl.enabled.protocols``: versions that OpenSSL no longer offers may be in the list, if others are too."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    odd = [name for name in names if name not in (*TLS_VERSIONS, *_OLD_TLS_VERSIONS)]
    found = tuple(name for name in TLS_VERSIONS if name in names)
    if odd or not found:
        raise ValueError("expected TLSv1.2, TLSv1.3 or both, separated by a comma")
    return found


def _protocol(text: str) -> tuple[str, ...]:
    """Read ``ssl.protocol``: the newest version that may be had."""
    if text not in ("TLS", *TLS_VERSIONS):
        raise ValueError("expected TLS, TLSv1.2 or TLSv1.3")
    return TLS_VERSIONS if text == "TLS" else TLS_VERSIONS[: TLS_VERSIONS.index(text) + 1]


SECURITY = by_name(
    Setting(
        "security.protocol",
        "whether the connection is encrypted, and whether the client logs in",
        default="PLAINTEXT",
        value="|".join(PROTOCOLS),
    ),
    Setting(
        "ssl.truststore.location",
        "whose certificates are trusted: a file in PEM, PKCS12 or JKS. Without any, the system's authorities are",
        value=_PATH,
    ),
    Setting("ssl.truststore.password", "of a PKCS12 or JKS file", value="text", secret=True),
    Setting(
        "ssl.truststore.type",
        "what the file is said to be; what it is, is seen in the file",
        one_of(*STORE_TYPES),
    ),
    Setting("ssl.truststore.certificates", "the certificates themselves", value=_PEM_TEXT),
    Setting("ssl.ca.location", "librdkafka's name for ssl.truststore.location", value=_PATH),
    Setting("ssl.ca.pem", "librdkafka's name for ssl.truststore.certificates", value=_PEM_TEXT),
    Setting(
        "ssl.keystore.location",
        "this client's private key and certificates: a file in PEM, PKCS12 or JKS. Of several keys the first is used",
        value=_PATH,
    ),
    Setting("ssl.keystore.password", "of a PKCS12 or JKS file", value="text", secret=True),
    Setting(
        "ssl.keystore.type",
        "what the file is said to be; what it is, is seen in the file",
        one_of(*STORE_TYPES),
    ),
    Setting(
        "ssl.keystore.certificate.chain",
        "the client's certificates themselves; with ssl.keystore.key",
        value=_PEM_TEXT,
    ),
    Setting("ssl.keystore.key", "the private key itself", value=_PEM_TEXT, secret=True),
    Setting(
        "ssl.key.password",
        "of the private key, where it has one of its own",
        value="text",
        secret=True,
    ),
    Setting("ssl.certificate.location", "librdkafka's: a PEM file of the client's certificates", value=_PATH),
    Setting("ssl.key.location", "librdkafka's: a PEM file of the private key", value=_PATH),
    Setting(
        "ssl.endpoint.identification.algorithm",
        "`https`: the certificate must be for the host that was asked. Empty: any host will do",
        default="https",
        value="https or nothing",
    ),
    Setting(
        "ssl.enabled.protocols",
        "the versions that may be spoken; older ones in the list are never spoken",
        _versions,
        default_text="TLSv1.2,TLSv1.3",
        value="TLSv1.2 and TLSv1.3, by comma",
    ),
    Setting("ssl.protocol", "the newest version that may be spoken", _protocol, value="TLS|TLSv1.2|TLSv1.3"),
    Setting(
        "ssl.cipher.suites",
        "the suites that may be used, by Java's names or OpenSSL's. With TLS 1.3 the server chooses, and a connection "
        "with a suite that is not among these is closed",
        value="names, by comma",
        default_text="OpenSSL's",
    ),
    group="TLS",
) | by_name(
    Setting(
        "sasl.mechanism",
        "how the client logs in",
        value="|".join(MECHANISMS),
        default_text="required with SASL",
    ),
    Setting(
        "sasl.jaas.config",
        "a login module's line, as Java's client takes it: " + ", ".join(MODULES),
        value="text",
        secret=True,
    ),
    Setting("sasl.username", "librdkafka's name for username in the line", value="text"),
    Setting("sasl.password", "librdkafka's name for password in the line", value="text", secret=True),
    Setting(
        f"{_OAUTH}token.endpoint.url",
        "OAUTHBEARER: where tokens come from, by a client's credentials; `file:` a file that holds one",
        value="http(s) or file URL",
    ),
    Setting(
        f"{_OAUTH}client.credentials.client.id",
        "OAUTHBEARER: the client; also `clientId` in the line",
        value="text",
    ),
    Setting(
        f"{_OAUTH}client.credentials.client.secret",
        "OAUTHBEARER: its secret; also `clientSecret` in the line",
        value="text",
        secret=True,
    ),
    Setting(f"{_OAUTH}scope", "OAUTHBEARER: what is asked for; also `scope` in the line", value="text"),
    Setting(
        f"{_OAUTH}header.urlencode",
        "OAUTHBEARER: whether id and secret are URL-encoded in the header",
        boolean,
        False,
    ),
    Setting(
        "sasl.login.connect.timeout.ms",
        "OAUTHBEARER: how long the token's server may take to answer",
        positive,
        10_000,
    ),
    Setting(
        "sasl.login.callback.handler.class",
        "OAUTHBEARER: only Kafka's own class, which asks for tokens as is done here",
        value="…OAuthBearerLoginCallbackHandler",
    ),
    group="Logging in",
)
"""Settings of readers and producers for TLS and authentication."""

_MECHANISMS_TEXT = ", ".join(MECHANISMS)
_JAVA_CLASS = "a Java class cannot be loaded"
_KERBEROS = f"Kerberos (GSSAPI) is not; kafka.sasl.mechanism is one of {_MECHANISMS_TEXT}"
_ASSERTION = (
    "tokens are had by a client's credentials, or from a file: set kafka.sasl.oauthbearer.token.endpoint.url and "
    "kafka.sasl.oauthbearer.client.credentials.client.id, or let something else keep a file fresh and give file:…"
)
_JAVA_TLS = f"{_JAVA_CLASS}, and TLS is OpenSSL's, as Python has it: leave it out"
_STORES = "give key and certificates in PEM, PKCS12 or JKS"

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

_BROKERS = "tokens are judged by the broker; the client sends them as they are"
_REFRESH = "a token is asked for when a connection is made and the last one is about to expire"
_OPENSSL = "TLS is OpenSSL's, as Python has it, which has one algorithm for this"
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
"""What makes no difference to a reader nor to a producer, and why."""


def read_security(given: Mapping[str, str]) -> tuple[Tls | None, Sasl | None]:
    """Read how the connection is protected. The names must have been checked before.

    Raises:
        OptionError: if a setting is missing, unreadable or at odds with another. Secrets are not shown.
    """
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise OptionError(
            f"{FORMAT}: option kafka.security.protocol={protocol!r}: expected PLAINTEXT, SSL, SASL_PLAINTEXT or "
            "SASL_SSL"
        )
    return (
        _tls(given) if protocol.endswith("SSL") else None,
        _sasl(given) if protocol.startswith("SASL") else None,
    )


def _check_files(given: Mapping[str, str]) -> None:
    """Reject what would be ignored: the system's authorities would be trusted, or no certificate be sent."""
    for name in _FILES:
        if given.get(name) == "":
            raise OptionError(f"{FORMAT}: option kafka.{name} is empty: name a file, or leave it out")
    if "ssl.key.location" in given and not {"ssl.certificate.location", "ssl.keystore.location"} & given.keys():
        raise OptionError(
            f"{FORMAT}: options kafka.ssl.key.location and kafka.ssl.certificate.location go together, and the "
            "certificate is missing"
        )


def _tls(given: Mapping[str, str]) -> Tls:
    _check_files(given)
    for store in ("truststore", "keystore"):
        kind = given.get(f"ssl.{store}.type", "PEM").upper()
        if kind not in STORE_TYPES:
            raise OptionError(
                f"{FORMAT}: option kafka.ssl.{store}.type={kind!r} cannot be read: expected one of "
                f"{', '.join(STORE_TYPES)}; keytool -importkeystore … -deststoretype PKCS12 converts others"
            )
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise OptionError(
            f"{FORMAT}: option kafka.ssl.endpoint.identification.algorithm={algorithm!r}: expected https, or nothing "
            "to accept a certificate for any host name"
        )
    if ("ssl.keystore.key" in given) != ("ssl.keystore.certificate.chain" in given):
        raise OptionError(
            f"{FORMAT}: options kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together, and one "
            "of them is missing"
        )
    return Tls(
        ca_location=given.get("ssl.truststore.location") or given.get("ssl.ca.location"),
        ca_pem=given.get("ssl.truststore.certificates") or given.get("ssl.ca.pem"),
        ca_password=given.get("ssl.truststore.password"),
        certificate_location=given.get("ssl.keystore.location") or given.get("ssl.certificate.location"),
        certificate_pem=given.get("ssl.keystore.certificate.chain"),
        certificate_password=given.get("ssl.keystore.password"),
        key_location=given.get("ssl.key.location"),
        key_pem=given.get("ssl.keystore.key"),
        key_password=given.get("ssl.key.password"),
        check_hostname=algorithm == "https",
        versions=_agreed_versions(given),
        ciphers=tuple(name.strip() for name in given.get("ssl.cipher.suites", "").split(",") if name.strip()),
    )


def _agreed_versions(given: Mapping[str, str]) -> tuple[str, ...]:
    found = set(TLS_VERSIONS)
    for name in ("ssl.enabled.protocols", "ssl.protocol"):
        if given.get(name):
            found &= set(SECURITY[name].read(given[name], FORMAT, "kafka."))
    if not found:
        raise OptionError(
            f"{FORMAT}: options kafka.ssl.protocol and kafka.ssl.enabled.protocols leave no version of TLS that both "
            "allow"
        )
    return tuple(sorted(found))


def _sasl(given: Mapping[str, str]) -> Sasl:
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        shown = f"={mechanism!r} is not supported" if mechanism else " is missing, and Kafka's own default is Kerberos"
        raise OptionError(f"{FORMAT}: option kafka.sasl.mechanism{shown}; use one of {_MECHANISMS_TEXT}")
    module = read_jaas(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else None
    if module is not None and mechanism not in MODULES[module.name]:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.jaas.config names {module.name}, which is not for "
            f"kafka.sasl.mechanism={mechanism}; use that of {' or '.join(MODULES[module.name])}"
        )
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, "", "", _oauth(given, module))
    username, password = given.get("sasl.username"), given.get("sasl.password")
    if module is not None:
        username, password = module.options.get("username"), module.options.get("password")
    if not username or not password:
        raise OptionError(
            f"{FORMAT}: kafka.security.protocol asks for SASL, so kafka.sasl.username and kafka.sasl.password (or "
            "kafka.sasl.jaas.config) are required"
        )
    return Sasl(mechanism, username, password)


def _oauth(given: Mapping[str, str], module: LoginModule | None) -> OAuth:
    handler = given.get("sasl.login.callback.handler.class", _OAUTH_HANDLERS[0])
    if handler.rpartition(".")[2] not in _OAUTH_HANDLERS:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.login.callback.handler.class={handler}: {_JAVA_CLASS}; {_ASSERTION}"
        )
    line = module.options if module is not None else {}
    url = given.get(f"{_OAUTH}token.endpoint.url", "")
    client_id = given.get(f"{_OAUTH}client.credentials.client.id") or line.get("clientId")
    secret = given.get(f"{_OAUTH}client.credentials.client.secret") or line.get("clientSecret")
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise OptionError(
            f"{FORMAT}: kafka.sasl.mechanism=OAUTHBEARER needs kafka.sasl.oauthbearer.token.endpoint.url, an http, "
            "https or file URL"
        )
    if "@" in urlsplit(url).netloc:
        raise OptionError(
            f"{FORMAT}: option kafka.sasl.oauthbearer.token.endpoint.url must be without user and password; give them "
            f"as {_OAUTH_NAMES}"
        )
    if scheme != "file" and not (client_id and secret):
        raise OptionError(
            f"{FORMAT}: kafka.sasl.mechanism=OAUTHBEARER needs {_OAUTH_NAMES} (or clientId and clientSecret in "
            "kafka.sasl.jaas.config)"
        )
    header = SECURITY[f"{_OAUTH}header.urlencode"]
    timeout = SECURITY["sasl.login.connect.timeout.ms"]
    prefix = "extension_"
    return OAuth(
        url,
        client_id,
        secret,
        given.get(f"{_OAUTH}scope") or line.get("scope"),
        header.read(given.get(header.name, "false"), FORMAT, "kafka."),
        timeout.read(given.get(timeout.name, str(timeout.default)), FORMAT, "kafka."),
        tuple(sorted((name.removeprefix(prefix), text) for name, text in line.items() if name.startswith(prefix))),
    )


_OAUTH_NAMES = f"kafka.{_OAUTH}client.credentials.client.id and kafka.{_OAUTH}client.credentials.client.secret"
