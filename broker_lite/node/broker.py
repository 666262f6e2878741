"""What the handlers share: the log, the groups, the waiting fetches, the clocks.

Nothing here knows of sockets; timers come through `Scheduler`, time through `Clock`.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH
from sparkonce.broker_lite.coordinators.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH
from sparkonce.broker_lite.log.directories import LogDirectoryError, has_partition
from sparkonce.broker_lite.log.log_manager import LogManager, Topic
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.storage import Files, Storage
from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings
from sparkonce.broker_lite.node.new_topics import NewTopics, internal_topic_settings
from sparkonce.broker_lite.node.producer_ids import ProducerIds, blocks_in_file
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import FILES, ITEM, Turns
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.broker_lite.protocol.records import NO_PRODUCER_ID
from sparkonce.broker_lite.replication.replicas import ReplicationSettings
from sparkonce.broker_lite.scheduling import Scheduler
from sparkonce.broker_lite.security.authorizer import Authorizer, SecurityFileError, super_users
from sparkonce.broker_lite.security.credentials import ScramCredentials, configured_credentials

if TYPE_CHECKING:
    from sparkonce.broker_lite.coordinators.fetch_sessions import FetchSessions
    from sparkonce.broker_lite.coordinators.offsets import PendingOffsets
    from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator
    from sparkonce.broker_lite.node.leader import Led
    from sparkonce.broker_lite.node.metrics import Metrics
    from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator

__all__ = ["Broker", "Clock", "Topic"]

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
MAX_REFUSALS_LOGGED_PER_MINUTE = 60
_MINUTE_MS = 60_000
_INT32_MAX = 2**31 - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clock:
    """Both times, in milliseconds: since 1970, and of a clock that never goes back."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


class RequestFaults(Protocol):
    """What may alter how requests are answered (`broker_lite.faults`)."""

    def handle(self, request: Request) -> Body | None:
        """Answer a request in the place of `dispatch.handle`."""


def _check_alone(storage: Storage, log_dir: str) -> None:
    """Refuse a cluster's data: a standalone broker would write other records than the cluster has at these offsets.

    Raises:
        LogDirectoryError: if it is a member's.
    """
    if storage.is_directory(log_dir) and BROKER_EPOCH in storage.list_directory(log_dir):
        raise LogDirectoryError(
            f"{log_dir} is that of a member of a cluster: give metadata.log.dir, the folder that its brokers share, or "
            "another data directory"
        )


def _check_member(storage: Storage, log_dir: str) -> None:
    """Refuse data of a standalone broker, or of Kafka: the cluster does not know its topics, and would put them aside.

    Raises:
        LogDirectoryError: if it is no member's, and there are topics in it.
    """
    names = storage.list_directory(log_dir) if storage.is_directory(log_dir) else []
    if BROKER_EPOCH not in names and has_partition(storage, log_dir, names):
        raise LogDirectoryError(
            f"{log_dir} has topics, and is not that of a member of a cluster: start it as a standalone broker, without "
            "metadata.log.dir and zookeeper.connect, or give another data directory. If it was a member's, and only "
            f"its {BROKER_EPOCH} is lost, make that file again, with -1 in it"
        )


def _mark_member(storage: Storage, log_dir: str) -> None:
    """Note that the data are a member's, before there are any."""
    if BROKER_EPOCH not in storage.list_directory(log_dir):
        storage.write(f"{log_dir}/{BROKER_EPOCH}", b"%d\n" % NO_BROKER_EPOCH, durable=True)


