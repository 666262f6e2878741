"""One broker as a member of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from broker_lite.controller.image import ClusterImage, PartitionKey
from broker_lite.controller.records import NO_BROKER_EPOCH
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.replication.replica_log import ReplicaLog
from broker_lite.replication.replicas import Event, Replicas, ReplicationSettings

Answer = Callable[[Any], None]
"""Takes a response, or None if none came: the broker died, or took too long, or is not connected."""


class Peers(Protocol):
    """How requests reach other brokers."""

    def send(self, broker_id: int, request: Any, then: Answer) -> None:
        """Send a request to a broker; its answer, or None, comes later, on the broker's thread."""


class ClusterMember:
    """What a broker knows of its cluster; used from the broker's one thread only."""

    def __init__(
        self,
        broker_id: int,
        log_of: Callable[[PartitionKey], ReplicaLog],
        settings: ReplicationSettings,
        peers: Peers,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.image = ClusterImage()
        """The cluster as far as this broker has applied the controller's log."""
        self.replicas = Replicas(broker_id, log_of, settings)
        self.on_image: list[Callable[[ClusterImage], None]] = []
        """Called after each batch of the log, before the events of `listen`."""
        self._listeners: list[Callable[[Event], None]] = []
        self._peers = peers

    def listen(self, callback: Callable[[Event], None]) -> None:
        """Have events told, each after it took effect."""
        self._listeners.append(callback)

    def publish(self, events: Iterable[Event]) -> None:
        """Tell everybody of events, in order."""
        for event in events:
            for listener in self._listeners:
                listener(event)

    def send(self, broker_id: int, request: Any, then: Answer) -> None:
        """Send a request to another broker, or to this one; never answers before it returns."""
        self._peers.send(broker_id, request, then)

    def send_to_controller(self, request: Any, then: Answer) -> None:
        """Send a request to the controller, wherever it is; again to the next one if it is none any more."""
        self.send(self.image.controller_id, request, then)

    def key(self, topic: str, index: int) -> PartitionKey:
        """Give what the cluster knows a partition by.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        found = self.image.topic(topic)
        if found is None or index not in found.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {topic}-{index}")
        return found.topic_id, index
