"""TLS and SASL as users of Java's client set them, on the embedded broker: stores, text, versions, suites, users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.settings import read_settings
from sparkonce.options import OptionError
from tests.cases import each_case

STORES = Path(__file__).parent / "key_stores"
SECURE = "org.apache.kafka.common.security"
STORE_PASSWORD, KEY_PASSWORD, USER_PASSWORD = "store-s3cret", "key-s3cret", "us3r s3cret;"
TRUST = {"ssl.truststore.location": str(STORES / "authority.pem")}
SUITES_1_2 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    users = f'user_alice="{USER_PASSWORD}";'
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,STRICT://127.0.0.1:0,OLD://127.0.0.1:0,"
        "ELSEWHERE://127.0.0.2:0,SASL_SSL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,STRICT:SSL,OLD:SSL,ELSEWHERE:SSL,"
        "SASL_SSL:SASL_SSL",
        "ssl.keystore.location": STORES / "broker.pem",
        "ssl.truststore.location": STORES / "authority.pem",
        "listener.name.strict.ssl.client.auth": "required",
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": 1,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{SECURE}.plain.PlainLoginModule required {users}",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SECURE}.scram.ScramLoginModule required {users}",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SECURE}.scram.ScramLoginModule required {users}",
    }
    with EmbeddedBroker(config=config) as embedded:
        admin = KafkaAdminClient(bootstrap_servers=embedded.bootstrap_servers)
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.close()
        yield embedded


def options(broker: EmbeddedBroker, listener: str, settings: dict[str, str]) -> dict[str, str]:
    found = {"bootstrap.servers": broker.listeners[listener], "security.protocol": "SSL", **TRUST, **settings}
    return {f"kafka.{name}": text for name, text in found.items()}


def topics(broker: EmbeddedBroker, listener: str, **settings: str) -> list[str]:
    """Log in and ask for a topic; what would be tried again fails at once."""
    given = {name.replace("__", "."): text for name, text in settings.items()}
    client = Client(read_settings(options(broker, listener, {"socket.connection.setup.timeout.ms": "500", **given})))
    try:
        return list(client.topics(["t"]))
    finally:
        client.close()


def agreed(broker: EmbeddedBroker, listener: str, settings: dict[str, str]) -> tuple[str, str]:
    """Connect, and give version and suite."""
    host, _, port = broker.listeners[listener].rpartition(":")
    connection = BrokerConnection(host, int(port), read_settings(options(broker, listener, settings)))
    try:
        name, version, _ = connection._socket.cipher()  # type: ignore[attr-defined]
        return version, name
    finally:
        connection.close()


def test_without_a_trust_store_the_broker_is_not_trusted(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TRUST, "ssl.truststore.location")
    with pytest.raises(OSError, match="certificate verify failed"):
        topics(broker, "SSL")


def kinds_of_keys() -> dict[str, dict[str, str]]:
    """Return settings for a client's certificate, in all the ways there are."""
    text = (STORES / "client.pem").read_text()
    key, begin, rest = text.partition("-----BEGIN CERT")
    chain = begin + rest
    return {
        "jks": {
            "ssl.keystore.location": str(STORES / "client.jks"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
        },
        "p12": {"ssl.keystore.location": str(STORES / "client.p12"), "ssl.keystore.password": STORE_PASSWORD},
        "pem": {"ssl.keystore.location": str(STORES / "client.pem"), "ssl.keystore.type": "PEM"},
        "encrypted": {
            "ssl.certificate.location": str(STORES / "client.pem"),
            "ssl.key.location": str(STORES / "client.key.encrypted.pem"),
            "ssl.key.password": KEY_PASSWORD,
        },
        "text": {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain, "ssl.keystore.type": "PEM"},
        "one line": {
            "ssl.keystore.key": (STORES / "client.key.encrypted.pem").read_text().replace("\n", " "),
            "ssl.keystore.certificate.chain": chain.replace("\n", "\\n"),
            "ssl.key.password": KEY_PASSWORD,
        },
    }


KEYS = kinds_of_keys()


def written(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "__"): text for name, text in settings.items()}


@each_case("kind", KEYS)
def test_a_client_s_key_from_every_kind_of_place(broker: EmbeddedBroker, kind: str) -> None:
    assert topics(broker, "STRICT", **written(KEYS[kind])) == ["t"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("trust.jks", {"ssl.truststore.password": STORE_PASSWORD}),
        ("trust.jks", {"ssl.truststore.type": "JKS"}),
        ("trust.p12", {"ssl.truststore.password": STORE_PASSWORD}),
        ("trust.p12", {"ssl.truststore.password": STORE_PASSWORD, "ssl.truststore.type": "JKS"}),
        ("authority.pem", {"ssl.truststore.type": "PEM"}),
    ],
)
def test_trust_from_every_kind_of_place(broker: EmbeddedBroker, name: str, settings: dict[str, str]) -> None:
    place = {"ssl.truststore.location": str(STORES / name)}
    assert topics(broker, "SSL", **written({**place, **settings})) == ["t"]


def test_a_client_without_a_certificate_stays_outside(broker: EmbeddedBroker) -> None:
    with pytest.raises(OSError, match="certificate"):
        topics(broker, "STRICT")


