"""Sizes of logs on the brokers' disks, by DescribeLogDirs (KIP-113)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ProtocolError


@dataclass(slots=True)
class TopicSize:
    """The bytes of one topic."""

    partitions: dict[int, int] = field(default_factory=dict)
    """Of each partition, its largest replica."""
    copies: int = 0
    """Of all replicas that are known."""
    replicas: int = 0
    """The number of these."""

    @property
    def size(self) -> int:
        """The bytes of one replica of each partition that is known."""
        return sum(self.partitions.values())

    def of(self, partitions: int) -> int | None:
        """Return the size of a topic with so many partitions; None if not all are known."""
        return self.size if len(self.partitions) >= partitions else None


class SizesLook:
    """Reads the sizes of all topics; belongs to one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self._client = Client(settings)

    def __call__(self) -> Mapping[str, TopicSize]:
        """Read once; empty where brokers do not say, as for a user without DESCRIBE on the cluster."""
        found: dict[str, TopicSize] = defaultdict(TopicSize)
        for broker in self._client.cluster().brokers:
            for topic, partition, size in self._replicas((broker.host, broker.port)):
                known = found[topic]
                known.partitions[partition] = max(known.partitions.get(partition, 0), size)
                known.copies += size
                known.replicas += 1
        return dict(found)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _replicas(self, address: tuple[str, int]) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and bytes of the replicas of one broker; nothing if it does not answer."""
        try:
            connection = self._client.connection(address)
            version = connection.version(ApiKey.DESCRIBE_LOG_DIRS)
            answer = self._client.ask(connection, ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
        except (OSError, ProtocolError):
            self._client.drop(address)
            return
        for folder in answer.results:
            for topic in folder.topics:
                for each in topic.partitions:
                    if not each.is_future_key:  # a replica that is being moved to another folder
                        yield topic.name, each.partition_index, each.partition_size
