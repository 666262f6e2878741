"""The ``kafka.*`` options of a producer that concern records and not the connection.

Names are those of Kafka's Java producer (``ProducerConfig`` of Kafka 4.3), since Spark's own Kafka sink takes those.
Each is used, known to have no effect here, or rejected with what to use instead: nothing is dropped silently. Settings
that would break ``deliveryGuarantee`` are rejected, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkonce.kafka.client.settings import (
    COMMON,
    COMMON_WITHOUT_EFFECT,
    READER,
    REFUSED_EVERYWHERE,
    SECURITY,
    ClientSettings,
    client_settings,
    given_settings,
)
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.options import KAFKA_FORMAT, KAFKA_PREFIX, OptionError, SettingTable
from sparkonce.settings import INT_MAX, boolean, integer, long, settings_of, text

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default (``transaction.max.timeout.ms``): how long a decided transaction waits."""
LEAST_TRANSACTION_TIMEOUT_MS = 1_000
"""The least usable timeout; and ids that a driver has fenced are recognized by a timeout of 1 ms."""
DEFAULT_METADATA_MAX_AGE_MS = 300_000
MOST_IN_FLIGHT = 5
"""Batches of one producer that a broker remembers for each partition, to detect duplicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The producer's configuration besides the cluster: the supported settings of the Java producer."""

    acks: int = text(
        -1,
        "the replicas that must have a record before it counts as written: `all` in sync; with at-most-once also "
        "`1`, the leader, or `0`, none",
        choices=("all", "-1", "1", "0"),
        default_text="all",
        parse=lambda acks: int(acks.replace("all", "-1")),
    )
    compression: Compression = text(
        Compression.NONE,
        "of record batches",
        name="compression.type",
        choices=tuple(codec.name.lower() for codec in Compression),
        default_text="none",
        parse=lambda codec: Compression[codec.upper()],
    )
    compression_gzip_level: int = integer(
        -1, "the compression level of gzip; -1 for zlib's default", least=1, most=9, allowed=(-1,)
    )
    compression_lz4_level: int = integer(9, "the compression level of lz4", least=1, most=17)
    compression_zstd_level: int = integer(3, "the compression level of zstd", least=-131072, most=22)
    batch_bytes: int = integer(
        256 * 1024,
        "bytes of a record batch before compression; a larger record gets its own batch",
        name="batch.size",
    )
    max_request_size: int = integer(
        1024 * 1024,
        "bounds batch.size. A larger record gets its own batch, which the topic's max.message.bytes limits",
        least=1,
    )
    max_in_flight: int = integer(
        MOST_IN_FLIGHT,
        "requests in flight per broker; the order of records is kept",
        name="max.in.flight.requests.per.connection",
        least=1,
        most=MOST_IN_FLIGHT,
    )
    delivery_timeout_ms: int = integer(
        120_000,
        "how long a record may take from its sending to its acknowledgement; not below request.timeout.ms",
        least=1,
    )
    retries: int | None = integer(None, "records are retried until delivery.timeout.ms expires, so only 0 is rejected")
    enable_idempotence: bool | None = boolean(
        None, "whether the broker drops duplicates: `true`, or `false` with acks=0, where nothing is retried"
    )
    max_block_ms: int = long(60_000, "how long to wait for metadata and coordinators, with all retries", least=1)
    metadata_max_age_ms: int = long(
        DEFAULT_METADATA_MAX_AGE_MS,
        "how long partitions that are added to a topic may go without records; new leaders are found immediately",
    )
    transaction_timeout_ms: int = integer(
        DEFAULT_TRANSACTION_TIMEOUT_MS,
        "exactly-once: when the broker aborts an open transaction. It bounds how long a batch may take, and how long "
        "after a crash it can still be made visible; at most the broker's transaction.max.timeout.ms",
        least=LEAST_TRANSACTION_TIMEOUT_MS,
        most=INT_MAX,
    )
    partitioner_ignore_keys: bool = boolean(False, "only `false`: for another distribution write a column partition")

    def level_of(self, codec: Compression) -> int | None:
        """Return the level of a codec, if it has levels."""
        level: int | None = getattr(self, f"compression_{codec.name.lower()}_level", None)
        return level

    @property
    def idempotent(self) -> bool:
        """Whether retries never duplicate records, for any guarantee; with acks=0 nothing is retried."""
        return self.acks != 0


SETTINGS = settings_of(ProducerSettings, group="Records")
"""The settings of a producer besides those of every client."""

