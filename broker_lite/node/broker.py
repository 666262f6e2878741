"""One broker: its services, built in one place, and functions for handlers that need several of them.

A service gets only the few objects that it needs, never the broker; handlers get the broker. Only its `BrokerMode`
depends on whether there are other brokers. No sockets here; timers come through `Scheduler`, time through `Clock`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.coordinators.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from sparkonce.broker_lite.log.log_manager import LogManager, Topic
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
from sparkonce.broker_lite.node.deleted_topics import DeletedTopics
from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings
from sparkonce.broker_lite.node.new_topics import NewTopics, internal_topic_settings
from sparkonce.broker_lite.node.refusal_log import RefusalLog
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import Turns
from sparkonce.broker_lite.replication.replicas import ReplicationSettings
from sparkonce.broker_lite.scheduling import Scheduler
from sparkonce.broker_lite.security.authorizer import Authorizer, SecurityFileError, super_users
from sparkonce.broker_lite.security.credentials import ScramCredentials, configured_credentials
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import NO_PRODUCER_ID

if TYPE_CHECKING:
    from sparkonce.broker_lite.coordinators.offsets import PendingOffsets
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.coordinated import Coordinated
    from sparkonce.broker_lite.node.fetch_sessions import FetchSessions
    from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator
    from sparkonce.broker_lite.node.leader import LedPartition
    from sparkonce.broker_lite.node.metrics import Metrics
    from sparkonce.broker_lite.node.mode import BrokerMode
    from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator
    from sparkonce.broker_lite.waiting import Waiting

_INT32_MAX = 2**31 - 1


class RequestFaults(Protocol):
    """Alters how requests are answered (`broker_lite.faults`)."""

    def handle(self, request: Request) -> Waiting[Body | None]:
        """Answer a request in place of `dispatch.handle`."""


class Broker:
    """One broker's state; used from one thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        log_dir: str,
        clock: Clock,
        scheduler: Scheduler,
        mode: BrokerMode,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        metrics: Metrics | None = None,
    ) -> None:
        """Open the log directory and read back what it holds.

        Args:
            config: the settings that were given.
            storage: the file system.
            log_dir: the log directory.
            clock: the time.
            scheduler: the event loop.
            mode: standalone, or a member of a cluster.
            new_uuid: returns a unique id.
            metrics: the counters, if metrics are enabled.

        Raises:
            LogDirectoryError: if it is in use, or another cluster's or node's.
            SecurityFileError: if access control lists or credentials in it cannot be read.
        """
        self.clock = clock
        self.scheduler = scheduler
        self.new_uuid = new_uuid
        self.metrics = metrics
        self.faults: RequestFaults | None = None
        """The fault injector while there are faults to inject; else None."""
        self.on_settings_changed: list[Callable[[BrokerConfig], object]] = []
        """Called with the settings in effect whenever a client changes one."""
        self.note_refusal = RefusalLog(clock.monotonic_ms).note
        """Log an error of a client, up to a rate; returns whether it was logged."""
        self.turns = Turns(scheduler)
        self.shared_files = mode.files(storage)
        """Writes the files that are the same on all brokers of a cluster."""
        self.dynamic = DynamicSettings(self.shared_files, log_dir, config)
        self.config = self.dynamic.config
        mode.check(storage, log_dir)
        self.logs = self._open_logs(storage, log_dir, mode)
        self.cluster_id = self.logs.cluster_id
        try:
            self._build(storage, mode)
            self._begin(storage, mode)
        except SecurityFileError:
            self.logs.close(clock.now_ms())
            raise
        except BaseException:
            self._close_coordinators()
            self.logs.abandon()
            raise

    def _open_logs(self, storage: Storage, log_dir: str, mode: BrokerMode) -> LogManager:
        config = self.config
        return mode.logs_class.open(
            storage,
            log_dir,
            config.log,
            self.clock.now_ms(),
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            new_uuid=self.new_uuid,
            internal_topics={name: settings for name, (_, settings) in internal_topic_settings(config).items()},
            high_watermark_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
            checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        )

    def _build(self, storage: Storage, mode: BrokerMode) -> None:
        """Create the services that every broker has; the others are created on first use."""
        config, clock, scheduler, logs = self.config, self.clock, self.scheduler, self.logs
        replication = ReplicationSettings(config.replica_lag_time_max_ms)
        self.member = ClusterMember(config.node_id, logs.log_of, replication, None, scheduler, clock.monotonic_ms)
        """This broker as a member of its cluster."""
        self.deleted = DeletedTopics(logs, self._loaded_groups, self._settle, clock.now_ms, self.note_refusal)
        """The deleted topics whose files or committed offsets are not all removed yet."""
        self.cluster = ClusterPartitions(logs, self.member, scheduler, clock, self.deleted)
        """The partitions that it leads and follows."""
        self.cluster.on_topics.append(self._topics_changed)
        self.leading: Callable[[str, int], LedPartition] = self.cluster.leading
        """Return a partition that this broker leads, to read or write its records.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        self.partition: Callable[[str, int], PartitionLog] = logs.partition
        """Return a partition's log; raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        self.topic_by_id: Callable[[uuid.UUID], Topic | None] = logs.topic_by_id
        self.topic: Callable[[str], Topic | None] = logs.topics.get
        self.request_topic = mode.request_topic(self.member, self.dynamic, self._make_topic)
        """Request a topic from the controller, as on first use; internal topics as their coordinator needs them."""
        self.producer_ids = mode.producer_ids(self.member, storage, logs.log_dir, self._largest_producer_id)
        self.authorizer = self._authorizer()
        configured = configured_credentials(config.listener_configs, lambda: self.new_uuid().bytes)
        self.scram_credentials = ScramCredentials(self.shared_files, logs.log_dir, configured)

    def _authorizer(self) -> Authorizer | None:
        config = self.config
        if not config.authorizer_class_name:
            return None
        supers = super_users(config.super_users)
        return Authorizer(self.shared_files, self.logs.log_dir, supers, config.allow_everyone_if_no_acl_found)

    def _begin(self, storage: Storage, mode: BrokerMode) -> None:
        """Join the cluster, or begin as a standalone broker; load the coordinators' logs."""
        mode.take(storage, self.cluster, self.config.node_id, self.clock)
        coordinated = mode.coordinated(self.logs.topics)
        if OFFSETS_TOPIC in coordinated:
            _ = self.groups
        self.deleted.resume()
        if TRANSACTIONS_TOPIC in coordinated:
            _ = self.transactions

    # Services that not every broker needs are imported and created on first use, or if the log has data for them:
    # loading all of them would take a quarter of the start.

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """The sessions of incremental fetches."""
        from sparkonce.broker_lite.node.fetch_sessions import FetchSessions

        slots = self.config.max_incremental_fetch_session_cache_slots
        return FetchSessions(slots, lambda: self.new_uuid().int & _INT32_MAX)

    @cached_property
    def pending_offsets(self) -> PendingOffsets:
        """The offsets committed in open transactions."""
        from sparkonce.broker_lite.coordinators.offsets import PendingOffsets

        return PendingOffsets()

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The consumer groups and their offsets."""
        from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator

        return GroupCoordinator(
            self.dynamic,
            self._coordinated(OFFSETS_TOPIC),
            self.pending_offsets,
            self.logs.topics,
            self.scheduler,
            self.clock,
            self.note_refusal,
        )

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The transactions."""
        from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator

        return TransactionCoordinator(
            self.dynamic,
            self._coordinated(TRANSACTIONS_TOPIC),
            self.cluster,
            self.producer_ids.take,
            lambda partition, marker: self.groups.end_transaction(partition, marker),
            self.scheduler,
            self.clock,
            self.note_refusal,
        )

    def _coordinated(self, topic: str) -> Coordinated:
        from sparkonce.broker_lite.node.coordinated import Coordinated

        return Coordinated(topic, self.cluster, self.internal_topic, self.scheduler, self.clock)

    def _loaded_groups(self) -> GroupCoordinator | None:
        """Return the groups, if they have been loaded."""
        return self.__dict__.get("groups")

    def _largest_producer_id(self) -> int:
        logs = [log for topic in self.topics() for log in topic.logs.values()]
        ids = [each.producer_id for log in logs for each in log.producers.entries()]
        if TRANSACTIONS_TOPIC in self.logs.topics:
            for each in self.transactions.transactions.all():
                ids += (each.producer_id, each.next_producer_id)
        return max(ids, default=NO_PRODUCER_ID)

    # Topics.

    def topics(self) -> Iterable[Topic]:
        """Return all topics."""
        return list(self.logs.topics.values())

    def is_internal(self, topic: str) -> bool:
        """Whether clients may read but not write or delete this topic."""
        return topic in INTERNAL_TOPICS

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> Topic:
        """Create a topic under a new id; this broker is the controller.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS or INVALID_CONFIG;
                KAFKA_STORAGE_ERROR if it cannot be written down.
        """
        self.check_new_topic(name, partitions, settings)
        self.deleted.make_way([name])
        role, topic_id = self.member.controller, self.new_uuid()
        finish(role.prepare(name, topic_id, range(partitions), settings))
        try:
            role.decide(
                lambda controller: (controller.create_topic(name, topic_id, partitions, replicas, settings), None)
            )
        finally:
            role.end_preparation(name, topic_id)
        return self.logs.topics[name]

    def _make_topic(self, name: str) -> None:
        if self.is_internal(name):
            self.create_topic(name, *internal_topic_settings(self.config)[name])
        else:
            self.create_topic(name, self.config.num_partitions, {}, self.config.default_replication_factor)

    def internal_topic(self, name: str) -> Topic:
        """Return one of the coordinators' own topics, created with the settings that they need if it does not exist.

        Raises:
            KafkaError: as `create_topic`; COORDINATOR_NOT_AVAILABLE until the controller has created it.
        """
        topic = self.topic(name)
        if topic is None:
            self.request_topic(name)
            topic = self.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the controller is asked to make {name}")
        return topic

    def check_new_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Check whether a topic could be created; as `create_topic`."""
        NewTopics(self.logs).add(name, partitions, settings)

    def _topics_changed(self, gone: Sequence[Topic]) -> None:
        for topic in gone if self.metrics is not None else ():
            assert self.metrics is not None
            self.metrics.forget_topic(topic.name, topic.topic_id)
        groups = self._loaded_groups()
        if groups is not None:
            groups.topics_changed()

    def _settle(self) -> None:
        self.member.controller.settle()

    # Settings.

    def change_settings(self, resource: str, values: Mapping[str, str]) -> None:
        """Change settings of this broker, or of all brokers, from now on. Raises KafkaError INVALID_REQUEST."""
        self.dynamic.change_broker(resource, values)
        self._settings_changed()

    def reload_settings(self) -> None:
        """Reload the settings of brokers and groups that clients have changed through another broker."""
        self.dynamic.reload()
        self._settings_changed()
        groups = self._loaded_groups()
        if groups is not None:
            for name in self.dynamic.groups:
                groups.settings_changed(name)

    def _settings_changed(self) -> None:
        self.config = self.dynamic.config
        self.logs.change_defaults(self.config.log)
        for listener in self.on_settings_changed:
            listener(self.config)

    # Shutdown.

    def _close_coordinators(self) -> None:
        """Cancel the timers of the loaded coordinators, so that they write nothing more."""
        transactions: TransactionCoordinator | None = self.__dict__.get("transactions")
        for each in (self._loaded_groups(), transactions):
            if each is not None:
                each.close()

    def close(self) -> None:
        """Stop cleanly, with everything on disk; requests that do not end in time are not answered."""
        self.turns.close()
        self.member.leave()
        self.cluster.close()
        self.deleted.close()
        self._close_coordinators()
        self.logs.close(self.clock.now_ms())
