"""The settings of listeners, TLS and SASL, under Kafka's own names, and the resulting configuration of listeners.

Theory of operation: `SecurityConfig` declares the settings. `listener.name.<listener>.<setting>` overrides `<setting>`
for one listener, `listener.name.<listener>.<mechanism>.<setting>` for one SASL mechanism there. `listener_configs`
combines them, once, and rejects contradictions; files are not checked here. No repr contains secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkonce.broker_lite.security.mechanism import PLAIN
from sparkonce.broker_lite.security.scram import SCRAM_MECHANISMS
from sparkonce.settings import (
    Kind,
    Setting,
    SettingError,
    integer,
    long,
    names,
    password,
    settings_of,
    text,
)

if TYPE_CHECKING:
    from sparkonce.broker_lite.security.principals import PrincipalRule

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DEFAULT_LISTENER: Final = "PLAINTEXT"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
LISTENER_PREFIX: Final = "listener.name."
JAAS_CONFIG: Final = "sasl.jaas.config"
MAX_LISTENERS: Final = 32
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9A-Fa-f:.%]*\]|[^:/\[\]]*):([0-9]{1,5})")
_WILDCARD = re.compile(r"(?:::[fF]{4}:)?(?:(?:0[xX])?[0:.])+")
"""All addresses of this machine, in any spelling: 0.0.0.0, 0, 0x0, ::, 0::0, ::ffff:0.0.0.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Every setting of listeners, TLS and SASL."""

    listeners: tuple[str, ...] = names(
        (),
        "Where to listen: <name>://<host>:<port>, port 0 for any free one, no host for that of host.name. "
        "Empty: one listener PLAINTEXT at host.name and port.",
        kafka_default="PLAINTEXT://:9092",
    )
    advertised_listeners: tuple[str, ...] = names(
        (), "What clients are told of listeners, where that differs; port 0 stands for the one listened on."
    )
    listener_security_protocol_map: tuple[str, ...] = names(
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "Which protocol each listener speaks: <name>:<protocol>.",
        kafka_kind=Kind.STRING,
    )
    inter_broker_listener_name: str | None = text(
        None, "The listener that brokers of a cluster use among themselves; by default the first PLAINTEXT one."
    )
    sasl_enabled_mechanisms: tuple[str, ...] = names(
        (), "The SASL mechanisms that are served: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.", kafka_default="GSSAPI"
    )
    sasl_server_max_receive_size: int = integer(524_288, "The largest request before authentication.", least=1024)
    connections_max_reauth_ms: int = long(
        0, "How long a client may go on before it must authenticate again (KIP-368); 0: for ever."
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, "How long the answer to a failed authentication is held back."
    )
    ssl_client_auth: str = text(
        "none", "Whether clients must show a certificate.", choices=("none", "requested", "required")
    )
    ssl_enabled_protocols: tuple[str, ...] = names(TLS_VERSIONS, "The versions of TLS.", choices=TLS_VERSIONS)
    ssl_keystore_type: str = text("JKS", "JKS, PKCS12 or PEM; what the key store is counts, whatever is set here.")
    ssl_keystore_location: str | None = text(
        None, "The key store: a file with the broker's private key and certificate chain."
    )
    ssl_keystore_certificate_chain: str | None = password(
        None, "The certificate chain itself, in PEM, in place of a file."
    )
    ssl_keystore_key: str | None = password(None, "The private key itself, in PEM.")
    ssl_keystore_password: str | None = password(None, "The key store's password; PEM has none.")
    ssl_key_password: str | None = password(
        None, "The password of an encrypted private key; in a JKS store by default that of the store."
    )
    ssl_truststore_type: str = text("JKS", "JKS, PKCS12 or PEM; what the trust store is counts, whatever is set here.")
    ssl_truststore_location: str | None = text(
        None, "The trust store: a file with the authorities that clients' certificates come from."
    )
    ssl_truststore_certificates: str | None = password(None, "These authorities' certificates themselves, in PEM.")
    ssl_truststore_password: str | None = password(
        None, "The trust store's password: needed for PKCS12, checked for JKS if it is set; PEM has none."
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT", "How the name in a client's certificate becomes its principal (KIP-371)."
    )


PER_LISTENER: Final = frozenset(
    name
    for name in settings_of(SecurityConfig)
    if name.startswith("ssl.") or name in ("sasl.enabled.mechanisms", "connections.max.reauth.ms",
                                           "sasl.server.max.receive.size")
)  # fmt: skip
"""The settings that can have the prefix `listener.name.<listener>.`."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The configuration of TLS on a listener."""

    client_auth: str
    versions: tuple[str, ...]
    keystore_location: str | None
    keystore_password: str | None = field(repr=False)
    certificate_chain: str | None = field(repr=False)
    key: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    truststore_location: str | None
    truststore_password: str | None = field(repr=False)
    truststore_certificates: str | None = field(repr=False)
    principal_rules: tuple[PrincipalRule, ...]


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """The configuration of SASL on a listener. Users' passwords by mechanism and user."""

    mechanisms: tuple[str, ...]
    users: Mapping[str, Mapping[str, str]] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failed_delay_ms: int


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener: its address, its advertised address, and its security."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    """0: the port that is listened on."""
    tls: TlsConfig | None
    sasl: SaslConfig | None


def read_listener_setting(name: str, value: object) -> object:
    """Parse the value of `listener.name.…`. Raises SettingError if there is no such setting or the value is invalid."""
    setting = _listener_setting(name)
    if setting is None:
        return str(value)
    return setting.read(value)


def _listener_setting(name: str) -> Setting | None:
    """Return the declaration of `listener.name.…`; None for a JAAS line, which exists in this form only."""
    listener, dot, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if not listener or not dot:
        raise SettingError(f"{name}: expected listener.name.<listener in lower case>.<setting>")
    mechanism = next((each for each in MECHANISMS if rest.startswith(f"{each.lower()}.")), None)
    if mechanism is not None:
        rest = rest[len(mechanism) + 1 :]
        if rest == JAAS_CONFIG:
            return None
        allowed = frozenset({"connections.max.reauth.ms"})
    else:
        allowed = PER_LISTENER
    if rest == JAAS_CONFIG:
        raise SettingError(f"{name}: name the mechanism, as in listener.name.{listener}.plain.{JAAS_CONFIG}")
    if rest not in allowed:
        raise SettingError(f"{name}: {rest} is not among what can be set for one listener here")
    return settings_of(SecurityConfig)[rest]


def listener_configs(
    config: SecurityConfig, given: Mapping[str, object], host_name: str, port: int
) -> tuple[ListenerConfig, ...]:
    """Return the configuration of each listener, in the order of `listeners`.

    `given` has every given setting, parsed; those of listeners are taken from it.

    Raises:
        SettingError: if they contradict each other or something is missing.
    """
    if config.listeners and {"port", "host.name"} & set(given):
        raise SettingError("give either listeners or host.name and port, not both")
    bound = _endpoints("listeners", config.listeners, host_name) or {DEFAULT_LISTENER: (host_name, port)}
    advertised = _endpoints("advertised.listeners", config.advertised_listeners, host_name)
    protocols = _protocols(config.listener_security_protocol_map)
    _check_names(config, given, bound, advertised)
    found = []
    for name, (host, own_port) in bound.items():
        if name not in protocols:
            raise SettingError(f"listener {name} is not in listener.security.protocol.map; add {name}:<protocol>")
        told_host, told_port = advertised.get(name, (host, 0))
        if _WILDCARD.fullmatch(told_host):
            raise SettingError(f"clients cannot connect to {told_host}: give listener {name} in advertised.listeners")
        protocol = protocols[name]
        tls = _tls(config, given, name) if protocol.endswith("SSL") else None
        sasl = _sasl(config, given, name) if protocol.startswith("SASL") else None
        found.append(ListenerConfig(name, protocol, host, own_port, told_host, told_port, tls, sasl))
    return tuple(found)


def _endpoints(setting: str, values: tuple[str, ...], default_host: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for value in values:
        match = _LISTENER.fullmatch(value)
        if match is None:
            raise SettingError(f"{setting}: {value!r} is not <name>://<host>:<port>")
        if int(match[3]) > 65535:
            raise SettingError(f"{setting}: the port of {value!r} is larger than 65535")
        name, port = match[1].upper(), int(match[3])
        if name in found:
            raise SettingError(f"{setting}: each listener has a name of its own; {name} is there twice")
        found[name] = (match[2].strip("[]") or default_host, port)
    if len(found) > MAX_LISTENERS:
        raise SettingError(f"{setting}: at most {MAX_LISTENERS} listeners")
    taken = [endpoint for endpoint in found.values() if endpoint[1]]
    if setting == "listeners" and len(set(taken)) < len(taken):
        raise SettingError("listeners: each listener has a port of its own")
    return found


def _protocols(values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, _, protocol = value.partition(":")
        protocol = protocol.strip().upper()
        if protocol not in PROTOCOLS:
            raise SettingError(f"listener.security.protocol.map: {value!r} is not <name>:<{'|'.join(PROTOCOLS)}>")
        found[name.strip().upper()] = protocol
    return found


def _check_names(
    config: SecurityConfig, given: Mapping[str, object], bound: Mapping[str, Any], advertised: Mapping[str, Any]
) -> None:
    for name in advertised:
        if name not in bound:
            raise SettingError(f"advertised.listeners: {name} is not among listeners")
    between = config.inter_broker_listener_name
    if between is not None and between.upper() not in bound:
        raise SettingError(f"inter.broker.listener.name={between}: it is not among listeners")
    for name in given:
        if name.startswith(LISTENER_PREFIX):
            listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if listener.upper() not in bound:
                raise SettingError(f"{name}: {listener.upper()} is not among listeners")


def _tls(config: SecurityConfig, given: Mapping[str, object], listener: str) -> TlsConfig:
    from sparkonce.broker_lite.security.principals import (
        PrincipalError,
        read_rules,
    )  # imported lazily, and jaas below: most brokers need neither

    def value(setting: str) -> Any:
        return _value(config, given, listener, setting)

    for store in ("ssl.keystore", "ssl.truststore"):
        kind = value(f"{store}.type")
        if str(kind).upper() not in STORE_TYPES:
            raise SettingError(f"{store}.type={kind}: only {', '.join(STORE_TYPES)} are read here")
    location, chain, key = (value(f"ssl.keystore.{each}") for each in ("location", "certificate.chain", "key"))
    if location is None and (chain is None or key is None):
        raise SettingError(
            f"listener {listener} speaks TLS and needs ssl.keystore.location, a JKS, PKCS12 or PEM file with the "
            "broker's private key and certificate chain, or both ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    if location is not None and (chain is not None or key is not None):
        raise SettingError("give either ssl.keystore.location or ssl.keystore.key and ssl.keystore.certificate.chain")
    trusted_file, trusted = value("ssl.truststore.location"), value("ssl.truststore.certificates")
    if trusted_file is not None and trusted is not None:
        raise SettingError("give either ssl.truststore.location or ssl.truststore.certificates")
    if not value("ssl.enabled.protocols"):
        raise SettingError("ssl.enabled.protocols: name at least one version of TLS")
    try:
        rules = read_rules(value("ssl.principal.mapping.rules"))
    except PrincipalError as error:
        raise SettingError(str(error)) from None
    return TlsConfig(
        value("ssl.client.auth"), value("ssl.enabled.protocols"), location, value("ssl.keystore.password"), chain, key,
        value("ssl.key.password"), trusted_file, value("ssl.truststore.password"), trusted, rules,
    )  # fmt: skip


def _sasl(config: SecurityConfig, given: Mapping[str, object], listener: str) -> SaslConfig:
    from sparkonce.kafka.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, read_jaas

    mechanisms = _value(config, given, listener, "sasl.enabled.mechanisms")
    if not mechanisms:
        raise SettingError(f"listener {listener} needs sasl.enabled.mechanisms, of {', '.join(MECHANISMS)}")
    users: dict[str, Mapping[str, str]] = {}
    reauth: dict[str, int] = {}
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise SettingError(f"sasl.enabled.mechanisms: {mechanism} is not served; {', '.join(MECHANISMS)} are")
        prefix = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}."
        line = given.get(prefix + JAAS_CONFIG)
        if line is None and mechanism == PLAIN:
            raise SettingError(f"listener {listener} serves PLAIN and needs its users in {prefix}{JAAS_CONFIG}")
        wanted = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
        try:
            module = read_jaas(str(line)) if line is not None else None
        except JaasError as error:
            raise SettingError(f"{prefix}{JAAS_CONFIG}: {error}") from None
        if module is not None and module.name != wanted:
            raise SettingError(f"{prefix}{JAAS_CONFIG}: the login module here must be {wanted}")
        users[mechanism] = module.users if module is not None else {}
        lifetime: Any = given.get(prefix + "connections.max.reauth.ms")
        reauth[mechanism] = (
            lifetime if lifetime is not None else _value(config, given, listener, "connections.max.reauth.ms")
        )
    return SaslConfig(
        mechanisms,
        users,
        reauth,
        _value(config, given, listener, "sasl.server.max.receive.size"),
        config.connection_failed_authentication_delay_ms,
    )


def _value(config: SecurityConfig, given: Mapping[str, object], listener: str, setting: str) -> Any:
    own = given.get(f"{LISTENER_PREFIX}{listener.lower()}.{setting}")
    return own if own is not None else getattr(config, setting.replace(".", "_"))
