"""The options about a schema registry; behind the prefix they have the names of Confluent's clients."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

from sparkonce.kafka.client.security import read_security
from sparkonce.kafka.client.settings import READER, given_settings
from sparkonce.options import OptionError, SettingTable
from sparkonce.settings import integer, password, settings_of, text

PREFIX = "schemaRegistry."
GROUP = "Schema registry"
USER_INFO, SASL_INHERIT = "USER_INFO", "SASL_INHERIT"
STATIC_TOKEN, OAUTHBEARER = "STATIC_TOKEN", "OAUTHBEARER"
_CONTEXT = re.compile(r":?(\.[^:]*):?")
_IN_CONTEXT = re.compile(r":(\.[^:]*):")


def _urls(given: str) -> tuple[str, ...]:
    urls = tuple(each.strip().rstrip("/") for each in given.split(","))
    for url in urls:
        if "@" in url:
            raise ValueError(f"expected no user in it: set {PREFIX}basic.auth.user.info, which is never shown")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected addresses such as https://registry:8081, separated by commas")
        if "?" in url or "#" in url:  # paths are appended to it, and errors show it
            raise ValueError(f"expected no query in it: set {PREFIX}bearer.auth.token, which is never shown")
    return urls


def _issuer(given: str) -> str:
    if "@" in given:
        raise ValueError(f"expected no user in it: set {PREFIX}bearer.auth.client.id and client.secret")
    if urlsplit(given).scheme not in ("http", "https"):
        raise ValueError("expected an address such as https://issuer/oauth2/token")
    return given


def _user_info(given: str) -> str:
    if ":" not in given:
        raise ValueError("expected user:password")
    return given


def _context(given: str) -> str | None:
    found = _CONTEXT.fullmatch(given.strip())
    if found is None:
        raise ValueError("expected the name of a context, such as .staging")
    return None if found[1] == "." else found[1]


def context_of(subject: str | None) -> str | None:
    """Return the context in a subject's name, ``:.context:subject``; None if it names none, or the default one."""
    found = _IN_CONTEXT.match(subject or "")
    return None if found is None or found[1] == "." else found[1]


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is, and how to log in."""

    url: tuple[str, ...] | None = text(
        None,
        "the addresses of a schema registry (Confluent's REST API), separated by commas; the next one is asked where "
        "one does not answer. Values then begin with the id of their schema, or their headers name it",
        name=f"{PREFIX}url",
        parse=_urls,
        value="http://host:8081",
    )
    user_info: str | None = password(
        None, "user and password of basic authentication", name=f"{PREFIX}basic.auth.user.info", parse=_user_info,
        value="user:password",
    )  # fmt: skip
    credentials_source: str = text(
        USER_INFO,
        f"whose user and password: {PREFIX}basic.auth.user.info, or with {SASL_INHERIT} those of kafka.sasl.*",
        name=f"{PREFIX}basic.auth.credentials.source",
        choices=(USER_INFO, SASL_INHERIT),
    )
    token: str | None = password(
        None, "a bearer token that stays valid", name=f"{PREFIX}bearer.auth.token", value="token"
    )
    token_source: str | None = text(
        None,
        "where tokens come from; may be left out, since the other options say it",
        name=f"{PREFIX}bearer.auth.credentials.source",
        choices=(STATIC_TOKEN, OAUTHBEARER),
    )
    logical_cluster: str | None = text(
        None,
        "the logical cluster, a header of Confluent Cloud's with tokens",
        name=f"{PREFIX}bearer.auth.logical.cluster",
        value="lsrc-…",
    )
    identity_pool: str | None = text(
        None,
        "the identity pool, a header of Confluent Cloud's with tokens",
        name=f"{PREFIX}bearer.auth.identity.pool.id",
        value="pool-…",
    )
    issuer: str | None = text(
        None,
        "where tokens are requested (OAuth 2, client credentials)",
        name=f"{PREFIX}bearer.auth.issuer.endpoint.url",
        parse=_issuer,
        value="https://…",
    )
    client_id: str | None = text(None, "the client id for tokens", name=f"{PREFIX}bearer.auth.client.id", value="id")
    client_secret: str | None = password(
        None, "the client's secret", name=f"{PREFIX}bearer.auth.client.secret", value="secret"
    )
    scope: str | None = text(None, "the scope of tokens", name=f"{PREFIX}bearer.auth.scope", value="scope")
    ca_location: str | None = text(
        None,
        "a file or folder with the certificates to trust (PEM)",
        name=f"{PREFIX}ssl.ca.location",
        default_text="those of the package certifi",
        value="path",
    )
    certificate_location: str | None = text(
        None, "this client's certificate (PEM), for mutual TLS", name=f"{PREFIX}ssl.certificate.location", value="path"
    )
    key_location: str | None = text(
        None, "the key of that certificate (PEM)", name=f"{PREFIX}ssl.key.location", value="path"
    )
    key_password: str | None = password(
        None, "the password of that key", name=f"{PREFIX}ssl.key.password", value="password"
    )
    timeout_ms: int = integer(
        10_000, "how long to wait for an answer, in milliseconds", least=1, name=f"{PREFIX}request.timeout.ms"
    )
    retries: int = integer(
        3,
        "how often a request is repeated that got no answer or a temporary error, with growing pauses",
        name=f"{PREFIX}max.retries",
    )
    wait_ms: int = integer(
        100,
        "the first pause before a request is repeated, in milliseconds; each is a random part of twice the one before",
        name=f"{PREFIX}retries.wait.ms",
    )
    most_wait_ms: int = integer(2_000, "the longest such pause, in milliseconds", name=f"{PREFIX}retries.max.wait.ms")
    context: str | None = text(
        None,
        "the context that subjects and ids are of, unless a subject names another (:.context:subject)",
        name=f"{PREFIX}context",
        parse=_context,
        default_text="the registry's default context",
        value=".context",
    )

    def client_conf(self, url: str) -> dict[str, Any]:
        """Return the configuration of Confluent's client for one of the addresses.

        It does not repeat requests: `Registry` does, over all addresses.
        """
        oauth = self.issuer is not None
        conf: dict[str, Any] = {
            "url": url,
            "basic.auth.user.info": self.user_info,
            "ssl.ca.location": self.ca_location,
            "ssl.certificate.location": self.certificate_location,
            "ssl.key.location": self.key_location,
            "ssl.key.password": self.key_password,
            "timeout": self.timeout_ms / 1000,
            "max.retries": 0,
        }
        if oauth or self.token is not None:
            conf |= {
                "bearer.auth.credentials.source": OAUTHBEARER if oauth else STATIC_TOKEN,
                "bearer.auth.token": self.token,
                "bearer.auth.logical.cluster": self.logical_cluster or "none",
                "bearer.auth.identity.pool.id": self.identity_pool,
                "bearer.auth.issuer.endpoint.url": self.issuer,
                "bearer.auth.client.id": self.client_id,
                "bearer.auth.client.secret": self.client_secret,
                # Required by Confluent's client; none is sent where it is empty.
                "bearer.auth.scope": (self.scope or "") if oauth else None,
            }
        return {name: value for name, value in conf.items() if value is not None}

    def within(self, subject: str | None) -> RegistrySettings:
        """Return these settings with the context that a subject's name has, if it has one."""
        context = context_of(subject)
        return self if context is None else replace(self, context=context)

    def qualified(self, subject: str) -> str:
        """Return a subject's name with the context, unless it has one."""
        return subject if self.context is None or subject.startswith(":.") else f":{self.context}:{subject}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may show."""
        whole = [each for each in (self.user_info, self.token, self.client_secret, self.key_password) if each]
        if self.user_info:
            whole += [self.user_info.partition(":")[2], b64encode(self.user_info.encode()).decode()]
        if self.client_secret:  # as it is sent to the issuer
            whole.append(b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode())
        forms = [form for each in whole if each for form in (each, quote(each, safe=""), quote_plus(each))]
        return tuple(dict.fromkeys(forms))


