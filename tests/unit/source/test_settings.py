"""The kafka.* options: used, passed over, or refused with what to use instead; and secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.kafka.client.settings import READER, ClientSettings, read_settings
from sparkonce.kafka.client.tls import tls_context
from sparkonce.options import OptionError
from tests.cases import each_case

SERVERS = {"kafka.bootstrap.servers": "a:1, [::1]:2"}
JAVA_NAMES = (Path(__file__).parent / "kafka_4_3_consumer_settings.txt").read_text().split()
"""What `ConsumerConfig.configDef()` of Apache Kafka 4.3.0 names."""


def read(**options: str) -> ClientSettings:
    return read_settings({**SERVERS, **{f"kafka.{name.replace('_', '.')}": text for name, text in options.items()}})


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        read(**options)
    return str(caught.value)


def test_servers_and_numbers_are_read() -> None:
    found = read(request_timeout_ms="7", isolation_level="read_committed", max_partition_fetch_bytes="1000")
    assert found.bootstrap_servers == (("a", 1), ("::1", 2))
    assert (found.request_timeout_ms, found.read_committed, found.fetch_max_bytes) == (7, True, 1000)


@each_case("servers", ["", "nohost", "host:", "host:0", "host:99999", ","])
def test_servers_that_are_none(servers: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        read_settings({"kafka.bootstrap.servers": servers})


def test_settings_of_group_members_are_passed_over() -> None:
    assert read(group_id="g", max_poll_records="500") == read()


@each_case(
    ("name", "instead"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("enable.auto.commit", "checkpoint"),
        ("key.deserializer", "CAST"),
        ("value.deserializer", "CAST"),
        ("interceptor.classes", "transform"),
        ("ssl.engine.factory.class", "PEM, PKCS12 or JKS"),
        ("config.providers.file.class", "the values themselves"),
        ("sasl.oauthbearer.assertion.algorithm", "token.endpoint.url"),
        ("sasl.kerberos.service.name", "SCRAM-SHA-512"),
    ],
)
def test_what_is_refused_says_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{name} is not supported") as caught:
        read_settings({**SERVERS, f"kafka.{name}": "x"})
    assert instead in str(caught.value)


@each_case("name", JAVA_NAMES)
def test_every_setting_of_kafka_s_consumer_is_known(name: str) -> None:
    ways = [name in READER.settings, name in READER.without_effect, READER.instead_of(name) is not None]
    assert ways.count(True) == 1
    if ways[1]:
        assert read_settings({**SERVERS, f"kafka.{name}": "whatever"}) == read()
    if ways[2]:
        with pytest.raises(OptionError, match=f"option kafka.{name} is not supported: ."):
            read_settings({**SERVERS, f"kafka.{name}": "whatever"})


@pytest.mark.parametrize("name", ["request_timeout_ms", "fetch_max_wait_ms", "max_partition_fetch_bytes"])
def test_numbers_that_requests_have_no_room_for_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="at most 2147483647"):
        read(**{name: "99999999999"})


def test_names_come_in_any_case() -> None:
    assert read_settings({"KAFKA.Bootstrap.Servers": "a:1", "kafka.CLIENT.id": "me"}).client_id == "me"


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    assert "did you mean 'kafka.request.timeout.ms'" in refusal(request_timeout_mss="1")


def test_tls_takes_names_of_both_worlds() -> None:
    rdkafka = read(security_protocol="SSL", ssl_ca_location="/ca", ssl_certificate_location="/c", ssl_key_location="/k")
    assert rdkafka.tls is not None
    assert (rdkafka.tls.ca_location, rdkafka.tls.certificate_location, rdkafka.tls.key_location) == ("/ca", "/c", "/k")
    java = read(security_protocol="SSL", ssl_truststore_type="PEM", ssl_truststore_location="/ca")
    assert java.tls is not None
    assert java.tls.ca_location == "/ca"
    assert java.tls.check_hostname


def test_key_stores_of_java_are_read_where_a_connection_is_made() -> None:
    found = read(
        security_protocol="SSL",
        ssl_truststore_location="/t.jks",
        ssl_truststore_password="s3cret",
        ssl_truststore_type="JKS",
        ssl_keystore_location="/k.p12",
        ssl_keystore_password="s3cret",
        ssl_key_password="s3cret",
    ).tls
    assert found is not None
    assert (found.ca_location, found.ca_password) == ("/t.jks", "s3cret")
    assert (found.certificate_location, found.certificate_password, found.key_password) == ("/k.p12", *["s3cret"] * 2)
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize("name", ["ssl_truststore_location", "ssl_ca_location", "ssl_keystore_location"])
def test_a_file_without_a_name_is_refused(name: str) -> None:
    """As where a variable was not set: the system's authorities would be trusted, or no certificate be shown."""
    with pytest.raises(OptionError, match=f"option kafka.{name.replace('_', '.')} is empty: name a file"):
        read(security_protocol="SSL", **{name: ""})


