"""How records are sent: the ``kafka.*`` options of a producer that concern the records and not the connection.

Names are those of Kafka's Java producer (``ProducerConfig`` of Kafka 4.3), since Spark's own Kafka sink takes those.
Each is used, known to have no effect here, or refused with what to use instead: nothing is dropped in silence. What
would break the promise of ``deliveryGuarantee`` is refused, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_lite.protocol.compression import Compression
from connectors.kafka_once.settings import (
    COMMON,
    MECHANISMS,
    READER_SETTINGS,
    REFUSED_EVERYWHERE,
    SECURITY,
    ClientSettings,
    Reading,
    client_settings,
    given_settings,
    read_one,
    refusal,
    unknown,
)
from connectors.options import Option, OptionError, boolean, not_negative, one_of, positive
from exactly_once.guarantee import Guarantee

DEFAULT_BATCH_BYTES = 256 * 1024
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default (``transaction.max.timeout.ms``): how long a decided transaction waits."""
DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
DEFAULT_METADATA_MAX_AGE_MS = 300_000
DEFAULT_MAX_REQUEST_BYTES = 1024 * 1024
MOST_IN_FLIGHT = 5
"""Batches of one producer that a broker remembers for each partition, to tell one that is sent again."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What a producer needs to know besides where the cluster is."""

    acks: int = -1
    """-1 for all in-sync replicas, 1 for the leader, 0 for no answer."""
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """A record batch is closed before it grows past this many bytes, uncompressed; a larger record is one by itself."""
    max_in_flight: int = MOST_IN_FLIGHT
    """Produce requests on one connection that have no answer yet; 5 at most with idempotence."""
    idempotent: bool = True
    delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS
    """How long a record may take from its sending to its acknowledgement, with all retries."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS
    """How old a number of partitions may be when a task begins to write to the topic."""


def _between(least: int, most: int, also: int | None = None) -> Any:
    def parse(text: str) -> int:
        expected = f"expected a whole number from {least} to {most}" + ("" if also is None else f", or {also}")
        try:
            number = int(text)
        except ValueError:
            raise ValueError(expected) from None
        if not least <= number <= most and number != also:
            raise ValueError(expected)
        return number

    return parse


_CODECS = tuple(codec.name.lower() for codec in Compression)

SETTINGS = (
    Option(
        "acks",
        "who must have a record before it counts as written: `all` in-sync replicas; with at-most-once also `1`, the "
        "leader, or `0`, nobody is asked",
        one_of("all", "-1", "1", "0"),
        "all",
    ),
    Option("compression.type", "of record batches: " + ", ".join(_CODECS), one_of(*_CODECS), "none"),
    Option("compression.gzip.level", "1 to 9, or -1 for zlib's own choice", _between(1, 9, -1), -1),
    Option("compression.lz4.level", "1 to 17", _between(1, 17), 9),
    Option("compression.zstd.level", "-131072 to 22", _between(-131072, 22), 3),
    Option(
        "batch.size",
        "bytes of a record batch before compression; a larger record is a batch by itself",
        not_negative,
        DEFAULT_BATCH_BYTES,
    ),
    Option(
        "max.request.size",
        "bounds batch.size. A larger record is a batch by itself, and the topic's max.message.bytes decides",
        positive,
        DEFAULT_MAX_REQUEST_BYTES,
    ),
    Option(
        "max.in.flight.requests.per.connection",
        "requests that wait for an answer, 1 to 5; the order of records is kept",
        _between(1, MOST_IN_FLIGHT),
        MOST_IN_FLIGHT,
    ),
    Option(
        "delivery.timeout.ms",
        "how long a record may take from its sending to its acknowledgement; not below request.timeout.ms",
        positive,
        DEFAULT_DELIVERY_TIMEOUT_MS,
    ),
    Option("retries", "records are sent again until delivery.timeout.ms is over, so only 0 is refused", not_negative),
    Option(
        "enable.idempotence",
        "whether the broker passes over what comes twice: `true`, or `false` with acks=0, where nothing does",
        boolean,
    ),
    Option("max.block.ms", "how long to wait for metadata and coordinators, with all retries", positive, 60_000),
    Option(
        "metadata.max.age.ms",
        "how long partitions that are added to a topic may go without records; where leaders are is learned at once",
        not_negative,
        DEFAULT_METADATA_MAX_AGE_MS,
    ),
    Option(
        "transaction.timeout.ms",
        "exactly-once: when the broker gives up an open transaction. It bounds how long a batch may take, and how long "
        "after a crash it can still be made visible; at most the broker's transaction.max.timeout.ms",
        positive,
        DEFAULT_TRANSACTION_TIMEOUT_MS,
    ),
    Option(
        "partitioner.ignore.keys", "only `false`: for another distribution write a column partition", boolean, False
    ),
)
"""What is used of the Java producer's settings, besides those of every client."""

