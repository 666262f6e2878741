"""Whether topics can be made that are asked for together: beside those that there are, and beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkonce.broker_lite.log.topics_file import check_room
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.log_manager import LogManager


class NewTopics:
    """The topics of one request that are still to be created; a new one for each request."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._partitions = sum(topic.partition_count for topic in logs.topics.values())
        # Metric names cannot tell a dot from an underscore, so Kafka refuses names that differ only there.
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
