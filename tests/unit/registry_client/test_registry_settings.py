"""The options about a registry: what is accepted, what is refused and why, and that secrets are shown nowhere."""

from __future__ import annotations

import pickle

import pytest

from sparkonce.connectors.schema_registry.settings import (
    REGISTRY_SETTINGS,
    SENSITIVE,
    RegistrySettings,
    context_of,
    read_registry,
)
from sparkonce.options import OptionError, SettingTable
from tests.cases import each_case

TABLE = SettingTable("kafka_once", REGISTRY_SETTINGS, "source", passed_through=("kafka.*",))
HTTPS = "https://h:8081"


def read(url: str | None = HTTPS, **options: str) -> RegistrySettings | None:
    """Read options; of the names only what is behind the prefix is given, with underscores for dots."""
    given = {
        name if name.startswith("kafka.") else f"schemaRegistry.{name.replace('_', '.')}": text
        for name, text in options.items()
    }
    given |= {} if url is None else {"schemaRegistry.url": url}
    TABLE.check(given)
    return read_registry(TABLE, given)


def settings(url: str = HTTPS, **options: str) -> RegistrySettings:
    found = read(url, **options)
    assert found is not None
    return found


def test_no_registry() -> None:
    assert read(None) is None
    with pytest.raises(OptionError, match=r"option schemaRegistry.max.retries needs schemaRegistry.url"):
        read(None, max_retries="1")


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("http://a:8081", ("http://a:8081",)),
        (" http://a:8081/ , https://b/apis/ccompat/v7/", ("http://a:8081", "https://b/apis/ccompat/v7")),
        ("http://[::1]:8081/contexts/:.eu:", ("http://[::1]:8081/contexts/:.eu:",)),
    ],
)
def test_addresses(given: str, urls: tuple[str, ...]) -> None:
    assert settings(given).url == urls


@pytest.mark.parametrize("given", ["a:8081", "ftp://a", "http://", "http://a,", ""])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(OptionError, match="expected addresses such as"):
        read(given)


@pytest.mark.parametrize("given", ["https://h/?token=s3cr3t", "http://a, https://h:1/x?token=s3cr3t,http://b"])
def test_an_address_with_a_query_is_refused_without_showing_it(given: str) -> None:
    with pytest.raises(OptionError, match="expected no query in it: set") as refused:
        read(given)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    "given", ["https://me:s3cr3t@h:8081", "http://a, https://me:s3cr3t/@h", "me:s3cr3t@h", "http://s3cr3t@h,http://b"]
)
def test_an_address_with_a_user_is_refused_without_showing_it(given: str) -> None:
    with pytest.raises(OptionError, match=r"set schemaRegistry.basic.auth.user.info") as refused:
        read(given)
    assert "s3cr3t" not in str(refused.value)


def test_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"did you mean 'schemaRegistry.basic.auth.user.info'"):
        read(basic_auth_userinfo="a:b")


