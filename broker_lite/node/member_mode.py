"""The mode of a broker that is a member of a cluster, with a controller and other replicas.

Imported only by brokers in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH
from sparkonce.broker_lite.coordinators.internal_topics import INTERNAL_TOPICS
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH
from sparkonce.broker_lite.log.directories import LogDirectoryError, has_partition
from sparkonce.broker_lite.log.member_logs import MemberLogs
from sparkonce.broker_lite.log.storage import Files, Storage
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
from sparkonce.broker_lite.node.cluster_topics import WantedTopics
from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings
from sparkonce.broker_lite.node.producer_ids import ProducerIds, blocks_of_controller


class MemberMode:
    """See `BrokerMode`."""

    logs_class = MemberLogs

    def check(self, storage: Storage, log_dir: str) -> None:
        """Reject data of a standalone broker, or of Kafka: the cluster does not know its topics, and would hide them.

        Raises:
            LogDirectoryError: if there are topics in it, and it is not a member's.
        """
        names = storage.list_directory(log_dir) if storage.is_directory(log_dir) else []
        if BROKER_EPOCH not in names and has_partition(storage, log_dir, names):
            raise LogDirectoryError(
                f"{log_dir} has topics, and is not that of a member of a cluster: start it as a standalone broker, "
                "without metadata.log.dir and zookeeper.connect, or give another data directory. If it was a "
                f"member's, and only its {BROKER_EPOCH} is lost, make that file again, with -1 in it"
            )

    def files(self, storage: Storage) -> Files:
        """See `BrokerMode`: a write becomes a decision of the controller."""
        return AnnouncedFiles(storage)

    def producer_ids(
        self, member: ClusterMember, _storage: Storage, _log_dir: str, _largest_known: Callable[[], int]
    ) -> ProducerIds:
        """See `BrokerMode`: the controller assigns blocks."""
        return ProducerIds(blocks_of_controller(member), asks_early=True)

    def request_topic(
        self, member: ClusterMember, dynamic: DynamicSettings, _make: Callable[[str], object]
    ) -> Callable[[str], object]:
        """See `BrokerMode`: the controller may be another broker."""
        return WantedTopics(member, dynamic).request

    def take(self, storage: Storage, partitions: ClusterPartitions, _node_id: int, _clock: Clock) -> None:
        """See `BrokerMode`; the directory is marked as a member's before it has any data."""
        log_dir = partitions.logs.log_dir
        if BROKER_EPOCH not in storage.list_directory(log_dir):
            storage.write(f"{log_dir}/{BROKER_EPOCH}", b"%d\n" % NO_BROKER_EPOCH, durable=True)
        partitions.member.on_image.append(partitions.take)

    def coordinated(self, _topics: Collection[str]) -> Collection[str]:
        """See `BrokerMode`: none; a member loads partitions when it becomes their leader."""
        return INTERNAL_TOPICS
