"""The settings of a partition's log, by the names that Kafka gives them on a topic.

A topic's settings override the broker's. Every setting that Kafka knows on a topic is accepted and kept, so that
clients may set it; those in `_FIELDS` and `message.timestamp.type` have an effect. A name that Kafka does not know is
refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker_lite.protocol.errors import ErrorCode, KafkaError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings; defaults are Kafka's."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    """`message.timestamp.type`: whether records get the broker's time, not the producer's."""

    def __post_init__(self) -> None:
        if self.segment_bytes > INT_MAX:  # positions in an index have 32 bits
            raise ValueError(f"segments of {self.segment_bytes} bytes; at most {INT_MAX}")

    def with_topic_settings(self, settings: Mapping[str, str]) -> LogConfig:
        """Give these settings with a topic's own on top.

        Raises:
            KafkaError: INVALID_CONFIG for a name that Kafka does not know or a value that does not fit.
        """
        changes: dict[str, int | bool] = {}
        for name, text in settings.items():
            if name not in TOPIC_SETTINGS:
                near = difflib.get_close_matches(name, TOPIC_SETTINGS, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown topic setting {name}{hint}")
            if name == _TIMESTAMP_TYPE:
                if text not in _TIMESTAMP_TYPES:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is neither of {_TIMESTAMP_TYPES}")
                changes["log_append_time"] = text == "LogAppendTime"
            field = _FIELDS.get(name)
            if field is not None:
                changes[field[0]] = _number(name, text, field[1], field[2])
        return replace(self, **changes) if changes else self  # type: ignore[arg-type]


_TIMESTAMP_TYPE = "message.timestamp.type"
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_FIELDS = {
    "segment.bytes": ("segment_bytes", 14, INT_MAX),
    "segment.ms": ("segment_ms", 1, LONG_MAX),
    "segment.index.bytes": ("segment_index_bytes", 24, INT_MAX),
    "index.interval.bytes": ("index_interval_bytes", 0, INT_MAX),
    "max.message.bytes": ("max_message_bytes", 0, INT_MAX),
    "flush.messages": ("flush_messages", 1, LONG_MAX),
    "flush.ms": ("flush_ms", 0, LONG_MAX),
    "message.timestamp.before.max.ms": ("message_timestamp_before_max_ms", 0, LONG_MAX),
    "message.timestamp.after.max.ms": ("message_timestamp_after_max_ms", 0, LONG_MAX),
}
"""Topic settings that have an effect: the field, the least and the largest value."""

TOPIC_SETTINGS = frozenset(_FIELDS) | {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    _TIMESTAMP_TYPE,
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.jitter.ms",
    "unclean.leader.election.enable",
}
"""Every setting that a topic may have in Apache Kafka 4.3, bar those of tiered storage's internals."""


def _number(name: str, text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is not a whole number") from None
    if not least <= value <= most:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value} is out of range: {least} to {most}")
    return value