@each_case(
    ("options", "problem"),
    [
        ({"basic_auth_user_info": "me"}, "user.info"),
        ({"basic_auth_user_info": "a:b", "bearer_auth_token": "t"}, "contradict each other"),
        ({"bearer_auth_client_id": "me"}, "issuer.endpoint.url is missing"),
        ({"bearer_auth_issuer_endpoint_url": "https://i", "bearer_auth_client_id": "me"}, "client.secret is missing"),
        ({"bearer_auth_token": "t", "bearer_auth_scope": "s"}, "issuer.endpoint.url is missing"),
        (
            {
                "bearer_auth_token": "t",
                "bearer_auth_issuer_endpoint_url": "https://i",
                "bearer_auth_client_id": "me",
                "bearer_auth_client_secret": "s",
            },
            "token contradicts",
        ),
        ({"bearer_auth_logical_cluster": "lsrc-1"}, "logical.cluster needs schemaRegistry.bearer.auth.token"),
        ({"bearer_auth_credentials_source": "OAUTHBEARER", "bearer_auth_token": "t"}, "needs .*issuer.endpoint.url"),
        ({"bearer_auth_credentials_source": "STATIC_TOKEN"}, r"needs schemaRegistry.bearer.auth.token"),
        ({"ssl_key_location": "/key.pem"}, r"ssl.certificate.location is missing"),
        ({"url": "http://h", "ssl_ca_location": "/ca.pem"}, r"ssl.ca.location has no effect: no address"),
        ({"context": "a b:c"}, "expected the name of a context"),
        ({"basic_auth_credentials_source": "SASL_INHERIT"}, "needs user and password in kafka.sasl"),
        (
            {"basic_auth_credentials_source": "SASL_INHERIT", "basic_auth_user_info": "a:b"},
            r"contradicts schemaRegistry.basic.auth.user.info",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read(**{"url": HTTPS, **options})


def test_user_and_password_of_the_kafka_client() -> None:
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": "s3cr3t",
    }
    found = settings(basic_auth_credentials_source="SASL_INHERIT", **login)
    assert found.client_conf(HTTPS)["basic.auth.user.info"] == "me:s3cr3t"
    assert "s3cr3t" not in repr(found)
    with pytest.raises(OptionError, match="has a colon") as refused:
        read(basic_auth_credentials_source="SASL_INHERIT", **{**login, "kafka.sasl.username": "m:e"})
    assert "s3cr3t" not in str(refused.value)


def test_the_configuration_of_confluents_client() -> None:
    tokens = {
        "bearer_auth_issuer_endpoint_url": "https://issuer/token",
        "bearer_auth_client_id": "me",
        "bearer_auth_client_secret": "s",
        "bearer_auth_scope": "schemas",
        "bearer_auth_credentials_source": "OAUTHBEARER",
    }
    found = settings(request_timeout_ms="1500", ssl_certificate_location="/c.pem", ssl_key_location="/k.pem", **tokens)
    assert found.client_conf(HTTPS) == {
        "url": HTTPS,
        "ssl.certificate.location": "/c.pem",
        "ssl.key.location": "/k.pem",
        "timeout": 1.5,
        "max.retries": 0,
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.logical.cluster": "none",
        "bearer.auth.issuer.endpoint.url": "https://issuer/token",
        "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": "s",
        "bearer.auth.scope": "schemas",
    }


def test_secrets_are_declared_and_not_shown() -> None:
    assert set(SENSITIVE) == {
        "schemaRegistry.basic.auth.user.info",
        "schemaRegistry.bearer.auth.token",
        "schemaRegistry.bearer.auth.client.secret",
        "schemaRegistry.ssl.key.password",
    }
    found = settings(basic_auth_user_info="me:pa:ss", ssl_certificate_location="/c", ssl_key_password="open")
    assert set(found.secrets) == {
        "me:pa:ss",
        "open",
        "pa:ss",
        "bWU6cGE6c3M=",
        "me%3Apa%3Ass",
        "pa%3Ass",
        "bWU6cGE6c3M%3D",
    }
    nothing = settings(basic_auth_user_info="token:").secrets
    assert set(nothing) == {"token:", "token%3A", "dG9rZW46"}, "nothing is not to be hidden everywhere"
    assert "pa:ss" not in repr(found)
    assert "open" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_contexts() -> None:
    assert [context_of(each) for each in (":.eu:a", ":.:a", "a", None, ":.eu:")] == [".eu", None, None, None, ".eu"]
    assert [settings(context=each).context for each in (".eu", ":.eu:", ".")] == [".eu", ".eu", None]
    found = settings(context=".eu")
    assert [found.qualified(each) for each in ("a", ":.us:a", ":.:a")] == [":.eu:a", ":.us:a", ":.:a"]
    assert settings().qualified("a") == "a"
    assert found.within(":.us:a").context == ".us"
    assert found.within("a") is found