@each_case(
    ("settings", "message"),
    [
        (
            {"ssl.truststore.location": "/no/such/file"},
            r"truststore.location=/no/such/file cannot be read on \S+: No such",
        ),
        ({"ssl.truststore.location": str(STORES / "make.sh")}, "neither PEM, PKCS12 nor JKS"),
        (
            {"ssl.truststore.location": str(STORES / "trust.p12"), "ssl.truststore.password": "wr0ng"},
            r"trust.p12 cannot be read: the password is wrong .*kafka.ssl.truststore.password",
        ),
        ({"ssl.truststore.certificates": "nothing"}, "ssl.truststore.certificates: there is no certificate"),
        ({"ssl.truststore.location": str(STORES / "client.key.encrypted.pem")}, "cannot be used"),
        (
            {"ssl.keystore.location": str(STORES / "trust.jks"), "ssl.keystore.password": STORE_PASSWORD},
            "there is no private key in this store",
        ),
        ({"ssl.keystore.location": str(STORES / "authority.pem")}, "keystore.location=.* cannot be used"),
        (
            {
                "ssl.certificate.location": str(STORES / "client.pem"),
                "ssl.key.location": str(STORES / "client.key.encrypted.pem"),
                "ssl.key.password": "wr0ng",
            },
            "cannot be used",
        ),
        ({"ssl.cipher.suites": "TLS_NO_WITH_SUCH_SUITE"}, "names no suite that OpenSSL has"),
        ({"ssl.cipher.suites": SUITES_1_2, "ssl.enabled.protocols": "TLSv1.3"}, "none of the suites is of TLSv1.3"),
    ],
)
def test_files_that_do_not_do_are_told_at_once(broker: EmbeddedBroker, settings: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        topics(broker, "SSL", **written(settings))
    assert "s3cret" not in str(caught.value)
    assert "wr0ng" not in str(caught.value)


def test_an_encrypted_key_without_its_password_is_told(broker: EmbeddedBroker) -> None:
    with pytest.raises(OptionError, match=r"the private key is encrypted; set kafka\.ssl\.key\.password"):
        topics(
            broker,
            "SSL",
            ssl__certificate__location=str(STORES / "client.pem"),
            ssl__key__location=str(STORES / "client.key.encrypted.pem"),
        )


def test_versions_and_suites(broker: EmbeddedBroker) -> None:
    assert agreed(broker, "SSL", {})[0] == "TLSv1.3"
    assert agreed(broker, "SSL", {"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"})[0] == "TLSv1.2"
    assert agreed(broker, "SSL", {"ssl.protocol": "TLSv1.2"})[0] == "TLSv1.2"
    for suite in SUITES_1_2.split(","):
        version, chosen = agreed(broker, "SSL", {"ssl.cipher.suites": suite})
        assert version == "TLSv1.2"
        assert chosen.replace("-", "_").endswith(suite.rpartition("WITH_AES_")[2])
    assert agreed(broker, "OLD", {"ssl.cipher.suites": f"TLS_AES_256_GCM_SHA384,{SUITES_1_2}"})[0] == "TLSv1.2"
    assert agreed(broker, "SSL", {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})[0] == "TLSv1.3"
    with pytest.raises(OSError, match=r"(?i)version|alert"):
        agreed(broker, "OLD", {"ssl.enabled.protocols": "TLSv1.3"})


def test_a_suite_of_tls_1_3_that_was_not_asked_for_is_not_used(broker: EmbeddedBroker) -> None:
    with pytest.raises(PermissionError, match=r"chose the cipher suite TLS_\w+, not in kafka\.ssl\.cipher\.suites"):
        agreed(broker, "SSL", {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"})


def test_any_host_name_will_do_where_none_is_asked_for(broker: EmbeddedBroker) -> None:
    with pytest.raises(OSError, match=r"not valid for '127\.0\.0\.2'|IP address mismatch"):
        topics(broker, "ELSEWHERE")
    assert topics(broker, "ELSEWHERE", ssl__endpoint__identification__algorithm="") == ["t"]


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
def test_a_jaas_line_logs_in(broker: EmbeddedBroker, mechanism: str, module: str) -> None:
    login = {"security__protocol": "SASL_SSL", "sasl__mechanism": mechanism}
    line = f'{SECURE}.{module} required username="alice" password="{{}}";'
    assert topics(broker, "SASL_SSL", **login, sasl__jaas__config=line.format(USER_PASSWORD)) == ["t"]
    assert topics(broker, "SASL_SSL", **login, sasl__username="alice", sasl__password=USER_PASSWORD) == ["t"]
    with pytest.raises(PermissionError, match=f"refused user 'alice' .{mechanism}") as caught:
        topics(broker, "SASL_SSL", **login, sasl__jaas__config=line.format("wr0ng"))
    assert "wr0ng" not in str(caught.value)


def test_a_mechanism_that_the_broker_does_not_offer(broker: EmbeddedBroker, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken")
    with pytest.raises(PermissionError, match="does not offer SASL mechanism OAUTHBEARER; it offers PLAIN"):
        topics(
            broker,
            "SASL_SSL",
            security__protocol="SASL_SSL",
            sasl__mechanism="OAUTHBEARER",
            sasl__oauthbearer__token__endpoint__url=token.as_uri(),
        )
