"""The rules for new topics.

Whether the topics of one request can be created, given the existing ones and each other; and the settings of this
broker's internal topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.coordinators.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from sparkonce.broker_lite.log.topics_file import check_room
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.log_manager import LogManager

OFFSETS_TOPIC_SEGMENT_BYTES = 104_857_600
"""Kafka's default of `offsets.topic.segment.bytes`."""


class NewTopics:
    """The topics of one request that are still to be created; one object per request."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._partitions = sum(topic.partition_count for topic in logs.topics.values())
        # Metric names cannot distinguish dots from underscores, so Kafka rejects names that differ only there.
        self._aliases = {name.replace(".", "_"): name for name in logs.topics}

    def add(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Add one more topic.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS or INVALID_CONFIG;
                INVALID_REQUEST for `__cluster_metadata`.
        """
        self._logs.check_new_topic(name, partitions, settings)
        check_room(self._partitions, partitions)
        alias = name.replace(".", "_")
        if alias in self._aliases:
            other = self._aliases[alias]
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} collides with topic {other}")
        self._partitions += partitions
        self._aliases[alias] = name


def internal_topic_settings(config: BrokerConfig) -> Mapping[str, tuple[int, Mapping[str, str]]]:
    """Return the number of partitions and the settings of each internal topic, by name.

    All of them are compacted: their latest records are the coordinators' state, so retention must not delete them.
    """
    return {
        OFFSETS_TOPIC: (
            config.offsets_topic_num_partitions,
            {"cleanup.policy": "compact", "segment.bytes": str(OFFSETS_TOPIC_SEGMENT_BYTES)},
        ),
        TRANSACTIONS_TOPIC: (
            config.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        ),
    }
