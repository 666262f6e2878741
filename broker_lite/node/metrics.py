"""The broker's counters, if metrics are enabled (`metrics.port`).

Theory of operation: nothing is counted, and no clock is read, unless `Broker.metrics` is set. Sizes, offsets, groups
and connections are not counted but looked up when requested. Counters only increase; those of a deleted topic are
removed, but remain in the totals.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sparkonce.broker_lite.log.segment import Slice
from sparkonce.kafka.protocol.fetch import FetchTopicResult


@dataclass(slots=True)
class TopicMetrics:
    """Bytes and messages received and sent, of one topic or of all."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0


@dataclass(slots=True)
class RequestMetrics:
    """The requests of one API: their number by version, and the time from receipt to response."""

    by_version: dict[int, int] = field(default_factory=dict)
    total_ns: int = 0
    longest_ns: int = 0

    @property
    def count(self) -> int:
        """How many were answered."""
        return sum(self.by_version.values())


class Metrics:
    """All counters; `now_ns` is a monotonic clock."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.requests: dict[int, RequestMetrics] = {}
        self.all_topics = TopicMetrics()
        self.topics: dict[str | uuid.UUID, TopicMetrics] = {}
        """By name, or by id where clients fetch by id."""

    def answered(self, api_key: int, version: int, received_ns: int) -> None:
        """Count a request that is answered now."""
        took_ns = self.now_ns() - received_ns
        of_api = self.requests.get(api_key)
        if of_api is None:
            of_api = self.requests[api_key] = RequestMetrics()
        of_api.by_version[version] = of_api.by_version.get(version, 0) + 1
        of_api.total_ns += took_ns
        if took_ns > of_api.longest_ns:
            of_api.longest_ns = took_ns

    def produced(self, topic: str, messages: int, size: int) -> None:
        """Count what was appended to one partition."""
        for counted in (self.all_topics, self._topic(topic)):
            counted.produce_requests += 1
            counted.messages_in += messages
            counted.bytes_in += size

    def not_produced(self, topic: str, exists: bool) -> None:
        """Count a failed append; unknown topic names are not kept, so that clients cannot fill the memory."""
        for counted in (self.all_topics, self._topic(topic)) if exists else (self.all_topics,):
            counted.produce_requests += 1
            counted.failed_produce_requests += 1

    def fetched(self, topics: Iterable[FetchTopicResult]) -> None:
        """Count the answer to a fetch."""
        for topic in topics:
            served = [each for each in topic.partitions if not each.error_code]
            failed = len(topic.partitions) - len(served)
            self.all_topics.fetch_requests += len(topic.partitions)
            self.all_topics.failed_fetch_requests += failed
            if not served:
                continue
            size = sum(each.records.size for each in served if isinstance(each.records, Slice))
            counted = self._topic(topic.name or topic.topic_id)
            counted.fetch_requests += len(topic.partitions)
            counted.failed_fetch_requests += failed
            counted.bytes_out += size
            self.all_topics.bytes_out += size

    def forget_topic(self, name: str, topic_id: uuid.UUID) -> None:
        """Forget a topic that was deleted."""
        self.topics.pop(name, None)
        self.topics.pop(topic_id, None)

    def _topic(self, name: str | uuid.UUID) -> TopicMetrics:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicMetrics()
        return found
