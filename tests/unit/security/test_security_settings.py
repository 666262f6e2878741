"""Listeners, TLS and SASL from Kafka's settings, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkonce.broker_lite.config import BrokerConfig, ConfigError
from sparkonce.broker_lite.security.settings import ListenerConfig
from sparkonce.broker_lite.security.tls import TlsError, server_context
from tests.cases import each_case
from tests.certificates import Authority

SECRET = "s3cret"
STORES = Path(__file__).parents[1] / "source" / "key_stores"
STORE_PASSWORD, KEY_PASSWORD = "store-s3cret", "key-s3cret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
SASL: dict[str, object] = {
    "listeners": "SASL_PLAINTEXT://:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}


def listeners(**settings: object) -> tuple[ListenerConfig, ...]:
    return BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()}).listener_configs


def one(settings: dict[str, object]) -> ListenerConfig:
    (found,) = BrokerConfig.of(settings).listener_configs
    return found


def test_without_listeners_there_is_one() -> None:
    (found,) = listeners(port=9092)
    assert (found.name, found.protocol, found.host, found.port) == ("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
    assert BrokerConfig().listener_configs == listeners()


def test_names_addresses_and_what_clients_are_told() -> None:
    inside, outside, third = listeners(
        listeners="INSIDE://:9092, outside://0.0.0.0:9093,THIRD://[::1]:0",
        advertised_listeners="OUTSIDE://broker.example:19093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,THIRD:plaintext",
        inter_broker_listener_name="INSIDE",
    )
    assert (inside.name, inside.host, inside.port, inside.advertised_host) == ("INSIDE", "127.0.0.1", 9092, "127.0.0.1")
    assert (outside.host, outside.advertised_host, outside.advertised_port) == ("0.0.0.0", "broker.example", 19093)
    assert (third.host, third.protocol) == ("::1", "PLAINTEXT")


def test_a_listeners_own_settings_beat_the_common_ones() -> None:
    name = "listener.name.sasl_plaintext."
    found = one(
        {
            **SASL,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{name}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "connections.max.reauth.ms": 1000,
            f"{name}connections.max.reauth.ms": "2000",
            f"{name}plain.connections.max.reauth.ms": 3000,
        }
    )
    assert found.sasl is not None
    assert found.sasl.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert found.sasl.max_reauth_ms == {"PLAIN": 3000, "SCRAM-SHA-256": 2000}
    assert found.sasl.users == {"PLAIN": {"alice": SECRET}, "SCRAM-SHA-256": {}}


@each_case(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT"}, "is not <name>://<host>:<port>"),
        ({"listeners": "PLAINTEXT://127.0.0.1:99999"}, "is larger than 65535"),
        ({"listeners": "A://:1,A://:2"}, "A is there twice"),
        ({"listeners": "PLAINTEXT://:9092,SSL://:9092"}, "a port of its own"),
        ({"listeners": "MINE://:0"}, "MINE is not in listener.security.protocol.map"),
        ({"listeners": "A://:0", "listener.security.protocol.map": "A:TLS"}, "'A:TLS' is not"),
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, "give listener PLAINTEXT in advertised.listeners"),
        ({"host.name": "0"}, "connect to 0: give listener PLAINTEXT in advertised.listeners"),
        ({"host.name": "0x00"}, "connect to 0x00: give listener PLAINTEXT in advertised.listeners"),
        ({"listeners": "PLAINTEXT://[::ffff:0.0.0.0]:0"}, "give listener PLAINTEXT in advertised.listeners"),
        ({"host.name": "0.0"}, "connect to 0.0: give listener PLAINTEXT in advertised.listeners"),
        ({"listeners": "PLAINTEXT://[::0]:0"}, "connect to ::0: give listener PLAINTEXT in advertised.listeners"),
        ({"listeners": "PLAINTEXT://[0:0::0]:0"}, "give listener PLAINTEXT in advertised.listeners"),
        ({"host.name": "0.0.0.0"}, "connect to 0.0.0.0: give listener PLAINTEXT in advertised.listeners"),
        ({"host.name": "::"}, "connect to ::: give listener PLAINTEXT in advertised.listeners"),
        ({"listeners": "PLAINTEXT://:0", "advertised.listeners": "B://h:1"}, "B is not among listeners"),
        ({"listeners": "PLAINTEXT://:0", "port": 9092}, "either listeners or host.name and port"),
        ({"inter.broker.listener.name": "B"}, "inter.broker.listener.name=B"),
        ({"listener.name.b.ssl.client.auth": "none"}, "B is not among listeners"),
        ({"listener.name.plaintext.log.dirs": "x"}, "log.dirs is not among what can be set for one listener"),
        ({"listener.name.plaintext": "x"}, "expected listener.name"),
        ({"listener.name.plaintext.sasl.jaas.config": "x"}, "name the mechanism"),
        ({**SASL, "sasl.enabled.mechanisms": ""}, "needs sasl.enabled.mechanisms"),
        ({**SASL, "sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is not served"),
        ({"listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "PLAIN"}, "needs its users in listener.name."),
        ({"listeners": "SSL://:0"}, "needs ssl.keystore.location"),
        ({"listeners": "SSL://:0", "ssl.keystore.type": "BKS"}, "ssl.keystore.type=BKS: only JKS, PKCS12, PEM are"),
        ({"listeners": "SSL://:0", "ssl.truststore.type": "BKS"}, "ssl.truststore.type=BKS: only JKS, PKCS12, PEM are"),
        ({"listeners": "SSL://:0", "ssl.keystore.location": "x", "ssl.keystore.key": "x"}, "either ssl.keystore.loc"),
        ({"listeners": "SSL://:0", "ssl.keystore.location": "x", "ssl.principal.mapping.rules": "x"}, "mapping.rules"),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth"),
        ({"authorizer.class.name": "com.example.Mine"}, "expected empty or .*StandardAuthorizer"),
        ({"ssl.enabled.protocols": "SSLv3"}, "'SSLv3' is none of TLSv1.2, TLSv1.3"),
    ],
)  # fmt: skip
def test_what_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.of(settings)


def test_nothing_secret_is_in_a_repr_or_an_error() -> None:
    settings: dict[str, Any] = {
        **SASL,
        "listeners": "SASL_SSL://:0",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.key": SECRET,
        "ssl.keystore.certificate.chain": SECRET,
        "listener.name.sasl_ssl.ssl.key.password": SECRET,
        "ssl.truststore.certificates": SECRET,
    }
    del settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    config = BrokerConfig.of(settings)
    assert SECRET in str(config.given)
    assert SECRET not in repr(config)
    with pytest.raises(TlsError) as raised:
        server_context(config.listener_configs[0])
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.of({**SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS.removesuffix(";")})
    assert SECRET not in str(refused.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def tls(**settings: object) -> ListenerConfig:
    return one(
        {"listeners": "SSL://:0", **{f"ssl.{name.replace('_', '.')}": value for name, value in settings.items()}}
    )


def test_keys_from_a_file_from_the_settings_and_with_a_password(authority: Authority) -> None:
    broker = authority.issue("broker.pem")
    server_context(tls(keystore_location=broker.file, truststore_location=authority.file, client_auth="required"))
    in_one_line = broker.key_text().replace("\n", "\\n")
    server_context(tls(keystore_key=in_one_line, keystore_certificate_chain=broker.chain + authority.text))
    locked = broker.key_text(SECRET)
    context = server_context(
        tls(keystore_key=locked, keystore_certificate_chain=broker.chain, key_password=SECRET,
            truststore_certificates=authority.text, enabled_protocols="TLSv1.2")
    )  # fmt: skip
    assert context.minimum_version == context.maximum_version
    assert len(context.get_ca_certs()) == 1


def test_keys_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    broker, other = authority.issue("broker.pem"), authority.issue("other.pem")
    junk = tmp_path / "junk.jks"
    junk.write_bytes(b"\xfe\xed\xfe\xed")
    for settings, message in (
        ({"keystore_location": tmp_path / "none.pem"}, "ssl.keystore.location=.*none.pem cannot be read: No such file"),
        ({"keystore_location": junk}, "cannot be read: it is damaged"),
        ({"keystore_location": authority.file}, "cannot be used: "),
        ({"keystore_location": STORES / "client.p12"}, "client.p12 cannot be read: .* needs a password"),
        ({"keystore_location": STORES / "client.jks", "keystore_password": STORE_PASSWORD}, "key is wrong .*key.pass"),
        ({"keystore_location": STORES / "trust.jks"}, "trust.jks cannot be used: there is no private key"),
        ({"keystore_location": broker.file, "truststore_location": STORES / "trust.p12"}, "ssl.truststore.password"),
        ({"keystore_location": broker.file, "truststore_location": STORES / "client.p12",
          "truststore_password": STORE_PASSWORD + "!"}, "the password is wrong .*ssl.truststore.password"),
        ({"keystore_location": broker.file, "truststore_location": STORES / "client.jks"}, "that could be trusted"),
        ({"keystore_key": broker.key_text(), "keystore_certificate_chain": other.chain}, "KEY_VALUES_MISMATCH"),
        ({"keystore_key": broker.key_text("x"), "keystore_certificate_chain": broker.chain}, "set ssl.key.password"),
        ({"keystore_key": broker.key_text("x"), "keystore_certificate_chain": broker.chain, "key_password": SECRET},
         "cannot be used"),
        ({"keystore_location": broker.file, "truststore_location": junk}, "ssl.truststore.location=.*it is damaged"),
    ):  # fmt: skip
        with pytest.raises(TlsError, match=message) as raised:
            server_context(tls(**settings))
        assert SECRET not in str(raised.value)
        assert STORE_PASSWORD not in str(raised.value)


def test_stores_of_java_are_read_whatever_type_is_set(authority: Authority) -> None:
    key = {"jks": {"key_password": KEY_PASSWORD}, "p12": {}}
    for kind, settings in key.items():
        for named in ({}, {"keystore_type": "JKS"}, {"keystore_type": "PKCS12", "truststore_type": "PEM"}):
            context = server_context(
                tls(keystore_location=STORES / f"client.{kind}", keystore_password=STORE_PASSWORD,
                    truststore_location=STORES / f"trust.{kind}", truststore_password=STORE_PASSWORD,
                    client_auth="required", **settings, **named)
            )  # fmt: skip
            (trusted,) = context.get_ca_certs()
            assert trusted["subject"] == ((("commonName", "authority"),),)
    without = tls(keystore_location=authority.issue("broker.pem").file, truststore_location=STORES / "trust.jks")
    assert server_context(without).get_ca_certs()
