"""A producer's settings: all of Apache Kafka's are known, none is dropped in silence, and secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.connectors.reference.hints import checked
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.producer_settings import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    PRODUCER,
    ProducerSettings,
    read_producer,
)
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.options import OptionError
from tests.cases import each_case

SERVERS = {"kafka.bootstrap.servers": "h:1"}
JAVA_NAMES = (Path(__file__).parent / "kafka_4_3_producer_settings.txt").read_text().split()
WEAKEST = Guarantee.AT_MOST_ONCE


def read(
    settings: dict[str, str], guarantee: Guarantee = Guarantee.EXACTLY_ONCE
) -> tuple[ClientSettings, ProducerSettings]:
    return read_producer({**SERVERS, **{f"kafka.{name}": text for name, text in settings.items()}}, guarantee.keeping)


def producer(settings: dict[str, str], guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> ProducerSettings:
    return read(settings, guarantee)[1]


def refusal(settings: dict[str, str], guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> str:
    with pytest.raises(OptionError) as caught:
        read(settings, guarantee)
    assert str(caught.value).startswith("kafka_once: ")
    return str(caught.value)


def test_without_settings_all_in_sync_replicas_have_a_row() -> None:
    client, found = read({})
    assert client.bootstrap_servers == (("h", 1),)
    assert found == ProducerSettings()
    assert (found.acks, found.idempotent, found.transaction_timeout_ms) == (-1, True, DEFAULT_TRANSACTION_TIMEOUT_MS)


def test_every_setting_that_is_honoured_arrives() -> None:
    client, found = read(
        {
            "client.id": "me",
            "request.timeout.ms": "1000",
            "retry.backoff.ms": "7",
            "max.block.ms": "9000",
            "acks": "-1",
            "COMPRESSION.TYPE": "zstd",
            "compression.zstd.level": "-5",
            "compression.gzip.level": "9",
            "batch.size": "16384",
            "max.in.flight.requests.per.connection": "1",
            "delivery.timeout.ms": "5000",
            "retries": "3",
            "enable.idempotence": "true",
            "transaction.timeout.ms": "60000",
            "metadata.max.age.ms": "0",
            "partitioner.ignore.keys": "false",
        }
    )
    assert (client.client_id, client.request_timeout_ms, client.retry_backoff_ms) == ("me", 1000, 7)
    assert client.api_timeout_ms == 9000
    assert found == ProducerSettings(
        acks=-1,
        compression=Compression.ZSTD,
        compression_gzip_level=9,
        compression_zstd_level=-5,
        batch_bytes=16384,
        max_in_flight=1,
        delivery_timeout_ms=5000,
        retries=3,
        enable_idempotence=True,
        max_block_ms=9000,
        metadata_max_age_ms=0,
        transaction_timeout_ms=60000,
    )
    assert (found.level_of(found.compression), found.idempotent) == (-5, True)


@pytest.mark.parametrize(
    ("codec", "level"),
    [("none", None), ("gzip", -1), ("snappy", None), ("lz4", 9), ("zstd", 3)],
)
def test_each_codec_has_kafka_s_usual_level(codec: str, level: int | None) -> None:
    found = producer({"compression.type": codec})
    assert (found.compression.name.lower(), found.level_of(found.compression)) == (codec, level)


def test_the_largest_request_bounds_a_batch() -> None:
    assert producer({"max.request.size": "1000"}).batch_bytes == 1000
    assert producer({"max.request.size": "9000", "batch.size": "8000"}).batch_bytes == 8000


def test_the_time_for_a_record_is_no_shorter_than_for_a_request() -> None:
    assert producer({"request.timeout.ms": "200000"}).delivery_timeout_ms == 200_000
    text = refusal({"delivery.timeout.ms": "500", "request.timeout.ms": "600"})
    assert "kafka.delivery.timeout.ms=500 is below kafka.request.timeout.ms=600" in text


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
@pytest.mark.parametrize("acks", ["0", "1"])
def test_rows_that_may_not_be_lost_want_all_replicas(acks: str, guarantee: Guarantee) -> None:
    text = refusal({"acks": acks}, guarantee)
    assert f"kafka.acks={acks} can lose" in text
    assert guarantee.value in text
    assert "deliveryGuarantee=at-most-once" in text


def test_at_most_once_may_ask_fewer() -> None:
    leader, nobody = producer({"acks": "1"}, WEAKEST), producer({"acks": "0"}, WEAKEST)
    assert (leader.acks, leader.idempotent) == (1, True)
    assert (nobody.acks, nobody.idempotent) == (0, False)
    assert not producer({"acks": "0", "enable.idempotence": "false"}, WEAKEST).idempotent


@pytest.mark.parametrize("guarantee", Guarantee)
def test_nothing_is_sent_twice_without_the_broker_knowing(guarantee: Guarantee) -> None:
    assert "kafka.enable.idempotence=false would write records twice" in refusal(
        {"enable.idempotence": "false"}, guarantee
    )


def test_idempotence_needs_answers() -> None:
    assert "kafka.acks=0 requests none" in refusal({"acks": "0", "enable.idempotence": "true"}, WEAKEST)


@each_case(
    ("name", "text", "expected"),
    [
        ("acks", "2", "expected one of all, -1, 1, 0"),
        ("compression.type", "brotli", "expected one of none, gzip, snappy, lz4, zstd"),
        ("compression.gzip.level", "0", "must be at least 1, or -1"),
        ("compression.lz4.level", "18", "must be at most 17"),
        ("compression.zstd.level", "23", "must be at most 22"),
        ("compression.zstd.level", "x", "from -131072 to 22"),
        ("batch.size", "-1", "must be at least 0"),
        ("max.request.size", "0", "must be at least 1"),
        ("max.in.flight.requests.per.connection", "6", "must be at most 5"),
        ("max.in.flight.requests.per.connection", "0", "must be at least 1"),
        ("delivery.timeout.ms", "soon", "expected a whole number >= 1"),
        ("request.timeout.ms", "0", "must be at least 1"),
        ("retries", "-1", "must be at least 0"),
        ("request.timeout.ms", "99999999999", "at most 2147483647"),
        ("batch.size", "2147483648", "at most 2147483647"),
        ("enable.idempotence", "yes", "true or false"),
        ("metadata.max.age.ms", "-1", "must be at least 0"),
        ("max.block.ms", "0", "must be at least 1"),
        ("transaction.timeout.ms", "999", "must be at least 1000"),
        ("partitioner.ignore.keys", "1", "true or false"),
    ],
)
def test_a_value_that_cannot_be_read_is_shown_with_what_is_expected(name: str, text: str, expected: str) -> None:
    message = refusal({name: text})
    assert f"option kafka.{name}={text!r}: " in message
    assert expected in message


@each_case(
    ("name", "text", "instead"),
    [
        ("transactional.id", "x", "appId"),
        ("key.serializer", "x", "to_json"),
        ("value.serializer", "x", "to_json"),
        ("interceptor.classes", "x", "transform the DataFrame"),
        ("partitioner.class", "x", "column partition"),
        ("partitioner", "x", "column partition"),
        ("partitioner.ignore.keys=true", "", "column partition"),
        ("retries=0", "", "kafka.delivery.timeout.ms"),
        ("default.api.timeout.ms", "1", "kafka.max.block.ms"),
        ("config.providers", "x", "the values themselves"),
        ("ssl.provider", "x", "OpenSSL"),
        ("sasl.kerberos.kinit.cmd", "x", "SCRAM-SHA-512"),
        ("sasl.oauthbearer.assertion.file", "x", "token.endpoint.url"),
        ("isolation.level", "read_committed", "a setting of readers"),
        ("group.id", "g", "a setting of readers"),
        ("auto.offset.reset", "latest", "a setting of readers"),
    ],
)
def test_what_is_refused_says_what_to_use(name: str, text: str, instead: str) -> None:
    plain, _, value = name.partition("=")
    message = refusal({plain: value or text})
    assert f"option kafka.{name} is not supported" in message
    assert instead in message


@each_case("name", JAVA_NAMES)
def test_every_setting_of_kafka_s_producer_is_known(name: str) -> None:
    ways = [name in PRODUCER.settings, name in PRODUCER.without_effect, PRODUCER.instead_of(name) is not None]
    assert ways.count(True) == 1
    if ways[1]:
        assert read({name: "whatever"}) == read({})
    if ways[2]:
        assert f"option kafka.{name} is not supported" in refusal({name: "whatever"})


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    for name, near in {
        "compresion.type": "compression.type",
        "linger": "linger.ms",
        "ssl.ca.locaton": "ssl.ca.location",
        "batchsize": "batch.size",
    }.items():
        assert f"did you mean 'kafka.{near}'?" in refusal({name: "1"})
    assert refusal({"zzzzzzzz": "1"}).endswith("`sparkonce options kafka-sink kafka.` lists all")
    with pytest.raises(OptionError, match=r"without kafka\. it is an option, topic, of the Kafka sink"):
        checked(lambda given: read_producer(given, WEAKEST.keeping), {**SERVERS, "kafka.topic": "t"})


SECRET = "s3cret"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": SECRET}


def test_logging_in_and_tls_are_read_as_for_the_source() -> None:
    client, _ = read({**LOGIN, "ssl.ca.pem": "CA", "ssl.key.password": SECRET})
    assert client.sasl is not None
    assert client.tls is not None
    assert (client.sasl.username, client.sasl.password, client.tls.ca_pem) == ("u", SECRET, "CA")
    assert SECRET not in repr(client)


@each_case(
    "wrong",
    [
        {"acks": "0"},
        {"acks": "9"},
        {"nonsense": SECRET},
        {"ssl.keystore.password": SECRET, "ssl.keystore.type": "BCFKS"},
        {"ssl.keystore.key": SECRET},
        {"sasl.oauthbearer.client.credentials.client.secret": SECRET, "sasl.mechanism": "OAUTHBEARER"},
        {"sasl.oauthbearer.assertion.private.key.passphrase": SECRET},
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.username": ""},
        {"sasl.jaas.config": f'x.PlainLoginModule required username="u" password={SECRET}";'},
        {"security.protocol": "TLS"},
    ],
)
def test_no_error_shows_a_secret(wrong: dict[str, str]) -> None:
    assert SECRET not in refusal({**LOGIN, **wrong})
