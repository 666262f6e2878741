"""A producer's metadata of topics: their numbers of partitions, and the leaders.

A request for a missing topic lets the broker create it, as Spark's sink does, if ``auto.create.topics.enable`` is true.
Apache Kafka returns "unknown topic" while it creates one, just as for a topic that it will not create: so the request
is retried for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import repeat

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import Leader, MissingTopicError, TopicMetadata, leader_of
from sparkonce.kafka.client.producer_settings import DEFAULT_METADATA_MAX_AGE_MS
from sparkonce.kafka.client.retry import retry

CREATION_WAIT_MS = 5_000
"""How long a broker may take to create a topic."""


class Topics:
    """Metadata of topics that are written to, kept until `refresh`.

    Args:
        client: the client for metadata requests.
        max_age_ms: a number of partitions older than this is requested again, since partitions can be added.
        clock_s: returns monotonic seconds.
    """

    def __init__(
        self,
        client: Client,
        max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._max_age_s = max_age_ms / 1000
        self._clock_s = clock_s
        self._known: dict[str, TopicMetadata] = {}
        self._learned_s: dict[str, float] = {}

    def partition_count(self, topic: str, at_least: int | None = None) -> int:
        """Return a topic's number of partitions; asks the broker if ``at_least`` is not known, or the metadata is old.

        Raises:
            MissingTopicError: if there is no such topic, and the broker creates none.
            PermissionError: if this user may not describe it.
            KafkaUnreachableError: if no broker answers in time.

        """
        known = self._known.get(topic)
        if (
            known is None
            or (at_least is not None and at_least >= len(known.partitions))
            or self._clock_s() - self._learned_s[topic] >= self._max_age_s
        ):
            self.refresh([topic])
        return len(self._known[topic].partitions)

    def leader(self, topic: str, partition: int) -> Leader:
        """Return a partition's last known leader. Raises as `partition_count`, and KafkaError LEADER_NOT_AVAILABLE."""
        if topic not in self._known:
            self.refresh([topic])
        return leader_of(self._known, topic, partition)

    def refresh(self, topics: Iterable[str]) -> None:
        """Request the metadata until there is a response; raises as `partition_count` does."""
        names = sorted(set(topics))
        text = ", ".join(names)
        settings = self._client.settings
        deadline_s = time.monotonic() + min(CREATION_WAIT_MS, settings.api_timeout_ms) / 1000
        ask = lambda: self._client.retry(f"ask for the topics {text}", lambda: self.look_again(names))  # noqa: E731
        try:
            retry(ask, MissingTopicError, repeat(settings.retry_backoff_ms / 1000), deadline_s=deadline_s)
        except MissingTopicError as error:
            raise MissingTopicError(
                f"kafka_once: one of the topics to write to does not exist ({text}), and the broker has not "
                "created it: create it first, or let the broker do so (auto.create.topics.enable=true)"
            ) from error
        except PermissionError as error:
            raise PermissionError(
                f"kafka_once: not allowed to see one of the topics to write to ({text}): ask for DESCRIBE and WRITE on "
                "it"
            ) from error

    def look_again(self, topics: Iterable[str]) -> None:
        """Request the metadata once.

        Raises:
            MissingTopicError, PermissionError, KafkaError, ProtocolError, OSError: if there is no usable response.
        """
        names = sorted(set(topics))
        self._known |= self._client.topics_now(names, create=True)
        self._learned_s |= dict.fromkeys(names, self._clock_s())