_WAITING = "a task has its rows at hand: batches are sent as they fill, the rest at its end, and memory is bounded"
_LEADERS = "leaders are asked for when a topic is first written to, and when one has moved"
_SPREAD = "records without a key are spread evenly"
_MEASURED = "there is no Java producer to measure"
_SOCKETS = (
    "connections are kept in the worker process, and opened anew when they break; all addresses of a host are tried"
)
WITHOUT_EFFECT = {
    "linger.ms": _WAITING,
    "buffer.memory": _WAITING,
    "metadata.max.idle.ms": _LEADERS,
    "metadata.recovery.strategy": _LEADERS,
    "metadata.recovery.rebootstrap.trigger.ms": _LEADERS,
    "partitioner.adaptive.partitioning.enable": _SPREAD,
    "partitioner.availability.timeout.ms": _SPREAD,
    "auto.include.jmx.reporter": _MEASURED,
    "enable.metrics.push": _MEASURED,
    "metric.reporters": _MEASURED,
    "metrics.num.samples": _MEASURED,
    "metrics.recording.level": _MEASURED,
    "metrics.sample.window.ms": _MEASURED,
    "client.dns.lookup": _SOCKETS,
    "connections.max.idle.ms": _SOCKETS,
    "reconnect.backoff.max.ms": _SOCKETS,
    "reconnect.backoff.ms": _SOCKETS,
    "send.buffer.bytes": _SOCKETS,
    "socket.connection.setup.timeout.max.ms": _SOCKETS,
}
"""Settings of the Java producer that make no difference here, and why."""

_SERIALIZER = "columns key and value are binary or string; convert them with DataFrame operations, e.g. to_json(…)"
_PARTITIONER = (
    "records with a key go where Java's default partitioner puts them (librdkafka's murmur2_random); "
    "to put them elsewhere, write a column partition"
)
_PEM_KEY = "give PEM files: kafka.ssl.certificate.location and kafka.ssl.key.location"
_JAVA_TLS = (
    "Java's TLS is not used; Python's takes TLS 1.2 or later, as OpenSSL is set up on this machine: leave it out"
)
REFUSED = {
    **REFUSED_EVERYWHERE,
    "transactional.id": "the sink makes transactional ids from the option appId, a new one for each task; set appId",
    "transaction.two.phase.commit.enable": "the sink ends its transactions through a decision of its own; leave it out",
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
    "interceptor.classes": "there is no Java producer to intercept; transform the DataFrame instead",
    "partitioner.class": _PARTITIONER,
    "partitioner": _PARTITIONER,
    "config.providers": "values are taken as they stand and ${…} is not looked up; give the values themselves",
    "default.api.timeout.ms": "that is a reader's; set kafka.max.block.ms",
    "ssl.keystore.certificate.chain": _PEM_KEY,
    "ssl.keystore.key": _PEM_KEY,
    "security.providers": _JAVA_TLS,
    "ssl.cipher.suites": _JAVA_TLS,
    "ssl.enabled.protocols": _JAVA_TLS,
    "ssl.engine.factory.class": _JAVA_TLS,
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.protocol": _JAVA_TLS,
    "ssl.provider": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
}
"""What a producer here does not take, and what to use instead."""

_LOGGING_IN = ("sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.", "sasl.client.")
"""How the names begin of what logs in by Kerberos, OAuth or a Java class."""

_CLIENT: Reading = {**COMMON, "max.block.ms": ("api_timeout_ms", positive)}
_LEVELS = {
    Compression.GZIP: "compression.gzip.level",
    Compression.LZ4: "compression.lz4.level",
    Compression.ZSTD: "compression.zstd.level",
}


