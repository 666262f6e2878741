"""How records are sent: the ``kafka.*`` options of a producer that concern the records and not the connection.

Names are those of Kafka's Java producer (``ProducerConfig`` of Kafka 4.3), since Spark's own Kafka sink takes those.
Each is used, known to have no effect here, or rejected with what to use instead: nothing is dropped silently. Settings
that would break ``deliveryGuarantee`` are rejected, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.broker_lite.protocol.compression import Compression
from sparkonce.connectors.kafka_client.settings import (
    COMMON,
    COMMON_WITHOUT_EFFECT,
    READER,
    REFUSED_EVERYWHERE,
    SECURITY,
    ClientSettings,
    client_settings,
)
from sparkonce.connectors.settings.options import (
    OptionError,
    boolean,
    not_negative,
    not_negative_int32,
    one_of,
    positive,
    positive_int32,
)
from sparkonce.connectors.settings.setting_table import (
    FORMAT,
    PREFIX,
    Setting,
    SettingTable,
    by_name,
    given_settings,
    refusal,
)
from sparkonce.exactly_once.guarantee import Guarantee

DEFAULT_BATCH_BYTES = 256 * 1024
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default (``transaction.max.timeout.ms``): how long a decided transaction waits."""
LEAST_TRANSACTION_TIMEOUT_MS = 1_000
"""Nothing can be sent and committed in less; and ids that a driver has fenced are recognized by a timeout of 1 ms."""
DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
DEFAULT_METADATA_MAX_AGE_MS = 300_000
DEFAULT_MAX_REQUEST_BYTES = 1024 * 1024
MOST_IN_FLIGHT = 5
"""Batches of one producer that a broker remembers for each partition, to detect duplicates."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What a producer needs to know besides where the cluster is."""

    acks: int = -1
    """-1 for all in-sync replicas, 1 for the leader, 0 for no response."""
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """A record batch is closed before it grows past this many bytes, uncompressed; a larger record is sent alone."""
    max_in_flight: int = MOST_IN_FLIGHT
    """Produce requests on one connection that have no answer yet; 5 at most with idempotence."""
    idempotent: bool = True
    delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS
    """How long a record may take from its sending to its acknowledgement, with all retries."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS
    """How old a number of partitions may be when a task begins to write to the topic."""


@dataclass(frozen=True, slots=True)
class _Between:
    """Reads a whole number between two bounds, or one more."""

    least: int
    most: int
    also: int | None = None

    @property
    def form(self) -> str:
        return f"whole number from {self.least} to {self.most}" + ("" if self.also is None else f", or {self.also}")

    def __call__(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"expected a {self.form}") from None
        if not self.least <= number <= self.most and number != self.also:
            raise ValueError(f"expected a {self.form}")
        return number


_CODECS = tuple(codec.name.lower() for codec in Compression)

SETTINGS = by_name(
    Setting(
        "acks",
        "who must have a record before it counts as written: `all` in-sync replicas; with at-most-once also `1`, the "
        "leader, or `0`, nobody is asked",
        one_of("all", "-1", "1", "0"),
        "all",
    ),
    Setting("compression.type", "of record batches", one_of(*_CODECS), "none"),
    Setting("compression.gzip.level", "how hard gzip tries; -1 for zlib's own choice", _Between(1, 9, -1), -1),
    Setting("compression.lz4.level", "how hard lz4 tries", _Between(1, 17), 9),
    Setting("compression.zstd.level", "how hard zstd tries", _Between(-131072, 22), 3),
    Setting(
        "batch.size",
        "bytes of a record batch before compression; a larger record is a batch by itself",
        not_negative_int32,
        DEFAULT_BATCH_BYTES,
    ),
    Setting(
        "max.request.size",
        "bounds batch.size. A larger record is a batch by itself, and the topic's max.message.bytes decides",
        positive_int32,
        DEFAULT_MAX_REQUEST_BYTES,
    ),
    Setting(
        "max.in.flight.requests.per.connection",
        "requests that wait for an answer; the order of records is kept",
        _Between(1, MOST_IN_FLIGHT),
        MOST_IN_FLIGHT,
    ),
    Setting(
        "delivery.timeout.ms",
        "how long a record may take from its sending to its acknowledgement; not below request.timeout.ms",
        positive_int32,
        DEFAULT_DELIVERY_TIMEOUT_MS,
    ),
    Setting(
        "retries", "records are sent again until delivery.timeout.ms is over, so only 0 is refused", not_negative_int32
    ),
    Setting(
        "enable.idempotence",
        "whether the broker passes over what comes twice: `true`, or `false` with acks=0, where nothing does",
        boolean,
    ),
    Setting(
        "max.block.ms",
        "how long to wait for metadata and coordinators, with all retries",
        positive,
        60_000,
        attribute="api_timeout_ms",
    ),
    Setting(
        "metadata.max.age.ms",
        "how long partitions that are added to a topic may go without records; where leaders are is learned at once",
        not_negative,
        DEFAULT_METADATA_MAX_AGE_MS,
    ),
    Setting(
        "transaction.timeout.ms",
        "exactly-once: when the broker gives up an open transaction. It bounds how long a batch may take, and how long "
        "after a crash it can still be made visible; at most the broker's transaction.max.timeout.ms",
        _Between(LEAST_TRANSACTION_TIMEOUT_MS, 2**31 - 1),
        DEFAULT_TRANSACTION_TIMEOUT_MS,
    ),
    Setting(
        "partitioner.ignore.keys", "only `false`: for another distribution write a column partition", boolean, False
    ),
    group="Records",
)
"""What is used of the Java producer's settings, besides those of every client."""

