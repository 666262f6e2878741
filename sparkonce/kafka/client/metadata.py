"""What brokers say of topics: metadata, leaders and the ends of their epochs, and which errors they answer with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparkonce.kafka.client.topic_ids import topic_id_text
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.words import counted

Address = tuple[str, int]
"""Host and port."""


class ForbiddenTopicError(PermissionError):
    """The client is not authorized to describe a topic."""


class MissingTopicError(LookupError):
    """A topic, or a partition of it, does not exist."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The address of a partition's leader; ``epoch`` is the leader epoch."""

    host: str
    port: int
    epoch: int

    @property
    def address(self) -> Address:
        """Host and port."""
        return self.host, self.port


class EpochEnd(NamedTuple):
    """The largest leader epoch that the log has, up to the requested one, and the offset after its last record.

    Both are -1 if the requested epoch is newer than the leader's.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic: its id in Kafka's own text form, and its partitions; None for those without a leader."""

    name: str
    topic_id: str
    partitions: Mapping[int, Leader | None]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A cluster as described by one of its brokers; the same object while nothing changes.

    Brokers and topics are `MetadataResponse`'s own entries.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[Any, ...]
    topics: tuple[Any, ...]
    """All topics, including internal ones."""
    error: ErrorCode = ErrorCode.NONE
    """The error of the whole response."""

    def metadata(self) -> dict[str, TopicMetadata]:
        """Return the topics, except those with an error of their own, such as one that is being deleted."""
        brokers = {broker.node_id: (broker.host, broker.port) for broker in self.brokers}
        healthy = (topic for topic in self.topics if not topic.error_code and topic.partitions)
        return {topic.name: topic_metadata(topic, brokers) for topic in healthy}


def leader_of(metadata: Mapping[str, TopicMetadata], topic: str, partition: int) -> Leader:
    """Return a partition's leader.

    Raises:
        MissingTopicError: if there is no such partition.
        KafkaError: LEADER_NOT_AVAILABLE, which may be temporary.
    """
    found = metadata.get(topic)
    if found is None or partition not in found.partitions:
        count = len(found.partitions) if found else 0
        raise MissingTopicError(f"topic {topic} has no partition {partition} (it has {counted(count, 'partition')})")
    leader = found.partitions[partition]
    if leader is None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader at the moment")
    return leader


def topic_metadata(topic: Any, brokers: Mapping[int, Address]) -> TopicMetadata:
    """Return an entry of a Metadata response; ``brokers``: the addresses, by node id.

    Raises:
        MissingTopicError, PermissionError, KafkaError: the broker's error about the topic.
    """
    code = ErrorCode.of(topic.error_code)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        raise MissingTopicError(f"topic {topic.name!r} does not exist: check its name, or create it first")
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise ForbiddenTopicError(f"not allowed to read topic {topic.name!r}: ask for DESCRIBE and READ on it")
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"metadata of topic {topic.name}")
    partitions: dict[int, Leader | None] = {}
    leaders: dict[tuple[int, int | None], Leader | None] = {}
    for each in topic.partitions:
        key = each.leader_id, getattr(each, "leader_epoch", -1)
        if key not in leaders:
            leaders[key] = _leader(brokers.get(each.leader_id), key[1])
        partitions[each.partition_index] = leaders[key]
    if not partitions:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name} has no partitions yet")
    return TopicMetadata(topic.name, topic_id_text(getattr(topic, "topic_id", None)), partitions)


def _leader(address: Address | None, epoch: int | None) -> Leader | None:
    return Leader(*address, -1 if epoch is None else epoch) if address else None