def read_producer(options: Mapping[str, str], guarantee: Guarantee) -> tuple[ClientSettings, ProducerSettings]:
    """Read a producer's settings among ``options``, whose names begin with ``kafka.``; others are passed over.

    Raises:
        OptionError: for a setting that is unknown, refused, unreadable or at odds with another or with the guarantee.
            Secrets are not shown.
    """
    given = given_settings(options)
    for name in given:
        _check_name(name)
    client = client_settings(given, _CLIENT)
    values = {
        setting.name: read_one(given, setting.name, setting.parse) if setting.name in given else setting.default
        for setting in SETTINGS
    }
    _refuse_values(values)
    acks = -1 if values["acks"] == "all" else int(values["acks"])
    compression = Compression[values["compression.type"].upper()]
    return client, ProducerSettings(
        acks=_checked_acks(acks, guarantee),
        compression=compression,
        compression_level=values[_LEVELS[compression]] if compression in _LEVELS else None,
        batch_bytes=min(values["batch.size"], values["max.request.size"]),
        max_in_flight=values["max.in.flight.requests.per.connection"],
        idempotent=_idempotent(values, acks),
        delivery_timeout_ms=_delivery_timeout_ms(given, values["delivery.timeout.ms"], client),
        transaction_timeout_ms=values["transaction.timeout.ms"],
        metadata_max_age_ms=values["metadata.max.age.ms"],
    )


def _check_name(name: str) -> None:
    used = {*_CLIENT, *SECURITY, *(setting.name for setting in SETTINGS)}
    if name in used or name in WITHOUT_EFFECT:
        return
    if name in REFUSED:
        raise refusal(name, REFUSED[name])
    if name in READER_SETTINGS:
        raise refusal(name, "that is a setting of readers, and this is the sink; set it on the source, or leave it out")
    if name.startswith(_LOGGING_IN):
        raise refusal(
            name,
            f"Kerberos, OAuth and login classes are not; kafka.sasl.mechanism is one of {', '.join(MECHANISMS)}",
        )
    raise unknown(name, sorted(used), WITHOUT_EFFECT)


def _refuse_values(values: Mapping[str, Any]) -> None:
    if values["retries"] == 0:
        raise refusal(
            "retries=0",
            "a failed request is sent again, in order and without duplicates; to give up sooner, set "
            "kafka.delivery.timeout.ms",
        )
    if values["partitioner.ignore.keys"]:
        raise refusal("partitioner.ignore.keys=true", _PARTITIONER)


def _checked_acks(acks: int, guarantee: Guarantee) -> int:
    if acks != -1 and guarantee is not Guarantee.AT_MOST_ONCE:
        raise OptionError(
            f"kafka_once: option kafka.acks={acks} can lose records that count as written, when the leader of a "
            f"partition fails before its followers have them, and deliveryGuarantee={guarantee.value} promises that "
            "none is lost. Leave kafka.acks out, or set deliveryGuarantee=at-most-once"
        )
    return acks


def _idempotent(values: Mapping[str, Any], acks: int) -> bool:
    """Without answers nothing is sent again; else sending again must not write twice, whatever the guarantee."""
    asked: bool | None = values["enable.idempotence"]
    if asked is not None and asked == (acks == 0):
        raise OptionError(
            "kafka_once: option kafka.enable.idempotence=true needs the broker's answers, and kafka.acks=0 asks for "
            "none; leave one of them out"
            if asked
            else "kafka_once: option kafka.enable.idempotence=false would write records twice, or out of order, whose "
            "request is sent again after its answer was lost; leave it out"
        )
    return acks != 0


def _delivery_timeout_ms(given: Mapping[str, str], wanted_ms: int, client: ClientSettings) -> int:
    """As in Java's producer, the time that all attempts have bounds the time that one has (KIP-91)."""
    if "delivery.timeout.ms" in given and wanted_ms < client.request_timeout_ms:
        raise OptionError(
            f"kafka_once: option kafka.delivery.timeout.ms={wanted_ms} is below "
            f"kafka.request.timeout.ms={client.request_timeout_ms}: all attempts together cannot have less time than "
            "one; raise it, or lower kafka.request.timeout.ms"
        )
    return max(wanted_ms, client.request_timeout_ms)