_WAITING = "a task has its rows at hand: batches are sent as they fill, the rest at its end, and memory is bounded"
_SPREAD = "records without a key are spread evenly"
_SERIALIZER = "columns key and value are binary or string; convert them with DataFrame operations, e.g. to_json(…)"
_PARTITIONER = (
    "records with a key go where Java's default partitioner puts them (librdkafka's murmur2_random); "
    "to put them elsewhere, write a column partition"
)
_READERS = "that is a setting of readers, and this is the sink; set it on the source, or leave it out"

PRODUCER = SettingTable(
    honoured={**COMMON, **SETTINGS, **SECURITY},
    without_effect={
        **dict.fromkeys(["linger.ms", "buffer.memory"], _WAITING),
        "metadata.max.idle.ms": "leaders are asked for when a topic is first written to, and when one has moved",
        **dict.fromkeys(["partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"], _SPREAD),
        **COMMON_WITHOUT_EFFECT,
    },
    refused={
        **REFUSED_EVERYWHERE,
        "transactional.id": "the sink makes transactional ids from the option appId, a new one for each task; set "
        "appId",
        "transaction.two.phase.commit.enable": "the sink ends its transactions through a decision of its own; leave "
        "it out",
        "key.serializer": _SERIALIZER,
        "value.serializer": _SERIALIZER,
        "interceptor.classes": "there is no Java producer to intercept; transform the DataFrame instead",
        "partitioner.class": _PARTITIONER,
        "partitioner": _PARTITIONER,
        "default.api.timeout.ms": "that is a reader's; set kafka.max.block.ms",
    },
    of_others=dict.fromkeys([*READER.honoured, *READER.without_effect, *READER.refused], _READERS),
    reference="kafka-sink",
)
"""All settings of a producer."""

_LEVELS = {
    Compression.GZIP: "compression.gzip.level",
    Compression.LZ4: "compression.lz4.level",
    Compression.ZSTD: "compression.zstd.level",
}


def read_producer(options: Mapping[str, str], guarantee: Guarantee) -> tuple[ClientSettings, ProducerSettings]:
    """Read a producer's settings among ``options``, whose names begin with ``kafka.``; others are ignored.

    Raises:
        OptionError: for a setting that is unknown, refused, unreadable or at odds with another or with the guarantee.
            Secrets are not shown.
    """
    given = given_settings(options)
    PRODUCER.check(given)
    client = client_settings(given, PRODUCER)
    values = {
        name: setting.read(given[name], FORMAT, PREFIX) if name in given else setting.default
        for name, setting in SETTINGS.items()
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
    """With acks=0 nothing is retried; otherwise a retry must not write twice, for any guarantee."""
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
