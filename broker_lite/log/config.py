"""The settings of a partition's log, by the names that Kafka gives them on a topic.

A topic's settings override the broker's, which `LogConfig.of_broker` reads by the names of their broker-level defaults.
Every topic setting of Kafka is declared here, so that clients may set it and see it; some have no effect, as their
documentation says. A name that Kafka does not know is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.settings import (
    INT_MAX,
    LONG_MAX,
    Setting,
    SettingError,
    boolean,
    double,
    integer,
    long,
    names,
    settings_of,
    text,
)

__all__ = ["INT_MAX", "LONG_MAX", "LogConfig", "topic_settings"]

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_DAY_MS = 24 * 3600 * 1000
_HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings; defaults are Kafka's."""

    cleanup_policy: tuple[str, ...] = names(
        ("delete",),
        "What becomes of old segments: delete removes them by age and size, compact keeps the last record of each key.",
        choices=("compact", "delete"),
        broker=(("log.cleanup.policy", 1),),
    )
    compression_gzip_level: int = integer(
        -1,
        "Level of gzip where the broker compresses; -1 is the library's own.",
        least=1,
        most=9,
        allowed=(-1,),
        broker=(("compression.gzip.level", 1),),
    )
    compression_lz4_level: int = integer(
        9, "Level of lz4 where the broker compresses.", least=1, most=17, broker=(("compression.lz4.level", 1),)
    )
    compression_type: str = text(
        "producer",
        "How the broker keeps batches: producer leaves them as they came, any other value has them recompressed.",
        choices=CODECS,
        broker=(("compression.type", 1),),
    )
    compression_zstd_level: int = integer(
        3, "Level of zstd where the broker compresses.", least=-131072, most=22, broker=(("compression.zstd.level", 1),)
    )
    delete_retention_ms: int = long(
        _DAY_MS,
        "How long compaction keeps tombstones and transaction markers, so that readers can still see them.",
        broker=(("log.cleaner.delete.retention.ms", 1),),
    )
    file_delete_delay_ms: int = long(
        60_000,
        "How long files outlive their removal from the log, for readers that are at it.",
        broker=(("log.segment.delete.delay.ms", 1),),
    )
    flush_messages: int = long(
        LONG_MAX,
        "After how many records an append waits for the disk.",
        least=1,
        broker=(("log.flush.interval.messages", 1),),
    )
    flush_ms: int = long(
        LONG_MAX,
        "After how long what was appended is brought onto the disk.",
        broker=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = names(
        (), "Replicas whose copying is slowed down, which is not served: no effect."
    )
    index_interval_bytes: int = integer(
        4096, "Bytes of records between two entries of the offset index.", broker=(("log.index.interval.bytes", 1),)
    )
    leader_replication_throttled_replicas: tuple[str, ...] = names(
        (), "Replicas whose copying is slowed down, which is not served: no effect."
    )
    local_retention_bytes: int = long(
        -2,
        "Bytes kept locally under tiered storage, which is not served: no effect.",
        least=-2,
        broker=(("log.local.retention.bytes", 1),),
    )
    local_retention_ms: int = long(
        -2,
        "Time kept locally under tiered storage, which is not served: no effect.",
        least=-2,
        broker=(("log.local.retention.ms", 1),),
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        "After how long a record is compacted, whatever the share of dirty bytes is.",
        least=1,
        broker=(("log.cleaner.max.compaction.lag.ms", 1),),
    )
    max_message_bytes: int = integer(
        1_048_588, "The largest batch, in its compressed size, that is accepted.", broker=(("message.max.bytes", 1),)
    )
    message_timestamp_after_max_ms: int = long(
        _HOUR_MS,
        "How far in the future a producer's timestamp may lie.",
        broker=(("log.message.timestamp.after.max.ms", 1),),
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "How far in the past a producer's timestamp may lie.",
        broker=(("log.message.timestamp.before.max.ms", 1),),
    )
    message_timestamp_type: str = text(
        "CreateTime",
        "Whether records carry the producer's time (CreateTime) or the broker's (LogAppendTime).",
        choices=TIMESTAMP_TYPES,
        broker=(("log.message.timestamp.type", 1),),
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "The share of bytes not yet compacted at which a log is compacted.",
        least=0,
        most=1,
        broker=(("log.cleaner.min.cleanable.ratio", 1),),
    )
    min_compaction_lag_ms: int = long(
        0, "How long a record is safe from compaction.", broker=(("log.cleaner.min.compaction.lag.ms", 1),)
    )
    min_insync_replicas: int = integer(
        1,
        "Replicas that must have a record before acks=all is answered; at most as many as there are.",
        least=1,
        broker=(("min.insync.replicas", 1),),
    )
    preallocate: bool = boolean(
        False,
        "Whether new segment files are given their whole size at once: no effect.",
        broker=(("log.preallocate", 1),),
    )
    remote_log_copy_disable: bool = boolean(False, "Part of tiered storage, which is not served.")
    remote_log_delete_on_disable: bool = boolean(False, "Part of tiered storage, which is not served.")
    remote_storage_enable: bool = boolean(
        False, "Whether old segments go to tiered storage, which is not served: only false."
    )
    retention_bytes: int = long(
        -1,
        "The size of a partition above which its oldest segments are removed; -1: any size.",
        least=None,
        broker=(("log.retention.bytes", 1),),
    )
    retention_ms: int = long(
        7 * _DAY_MS,
        "The age at which segments are removed; -1: never.",
        least=-1,
        broker=(("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    )
    # Kafka 4 requires at least 1 MiB. Tests use segments that they can fill.
    segment_bytes: int = integer(
        1 << 30, "The size at which a new segment file is begun.", least=14, broker=(("log.segment.bytes", 1),)
    )
    segment_index_bytes: int = integer(
        10 << 20, "The size of an index file at which its segment is full.", least=24,
        broker=(("log.index.size.max.bytes", 1),),
    )  # fmt: skip
    segment_jitter_ms: int = long(
        0,
        "By how much segment.ms is shortened at most, by chance, so that segments do not end all at once.",
        broker=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    )
    segment_ms: int = long(
        7 * _DAY_MS,
        "The age at which a new segment file is begun even if the old one is not full.",
        least=1,
        broker=(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a replica that lags may lead where nobody else can; without a cluster: no effect.",
        broker=(("unclean.leader.election.enable", 1),),
    )

    @property
    def log_append_time(self) -> bool:
        """Whether records get the broker's time, not the producer's (LogAppendTime)."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def of_broker(cls, settings: Mapping[str, object]) -> LogConfig:
        """Return the configuration of topics without settings of their own, from the broker's settings by name."""
        values = {}
        for setting in topic_settings().values():
            for name, factor in setting.broker:
                value = settings.get(name)
                if value is not None:
                    values[setting.field] = scaled(value, factor)
                    break
        return cls(**values)  # type: ignore[arg-type]

    def with_topic_settings(self, settings: Mapping[str, str]) -> LogConfig:
        """Add a topic's own settings. Raises KafkaError INVALID_CONFIG for an unknown name or an invalid value."""
        changes = {}
        known = topic_settings()
        for name, value in settings.items():
            setting = known.get(name)
            if setting is None:
                import difflib  # imported lazily, for a faster start

                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{hint}")
            try:
                changes[setting.field] = setting.read(value)
            except SettingError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        config = replace(self, **changes) if changes else self
        if config.remote_storage_enable:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "remote.storage.enable=true: tiered storage is not served")
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"min.compaction.lag.ms={config.min_compaction_lag_ms} exceeds "
                f"max.compaction.lag.ms={config.max_compaction_lag_ms}",
            )
        return config


def topic_settings() -> Mapping[str, Setting]:
    """Return every setting that a topic may have in Apache Kafka 4.3, by name."""
    return settings_of(LogConfig)


def scaled(value: object, factor: int) -> object:
    """Convert a broker's number to the unit of the topic's setting; a negative one means the same in all units."""
    return value * factor if isinstance(value, int) and factor != 1 and value > 0 else value