REGISTRY_SETTINGS = settings_of(RegistrySettings, group=GROUP)
SENSITIVE = tuple(name for name, setting in REGISTRY_SETTINGS.items() if setting.sensitive)


def read_registry(table: SettingTable, given: Mapping[str, str]) -> RegistrySettings | None:
    """Return the settings among options whose names have been checked; None if no registry is named.

    Raises:
        OptionError: for one that cannot be read, or has no effect without another, or contradicts another.
    """
    settings = RegistrySettings(**table.values(given, REGISTRY_SETTINGS))
    named = {name.lower() for name in given}
    set_here = [name for name in REGISTRY_SETTINGS if name.lower() in named]
    if settings.url is None:
        if set_here:
            raise OptionError(f"{table.format}: option {set_here[0]} needs {PREFIX}url, the registry's address")
        return None
    if settings.credentials_source == SASL_INHERIT:
        settings = replace(settings, user_info=_inherited(table, given, settings))
    problem = _problem(settings, [name.removeprefix(PREFIX) for name in set_here])
    if problem is not None:
        raise OptionError(f"{table.format}: option {PREFIX}{problem}")
    return settings


def _inherited(table: SettingTable, given: Mapping[str, str], settings: RegistrySettings) -> str:
    """Return user and password of the Kafka client."""
    option = f"{table.format}: option {PREFIX}basic.auth.credentials.source={SASL_INHERIT}"
    if settings.user_info is not None:
        raise OptionError(f"{option} contradicts {PREFIX}basic.auth.user.info: leave one out")
    _, sasl = read_security(given_settings(given), READER)
    if sasl is None or not sasl.username:
        raise OptionError(f"{option} needs user and password in kafka.sasl.*, with kafka.security.protocol=SASL_SSL")
    if ":" in sasl.username:
        raise OptionError(f"{option}: the user's name has a colon, which basic authentication cannot send")
    return f"{sasl.username}:{sasl.password}"


