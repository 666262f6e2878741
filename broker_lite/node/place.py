"""What a broker is to its cluster: all of it, as a standalone broker is, or one of its members.

Whoever makes a `Broker` hands over its place: `standalone.Alone`, or `in_cluster.InCluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.log.log_manager import LogManager
    from sparkonce.broker_lite.log.storage import Files, Storage
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
    from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings
    from sparkonce.broker_lite.node.producer_ids import ProducerIds


class Place(Protocol):
    """What depends on whether there are other brokers."""

    @property
    def logs_class(self) -> type[LogManager]:
        """What keeps the log directory."""

    def check(self, storage: Storage, log_dir: str) -> None:
        """Refuse data that are not those of a broker in such a place.

        Raises:
            LogDirectoryError: if they are not.
        """

    def files(self, storage: Storage) -> Files:
        """Return how files are written that all brokers of a cluster have alike."""

    def producer_ids(
        self, member: ClusterMember, storage: Storage, log_dir: str, largest_known: Callable[[], int]
    ) -> ProducerIds:
        """Return what assigns producer ids; `largest_known` returns the largest id in the logs, -1 if none."""

    def request_topic(
        self, member: ClusterMember, dynamic: DynamicSettings, make: Callable[[str], object]
    ) -> Callable[[str], object]:
        """Return how a topic is requested as on first use; `make` has this broker's own controller make it."""

    def take(self, storage: Storage, partitions: ClusterPartitions, node_id: int, clock: Clock) -> None:
        """Be in this place: have `partitions` go by what the controller decides."""

    def coordinated(self, topics: Collection[str]) -> Collection[str]:
        """Return the internal topics whose coordinators begin with the broker, not on first use."""
