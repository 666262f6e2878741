"""The settings of this broker's internal topics, in one place."""

from __future__ import annotations

from collections.abc import Mapping

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC

OFFSETS_TOPIC_SEGMENT_BYTES = 104_857_600
"""Kafka's default of `offsets.topic.segment.bytes`."""


def internal_topic_settings(config: BrokerConfig) -> Mapping[str, tuple[int, Mapping[str, str]]]:
    """Return the number of partitions and the settings of each internal topic, by its name.

    All of them are compacted: their latest records are the coordinators' state, which no retention may take away.
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