def test_a_key_that_would_not_be_used_is_refused() -> None:
    with pytest.raises(OptionError, match="go together, and the certificate is missing"):
        read(security_protocol="SSL", ssl_key_location="/k")
    store = Path(__file__).parent / "key_stores" / "client.p12"
    given = {"ssl_keystore_location": str(store), "ssl_keystore_password": "store-s3cret", "ssl_key_location": "/k"}
    tls = read(security_protocol="SSL", **given).tls
    assert tls is not None
    with pytest.raises(OptionError, match=r"key\.location=/k would not be used: .* has a private key of its own"):
        tls_context(tls)


def test_stores_of_other_kinds_are_refused_with_the_way_out() -> None:
    text = refusal(security_protocol="SSL", ssl_keystore_type="BCFKS")
    assert "kafka.ssl.keystore.type='BCFKS'" in text
    assert "PEM, PKCS12, JKS" in text
    assert "keytool" in text


def test_a_key_without_its_certificates_is_refused() -> None:
    assert "go together" in refusal(security_protocol="SSL", ssl_keystore_key="s3cret")
    assert "s3cret" not in refusal(security_protocol="SSL", ssl_keystore_key="s3cret")


@each_case(
    ("enabled", "newest", "versions"),
    [
        ("", "", ("TLSv1.2", "TLSv1.3")),
        ("TLSv1.2", "", ("TLSv1.2",)),
        ("TLSv1.2,TLSv1.1,TLSv1", "", ("TLSv1.2",)),
        ("TLSv1.3, TLSv1.2", "TLS", ("TLSv1.2", "TLSv1.3")),
        ("", "TLSv1.2", ("TLSv1.2",)),
        ("", "TLSv1.3", ("TLSv1.2", "TLSv1.3")),
    ],
)
def test_versions_of_tls(enabled: str, newest: str, versions: tuple[str, ...]) -> None:
    given = {"ssl_enabled_protocols": enabled, "ssl_protocol": newest}
    found = read(security_protocol="SSL", **{name: text for name, text in given.items() if text}).tls
    assert found is not None
    assert found.versions == versions


def test_versions_of_tls_that_cannot_be_had() -> None:
    assert "expected TLSv1.2, TLSv1.3" in refusal(security_protocol="SSL", ssl_enabled_protocols="TLSv1.1")
    assert "expected TLSv1.2, TLSv1.3" in refusal(security_protocol="SSL", ssl_enabled_protocols="TLSv1.2,TLSv9")
    assert "expected TLS, TLSv1.2 or TLSv1.3" in refusal(security_protocol="SSL", ssl_protocol="SSLv3")
    assert "no version of TLS" in refusal(
        security_protocol="SSL", ssl_protocol="TLSv1.2", ssl_enabled_protocols="TLSv1.3"
    )


def test_a_jaas_line_is_translated_and_never_shown() -> None:
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="s3cret";'
    found = read(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=line)
    assert found.sasl is not None
    assert (found.sasl.username, found.sasl.password) == ("me", "s3cret")
    assert "s3cret" not in repr(found)
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config="x.Krb5 s3cret;")
    assert "s3cret" not in text
    assert "kafka.sasl.username" in text


@each_case(
    ("written", "password"),
    [
        ('"it\'s secret"', "it's secret"),
        (r'"a\"b"', 'a"b'),
        (r"'it\'s'", "it's"),
        (r'"back\\slash"', "back\\slash"),
        (r'"\101\t\x"', "A\tx"),
        ('"a;b=c d"', "a;b=c d"),
        ("\"username='not me'\"", "username='not me'"),
        ("plain-word", "plain-word"),
        ('""', ""),
    ],
)
@each_case("order", ['username="me" password={}', "password={} username='me'"])
def test_passwords_in_a_jaas_line_are_read_to_their_end(written: str, password: str, order: str) -> None:
    line = f"org.apache.kafka.common.security.plain.PlainLoginModule required {order.format(written)};"
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": line}
    if not password:
        assert "kafka.sasl.password" in refusal(**options)
        return
    found = read(**options)
    assert found.sasl is not None
    assert (found.sasl.username, found.sasl.password) == ("me", password)


@each_case(
    "written",
    ['"s3cret', "s3cret'", '"s3cret"x', 's3"cret', '"s3cret" x.PlainLoginModule', '"s3cret";;'],
)
def test_a_jaas_line_that_cannot_be_read_is_refused_and_not_shown(written: str) -> None:
    line = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password={written};'
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=line)
    assert "kafka.sasl.jaas.config cannot be read" in text
    assert "s3" not in text


def test_sasl_without_a_user_or_with_kerberos() -> None:
    assert "kafka.sasl.username" in refusal(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    assert "Kerberos" in refusal(security_protocol="SASL_PLAINTEXT")
    assert "SCRAM-SHA-256" in refusal(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI")
    line = 'x.PlainLoginModule required username="u" password="p";'
    text = refusal(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=line)
    assert "PlainLoginModule, which is not for kafka.sasl.mechanism=SCRAM-SHA-256; use that of PLAIN" in text
    assert "PLAINTEXT, SSL" in refusal(security_protocol="TLS")