def _problem(settings: RegistrySettings, named: list[str]) -> str | None:
    """Return what is wrong with the options set, beginning with a name; ``named`` are without the prefix."""
    oauth = {"issuer.endpoint.url": settings.issuer, "client.id": settings.client_id}
    oauth["client.secret"] = settings.client_secret
    missing = [name for name, value in oauth.items() if value is None]
    tokens = settings.token is not None or not missing
    source = OAUTHBEARER if settings.issuer else STATIC_TOKEN
    if len(missing) in (1, 2) or (settings.scope is not None and missing):
        return f"bearer.auth.{missing[0]} is missing: tokens that are requested need all three"
    if settings.token is not None and settings.issuer is not None:
        return "bearer.auth.token contradicts bearer.auth.issuer.endpoint.url: leave one out"
    if settings.user_info is not None and tokens:
        return "basic.auth.* and bearer.auth.* contradict each other: leave one out"
    if settings.token_source is not None and (not tokens or settings.token_source != source):
        needed = "issuer.endpoint.url" if settings.token_source == OAUTHBEARER else "token"
        return f"bearer.auth.credentials.source={settings.token_source} needs {PREFIX}bearer.auth.{needed}"
    useless = [name for name in named if name.startswith("bearer.auth.")]
    if useless and not tokens:
        return f"{useless[0]} needs {PREFIX}bearer.auth.token, or {PREFIX}bearer.auth.issuer.endpoint.url"
    return _problem_of_tls(settings, [name for name in named if name.startswith("ssl.")])


def _problem_of_tls(settings: RegistrySettings, named: list[str]) -> str | None:
    key = settings.key_location is not None or settings.key_password is not None
    if key and settings.certificate_location is None:
        return "ssl.certificate.location is missing: a key needs its certificate"
    if named and not any(url.startswith("https:") for url in settings.url or ()):
        return f"{named[0]} has no effect: no address in {PREFIX}url begins with https"
    return None