_WAITING = "a task has all its rows: batches are sent when they are full, the rest at its end, and memory is bounded"
_SPREAD = "records without a key are spread evenly"
_SERIALIZER = "columns key and value are binary or string; convert them with DataFrame operations, e.g. to_json(…)"
_PARTITIONER = (
    "records with a key go where Java's default partitioner puts them (librdkafka's murmur2_random); "
    "to put them elsewhere, write a column partition"
)
_READERS = "is not supported: that is a setting of readers, and this is the sink; set it on the source, or leave it out"

PRODUCER = SettingTable(
    KAFKA_FORMAT,
    {**COMMON, **SETTINGS, **SECURITY},
    "kafka-sink",
    prefix=KAFKA_PREFIX,
    without_effect={
        **dict.fromkeys(["linger.ms", "buffer.memory"], _WAITING),
        "metadata.max.idle.ms": "metadata is requested when a topic is first written to, and when a leader has moved",
        **dict.fromkeys(["partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"], _SPREAD),
        **COMMON_WITHOUT_EFFECT,
    },
    refused={
        **REFUSED_EVERYWHERE,
        "transactional.id": "the sink creates transactional ids from the option appId, a new one for each task; set "
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
    elsewhere=dict.fromkeys([*READER.settings, *READER.without_effect, *READER.refused], _READERS),
)
"""All settings of a producer."""


def of_producer(options: Mapping[str, str]) -> dict[str, str]:
    """Return a reader's options without the settings that no producer has."""
    of_readers = {*READER.settings, *READER.without_effect} - {*PRODUCER.settings, *PRODUCER.without_effect}
    return {name: value for name, value in options.items() if name.removeprefix(KAFKA_PREFIX) not in of_readers}


def read_producer(options: Mapping[str, str], keeping: str | None) -> tuple[ClientSettings, ProducerSettings]:
    """Read a producer's settings among ``options``, whose names begin with ``kafka.``; others are ignored.

    ``keeping`` is the option that promises that no record is lost, if one does.

    Raises:
        OptionError: for a setting that is unknown, refused, unreadable or at odds with another or with ``keeping``.
            Secrets are not shown.
    """
    given = given_settings(options)
    client = client_settings(given, PRODUCER)
    asked = ProducerSettings(**PRODUCER.values(given, SETTINGS))
    _check(asked, keeping)
    if "delivery.timeout.ms" in given and asked.delivery_timeout_ms < client.request_timeout_ms:
        raise OptionError(
            f"kafka_once: option kafka.delivery.timeout.ms={asked.delivery_timeout_ms} is below "
            f"kafka.request.timeout.ms={client.request_timeout_ms}: all attempts together cannot have less time than "
            "one; raise it, or lower kafka.request.timeout.ms"
        )
    return replace(client, api_timeout_ms=asked.max_block_ms), replace(
        asked,
        batch_bytes=min(asked.batch_bytes, asked.max_request_size),
        # As in the Java producer, the time of all attempts is at least that of one (KIP-91).
        delivery_timeout_ms=max(asked.delivery_timeout_ms, client.request_timeout_ms),
    )


def _check(asked: ProducerSettings, keeping: str | None) -> None:
    if asked.retries == 0:
        raise OptionError(
            "kafka_once: option kafka.retries=0 is not supported: a failed request is sent again, in order and without "
            "duplicates; to give up sooner, set kafka.delivery.timeout.ms"
        )
    if asked.partitioner_ignore_keys:
        raise OptionError(f"kafka_once: option kafka.partitioner.ignore.keys=true is not supported: {_PARTITIONER}")
    if asked.acks != -1 and keeping is not None:
        raise OptionError(
            f"kafka_once: option kafka.acks={asked.acks} can lose records that count as written, when the leader of a "
            f"partition fails before its followers have them, and {keeping} promises that "
            "none is lost. Leave kafka.acks out"
            + (", or set deliveryGuarantee=at-most-once" if keeping.startswith("deliveryGuarantee=") else "")
        )
    if asked.enable_idempotence not in (None, asked.idempotent):
        raise OptionError(
            "kafka_once: option kafka.enable.idempotence=true needs the broker's responses, and kafka.acks=0 requests "
            "none; leave one of them out"
            if asked.enable_idempotence
            else "kafka_once: option kafka.enable.idempotence=false would write records twice, or out of order, whose "
            "request is retried after its response was lost; leave it out"
        )
