"""A broker's mode: standalone, or a member of a cluster.

The creator of a `Broker` chooses: `standalone.StandaloneMode`, or `member_mode.MemberMode`.
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


class BrokerMode(Protocol):
    """The part of a broker that depends on whether there are other brokers."""

    @property
    def logs_class(self) -> type[LogManager]:
        """The class that manages the log directory."""

    def check(self, storage: Storage, log_dir: str) -> None:
        """Reject data that belong to the other kind of broker.

        Raises:
            LogDirectoryError: if they do.
        """

    def files(self, storage: Storage) -> Files:
        """Return the writer of files that are the same on all brokers of a cluster."""

    def producer_ids(
        self, member: ClusterMember, storage: Storage, log_dir: str, largest_known: Callable[[], int]
    ) -> ProducerIds:
        """Return the source of producer ids; `largest_known` returns the largest id in the logs, -1 if none."""

    def request_topic(
        self, member: ClusterMember, dynamic: DynamicSettings, make: Callable[[str], object]
    ) -> Callable[[str], object]:
        """Return a function that requests a topic as on first use; with `make` this broker's controller creates it."""

    def take(self, storage: Storage, partitions: ClusterPartitions, node_id: int, clock: Clock) -> None:
        """Begin: apply the controller's decisions to `partitions` from now on."""

    def coordinated(self, topics: Collection[str]) -> Collection[str]:
        """Return the internal topics whose coordinators start with the broker, not on first use."""
