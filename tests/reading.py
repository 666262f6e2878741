"""Have consumers of librdkafka's read at once.

By default one that is assigned partitions asks who leads them half a second later, unless it has asked before; and it
learns that a partition ends when an empty fetch has waited for half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, TopicPartition

AT_ONCE: Final = {"fetch.wait.max.ms": 10}
"""Settings of such a consumer."""
DEADLINE_S: Final = 60.0


def assign(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    """Assign partitions whose leaders the consumer knows then."""
    for topic in sorted({place.topic for place in places}):
        consumer.list_topics(topic, DEADLINE_S)
    consumer.assign(list(places))
