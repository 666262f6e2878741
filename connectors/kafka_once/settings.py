"""The ``kafka.*`` options: what the client honours, what it passes over, and what it refuses, and what to use instead.

Names are those of Kafka's Java consumer, and for certificates also those of librdkafka, since both kinds of user come
here. Nothing is dropped in silence: a setting is used, known to have no bearing on a reader that joins no group, or an
error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.options import OptionError, boolean, not_negative, one_of, positive

PREFIX = "kafka."
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_FORMAT = "kafka_once"


@dataclass(frozen=True, slots=True)
class Tls:
    """Where certificates are; PEM throughout. Contents, where given, win over locations."""

    ca_location: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Sasl:
    """Who logs in, and how."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Everything the client needs to know. Equal settings share connections within a process."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "sparkonce"
    tls: Tls | None = None
    sasl: Sasl | None = None
    request_timeout_ms: int = 30_000
    connection_setup_timeout_ms: int = 10_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    receive_buffer_bytes: int = 0
    fetch_max_bytes: int = 8 << 20
    fetch_max_wait_ms: int = 500
    read_committed: bool = False
    check_crcs: bool = True

    @property
    def servers_text(self) -> str:
        """The bootstrap servers as the user wrote them, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap_servers)


def bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read ``host:port`` pairs separated by commas; an IPv6 address stands in brackets."""
    servers = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{each!r} is not host:port")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise ValueError("expected host:port, or several separated by commas")
    return tuple(servers)


_isolation_level = one_of("read_uncommitted", "read_committed")
Reading = Mapping[str, tuple[str, Callable[[str], Any]]]
"""By name: the field of `ClientSettings`, and how the text for it is read."""

COMMON: Reading = {
    "bootstrap.servers": ("bootstrap_servers", bootstrap_servers),
    "client.id": ("client_id", str),
    "request.timeout.ms": ("request_timeout_ms", positive),
    "socket.connection.setup.timeout.ms": ("connection_setup_timeout_ms", positive),
    "retry.backoff.ms": ("retry_backoff_ms", not_negative),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", positive),
    "receive.buffer.bytes": ("receive_buffer_bytes", lambda text: max(0, int(text))),
}
"""What a reader and a producer have in common; the names are the same in Kafka's Java consumer and producer."""

_DIRECT: Reading = {
    **COMMON,
    "default.api.timeout.ms": ("api_timeout_ms", positive),
    "max.partition.fetch.bytes": ("fetch_max_bytes", positive),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", positive),
    "isolation.level": ("read_committed", lambda text: _isolation_level(text) == "read_committed"),
    "check.crcs": ("check_crcs", boolean),
}
SECURITY = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
)

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "partition.assignment.strategy",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of group members and of Java's own buffers: offsets live in Spark's checkpoint and no group is joined."""

_JAVA_CLASSES = "Java classes cannot be loaded; kafka.sasl.mechanism is one of " + ", ".join(MECHANISMS)
REFUSED_EVERYWHERE = {
    "ssl.keystore.password": "Java key stores are not read; give PEM files: kafka.ssl.certificate.location, "
    "kafka.ssl.key.location and kafka.ssl.key.password",
    "ssl.truststore.password": "Java trust stores are not read; give a PEM file: kafka.ssl.ca.location",
    "sasl.kerberos.service.name": "Kerberos is not supported; kafka.sasl.mechanism is one of " + ", ".join(MECHANISMS),
    "sasl.login.callback.handler.class": _JAVA_CLASSES,
}
"""What neither a reader nor a producer takes, and what to use instead."""

_REFUSED = {
    **REFUSED_EVERYWHERE,
    "auto.offset.reset": "set the option startingOffsets instead: it says where a query without a checkpoint begins",
    "enable.auto.commit": "offsets are kept in Spark's checkpoint and in the offset store, never committed by a timer",
    "key.deserializer": "keys arrive as binary; convert them with DataFrame operations, e.g. CAST(key AS STRING)",
    "value.deserializer": "values arrive as binary; convert them with DataFrame operations, e.g. CAST(value AS STRING)",
    "interceptor.classes": "there is no Java consumer to intercept; transform the DataFrame instead",
    "client.rack": "records are read from the leader of each partition; leave it out",
}

READER_SETTINGS = frozenset({*_DIRECT, *WITHOUT_EFFECT, *_REFUSED})
"""All that a reader knows but for security, for the sink to tell a reader's setting from a slip of the pen."""


def read_settings(options: Mapping[str, str]) -> ClientSettings:
    """Read a reader's settings among ``options``, whose names begin with ``kafka.``; others are passed over.

    Raises:
        OptionError: for a setting that is unknown, refused, unreadable or at odds with another. Secrets are not shown.

    """
    given = given_settings(options)
    for name in given:
        if name in _REFUSED:
            raise refusal(name, _REFUSED[name])
        if name not in _DIRECT and name not in SECURITY and name not in WITHOUT_EFFECT:
            raise unknown(name, [*_DIRECT, *SECURITY], WITHOUT_EFFECT)
    return client_settings(given, _DIRECT)