class Broker:
    """One broker's state; used from one thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        log_dir: str,
        clock: Clock,
        scheduler: Scheduler,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        listeners: Sequence[tuple[str, str, int]] = (),
    ) -> None:
        """Open the log directory and read back what it holds.

        `listeners` is where clients of a standalone broker reach it: name, host and port of each.

        Raises:
            LogDirectoryError: if it is in use, or another cluster's or node's.
            SecurityFileError: if access control lists or credentials in it cannot be read.
        """
        self.shared_files = _shared_files(config, storage)
        """What files are written by that all brokers of a cluster have alike."""
        self.dynamic = DynamicSettings(self.shared_files, log_dir, config)
        self.config = config = self.dynamic.config
        self.clock = clock
        self.scheduler = scheduler
        self.new_uuid = new_uuid
        now_ms = clock.now_ms()
        check = _check_member if config.is_member else _check_alone
        check(storage, log_dir)
        self.logs = LogManager.open(
            storage,
            log_dir,
            config.log,
            now_ms,
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            new_uuid=new_uuid,
            internal_topics={name: settings for name, (_, settings) in internal_topic_settings(config).items()},
            of_cluster=config.is_member,
        )
        self.cluster_id = self.logs.cluster_id
        self.turns = Turns(scheduler, self._note_failed)
        self._deleted: dict[str, Topic] = {}
        """Topics that are gone, and that groups may still have offsets of; these go before the name is used again."""
        self.authorizer: Authorizer | None = None
        self.faults: RequestFaults | None = None
        """The fault injector while there are faults to inject; else None."""
        replication = ReplicationSettings(config.replica_lag_time_max_ms)
        self.member = ClusterMember(config.node_id, self.logs.log_of, replication, None, scheduler, clock.monotonic_ms)
        """This broker as a member of its cluster."""
        self.cluster = ClusterPartitions(self, self.member)
        """What it leads and follows."""
        self.leading: Callable[[str, int], Led] = self.cluster.leading
        """Return a partition that this broker leads, to read or write its records.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        self.request_topic: Callable[[str], object] = self._make_topic
        """Have the controller make a topic as on first use, an internal one as its coordinator needs it."""
        self.metrics: Metrics | None = None
        """The metrics, if they are enabled."""
        self.on_settings_changed: list[Callable[[BrokerConfig], object]] = []
        """Called with the settings in effect whenever a client has changed one."""
        self._refusals_logged = 0
        self._refusals_since_ms = clock.monotonic_ms()
        self.partition: Callable[[str, int], PartitionLog] = self.logs.partition
        """Return a partition's log; raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        self.topic_by_id: Callable[[uuid.UUID], Topic | None] = self.logs.topic_by_id
        self.topic: Callable[[str], Topic | None] = self.logs.topics.get
        try:
            self._load(storage, log_dir, tuple(listeners))
        except SecurityFileError:
            self.logs.close(now_ms)
            raise
        except BaseException:
            self._close_coordinators()
            self.logs.abandon()
            raise

    def _load(self, storage: Storage, log_dir: str, listeners: tuple[tuple[str, str, int], ...]) -> None:
        """Read what the log directory holds besides the logs, and what the coordinators have in theirs."""
        config = self.config
        self.producer_ids = ProducerIds(
            blocks_in_file(storage, f"{log_dir}/producer-id-block", self._largest_producer_id)
        )
        if config.authorizer_class_name:
            supers = super_users(config.super_users)
            self.authorizer = Authorizer(self.shared_files, log_dir, supers, config.allow_everyone_if_no_acl_found)
        configured = configured_credentials(config.listener_configs, lambda: self.new_uuid().bytes)
        self.scram_credentials = ScramCredentials(self.shared_files, log_dir, configured)
        if config.is_member:
            _mark_member(storage, log_dir)
            return  # a member of a cluster coordinates what it leads, as soon as it knows that
        from sparkonce.broker_lite.node.standalone import stand_alone

        stand_alone(self, listeners)
        if OFFSETS_TOPIC in self.logs.topics:
            _ = self.groups
        self._resume_deletions()
        if TRANSACTIONS_TOPIC in self.logs.topics:
            _ = self.transactions

    def _resume_deletions(self) -> None:
        """Remove groups' offsets of topics whose deletion a crash cut short; their files are gone by now."""
        groups = self._loaded_groups()
        finished = []
        for topic_id, name in self.logs.deletions.items():
            try:
                # If the topic was created again since, the older one's offsets were removed first.
                if groups is not None and name not in self.logs.topics:
                    groups.forget_topic(name)
                finished.append(topic_id)
            except KafkaError as error:
                logger.warning("offsets of the deleted topic %s cannot be removed yet: %s", name, error)
        if finished:
            self._finish_deletions(finished)

    # What not every broker needs is imported and created on first use, or if the log has data of it: loading all of it
    # would take a quarter of the start.

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """The sessions of fetches that name only what changes."""
        from sparkonce.broker_lite.coordinators.fetch_sessions import FetchSessions

        slots = self.config.max_incremental_fetch_session_cache_slots
        return FetchSessions(slots, lambda: self.new_uuid().int & _INT32_MAX)

    @cached_property
    def pending_offsets(self) -> PendingOffsets:
        """The offsets that wait for the end of their transaction."""
        from sparkonce.broker_lite.coordinators.offsets import PendingOffsets

        return PendingOffsets()

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The consumer groups and their offsets."""
        from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator

        return GroupCoordinator(self)

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The transactions."""
        from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator

        return TransactionCoordinator(self)

    def _largest_producer_id(self) -> int:
        logs = [log for topic in self.topics() for log in topic.logs.values()]
        ids = [each.producer_id for log in logs for each in log.producers.entries()]
        if TRANSACTIONS_TOPIC in self.logs.topics:
            for each in self.transactions.transactions.all():
                ids += (each.producer_id, each.next_producer_id)
        return max(ids, default=NO_PRODUCER_ID)

    def topics(self) -> Iterable[Topic]:
        """Return all topics."""
        return list(self.logs.topics.values())

    def is_internal(self, topic: str) -> bool:
        """Whether clients may read but not write or delete this topic."""
        return topic in INTERNAL_TOPICS

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> Topic:
        """Have this broker, which is the controller, make a topic under a new id.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS or INVALID_CONFIG;
                KAFKA_STORAGE_ERROR if it cannot be written down.
        """
        self.check_new_topic(name, partitions, settings)
        self.make_way([name])
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
        """Return one of the coordinators' own topics, created with the settings that they need, if it does not exist.

        Raises:
            KafkaError: as `create_topic`; COORDINATOR_NOT_AVAILABLE until the controller has made it.
        """
        topic = self.topic(name)
        if topic is None:
            self.request_topic(name)
            topic = self.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the controller is asked to make {name}")
        return topic

    def make_way(self, names: Iterable[str]) -> None:
        """Ensure that nothing of deleted topics is found under the names of new ones, not even after a power failure.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, if groups' offsets of them cannot be removed for good.
        """
        deleted = set(self.logs.deletions.values())
        again = [name for name in names if name in deleted]
        if again:
            self.member.controller.settle()
        groups = self._loaded_groups()
        for name in again:
            self._deleted.pop(name, None)
            if groups is not None:
                groups.forget_topic(name)
        if again:
            self._flush_group_offsets()

    def check_new_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Check whether a topic could be created; as `create_topic`."""
        NewTopics(self.logs).add(name, partitions, settings)

    def _loaded_groups(self) -> GroupCoordinator | None:
        """Return the groups, if they have been needed yet."""
        return self.__dict__.get("groups")

    def change_settings(self, resource: str, values: Mapping[str, str]) -> None:
        """Change settings of this broker, or of all brokers, from now on.

        Raises:
            KafkaError: INVALID_REQUEST.
        """
        self.dynamic.change_broker(resource, values)
        self._settings_changed()

    def reload_settings(self) -> None:
        """Read again what clients have changed through another broker: settings of brokers, and of groups."""
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

    def clean_up(self, topics: Iterable[Topic]) -> Generator[int, None, None]:
        """Remove what is left of topics that are deleted here by now: groups' offsets, then files.

        Yields units of work.
        """
        finished = []
        for topic in [each for each in topics if each.topic_id in self.logs.deletions]:
            try:
                self._forget_deleted(topic.name)
                finished.append(topic.topic_id)
            except KafkaError as error:  # the topic is gone all the same
                text = "offsets of the deleted topic %s stay until the next start, or until it is created again: %s"
                logger.warning(text, topic.name, error)
            yield ITEM * topic.partition_count
            while self.logs.remove_deleted(topic.name):
                yield FILES
        if finished:
            self._finish_deletions(finished)

    def _finish_deletions(self, topic_ids: Sequence[uuid.UUID]) -> None:
        """Note that topics are deleted for good, once the removal of their offsets is on the disk."""
        try:
            self._flush_group_offsets()
        except KafkaError as error:
            logger.warning("%s cannot be flushed: deletions are finished at the next start: %s", OFFSETS_TOPIC, error)
            return
        self.logs.finish_deletions(topic_ids)

    def _flush_group_offsets(self) -> None:
        """Bring what groups have committed, and what was removed of it, onto the disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        offsets = self.logs.topics.get(OFFSETS_TOPIC)
        try:
            for log in () if offsets is None else offsets.logs.values():
                log.flush(self.clock.now_ms())
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _forget_deleted(self, name: str) -> None:
        """Remove what groups have of a topic that has been deleted, unless that is done."""
        groups = self._loaded_groups()
        if name in self._deleted:
            if groups is not None:
                groups.forget_topic(name)
            del self._deleted[name]

    def forget_deleted(self) -> None:
        """Remove what groups have of all topics that have been deleted; what cannot be removed goes when it expires."""
        for name in list(self._deleted):
            try:
                self._forget_deleted(name)
            except KafkaError as error:
                del self._deleted[name]
                self.note_refusal(f"offsets of the deleted topic {name} could not be removed: {error}")

    def topics_changed(self, gone: Iterable[Topic]) -> None:
        """Notify all that topics exist, or have changed, or are `gone`."""
        for topic in gone:
            if self.metrics is not None:
                self.metrics.forget_topic(topic.name, topic.topic_id)
            self.cluster.gone((topic.name, index) for index in range(topic.partition_count))
            self._deleted[topic.name] = topic
        groups = self._loaded_groups()
        if groups is not None:
            groups.topics_changed()

    def note_refusal(self, text: str) -> bool:
        """Log what a client did wrong, up to a rate; returns whether it was logged."""
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._refusals_since_ms >= _MINUTE_MS:
            if self._refusals_logged > MAX_REFUSALS_LOGGED_PER_MINUTE:
                logger.warning("%d more lines like these", self._refusals_logged - MAX_REFUSALS_LOGGED_PER_MINUTE)
            self._refusals_since_ms, self._refusals_logged = now_ms, 0
        self._refusals_logged += 1
        if self._refusals_logged > MAX_REFUSALS_LOGGED_PER_MINUTE:
            return False
        logger.warning("%s", text)
        return True

    def _note_failed(self, request: Request, error: Exception) -> None:
        """Log why a request is not answered whose connection is closed for it."""
        text = f"{ApiKey(request.api_key).name} from {request.client_host} failed ({error!r}); closing its connection"
        if self.note_refusal(text) and not isinstance(error, (ProtocolError, OSError)):
            logger.exception("this is a mistake of the broker's", exc_info=error)

    def _close_coordinators(self) -> None:
        """Cancel the timers of the coordinators that are loaded: what they would write must not be written any more."""
        transactions: TransactionCoordinator | None = self.__dict__.get("transactions")
        for each in (self._loaded_groups(), transactions):
            if each is not None:
                each.close()

    def close(self) -> None:
        """Stop cleanly, with everything on disk; requests that are not done in time are not answered."""
        self.turns.close()
        self.member.leave()
        self.cluster.close()
        with contextlib.suppress(KafkaError):
            for name in list(self._deleted):
                self._forget_deleted(name)
        self._close_coordinators()
        self.logs.close(self.clock.now_ms())


def _shared_files(config: BrokerConfig, storage: Storage) -> Files:
    if not config.is_member:
        return storage
    from sparkonce.broker_lite.node.shared_files import AnnouncedFiles

    return AnnouncedFiles(storage)