def given_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Pick the settings out of ``options``, by their names in lower case and without ``kafka.``."""
    return {key.lower()[len(PREFIX) :]: text.strip() for key, text in options.items() if key.lower().startswith(PREFIX)}


def client_settings(given: Mapping[str, str], reading: Reading) -> ClientSettings:
    """Read where the cluster is, how to log in, and what is in ``reading``. All names must have been looked at before.

    Raises:
        OptionError: for a setting that is missing, unreadable or at odds with another. Secrets are not shown.
    """
    if not given.get("bootstrap.servers"):
        raise OptionError(
            f"{_FORMAT}: option kafka.bootstrap.servers is required: host:port of one or more brokers, e.g. "
            'option("kafka.bootstrap.servers", "localhost:9092")'
        )
    values = {attribute: read_one(given, name, parse) for name, (attribute, parse) in reading.items() if name in given}
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise OptionError(
            f"{_FORMAT}: option kafka.security.protocol={protocol!r}: expected PLAINTEXT, SSL, SASL_PLAINTEXT or "
            "SASL_SSL"
        )
    tls = _tls(given) if protocol.endswith("SSL") else None
    sasl = _sasl(given) if protocol.startswith("SASL") else None
    return ClientSettings(**values, tls=tls, sasl=sasl)


def read_one(given: Mapping[str, str], name: str, parse: Callable[[str], Any]) -> Any:
    """Read the text of one setting that is not a secret.

    Raises:
        OptionError: if it cannot be read, with name and text.
    """
    try:
        return parse(given[name])
    except ValueError as error:
        raise OptionError(f"{_FORMAT}: option {PREFIX}{name}={given[name]!r} cannot be read: {error}") from error


def refusal(name: str, instead: str) -> OptionError:
    """Make the error for a setting that is not taken."""
    return OptionError(f"{_FORMAT}: option {PREFIX}{name} is not supported: {instead}")


def unknown(name: str, honoured: Sequence[str], without_effect: Iterable[str]) -> OptionError:
    """Make the error for a setting that nobody knows, with the nearest of those that are known."""
    near = difflib.get_close_matches(name, [*honoured, *without_effect], n=1, cutoff=0.6)
    hint = f"did you mean {PREFIX + near[0]!r}?" if near else "known: " + ", ".join(PREFIX + each for each in honoured)
    return OptionError(f"{_FORMAT}: option {PREFIX}{name} is not one that this client can honour; {hint}")


def _tls(given: Mapping[str, str]) -> Tls:
    for store, instead in (
        ("truststore", "kafka.ssl.ca.location"),
        ("keystore", "kafka.ssl.certificate.location and kafka.ssl.key.location"),
    ):
        kind = given.get(f"ssl.{store}.type", "PEM").upper()
        named = f"ssl.{store}.location" in given
        if kind != "PEM" or (named and f"ssl.{store}.type" not in given):
            raise OptionError(
                f"{_FORMAT}: a Java {store} ({kind if kind != 'PEM' else 'JKS'}) cannot be read; convert it to PEM "
                f"(keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12) and give {instead}, "
                f"or set kafka.ssl.{store}.type=PEM if it is one"
            )
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise OptionError(
            f"{_FORMAT}: option kafka.ssl.endpoint.identification.algorithm={algorithm!r}: expected https, or nothing "
            "to accept a certificate for any host name"
        )
    return Tls(
        ca_location=given.get("ssl.ca.location") or given.get("ssl.truststore.location"),
        ca_pem=given.get("ssl.ca.pem") or given.get("ssl.truststore.certificates"),
        certificate_location=given.get("ssl.certificate.location") or given.get("ssl.keystore.location"),
        key_location=given.get("ssl.key.location"),
        key_password=given.get("ssl.key.password"),
        check_hostname=algorithm == "https",
    )


def _sasl(given: Mapping[str, str]) -> Sasl:
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise OptionError(
            f"{_FORMAT}: option kafka.sasl.mechanism={mechanism!r} is not supported; use one of {', '.join(MECHANISMS)}"
        )
    username, password = given.get("sasl.username"), given.get("sasl.password")
    if "sasl.jaas.config" in given:
        username, password = _jaas(given["sasl.jaas.config"])
    if not username or not password:
        raise OptionError(
            f"{_FORMAT}: kafka.security.protocol asks for SASL, so kafka.sasl.username and kafka.sasl.password (or "
            "kafka.sasl.jaas.config) are required"
        )
    return Sasl(mechanism, username, password)


def _jaas(text: str) -> tuple[str | None, str | None]:
    """Take user name and password out of a login module's line, as Kafka's `JaasConfig` reads it; it is never shown."""
    module = _JAAS_MODULE.match(text)
    if module is None:
        raise OptionError(
            f"{_FORMAT}: option kafka.sasl.jaas.config names a login module other than PlainLoginModule and "
            "ScramLoginModule; set kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password instead"
        )
    found: dict[str, str] = {}
    position = module.end()
    while (option := _JAAS_OPTION.match(text, position)) is not None:
        name, double, single, word = option.groups()
        quoted = single if double is None else double
        found[name] = word if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        position = option.end()
    if text[position:].strip() not in ("", ";"):
        raise OptionError(
            f'{_FORMAT}: option kafka.sasl.jaas.config cannot be read: its options are written name="value", with '
            'blanks between them and one semicolon at the end; inside of a value \\" stands for a quotation mark. Or '
            "set kafka.sasl.username and kafka.sasl.password instead"
        )
    return found.get("username"), found.get("password")


_JAAS_MODULE = re.compile(
    r"\s*\S+\.(?:PlainLoginModule|ScramLoginModule)\s+(?i:(?:required|requisite|sufficient|optional)\b)?"
)
_JAAS_OPTION = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s"';=]+))(?=[\s;]|$)""", re.DOTALL
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(escape: re.Match[str]) -> str:
    """Give what stands for itself behind a backslash, as Java's `StreamTokenizer` has it: numbers are octal."""
    text = escape[1]
    return chr(int(text, 8)) if text.isdigit() and text[0] < "8" else _ESCAPED.get(text, text)
