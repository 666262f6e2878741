"""The partitions of a broker: which it leads, and which waiting fetches to complete.

Theory of operation: the cluster image says which topics exist and which partitions have a replica here; logs are
created and removed to match it, before the replicas take their roles. Two kinds of fetches wait. Those of followers
read up to the end of a log, and an append wakes them. Those of consumers read up to the high watermark, and wait for
to advance; without followers, an append advances it. When a partition changes its leader, all its fetches are
completed, and tell their clients so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition, TopicImage
from sparkonce.broker_lite.controller.image import PartitionKey as ClusterKey
from sparkonce.broker_lite.log.log_manager import WantedTopic
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.node.deletions import Deleted, Deletions
from sparkonce.broker_lite.node.follower_fetches import FollowerFetches
from sparkonce.broker_lite.node.leader import LedPartition
from sparkonce.broker_lite.node.purgatory import FetchPurgatory, PartitionKey
from sparkonce.broker_lite.node.turns import ITEM, in_units
from sparkonce.broker_lite.replication.replicas import Event, HighWatermarkMoved
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Generator, Iterable, Sequence

    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.records import MetadataRecord
    from sparkonce.broker_lite.log.log_manager import LogManager, Topic
    from sparkonce.broker_lite.log.partition_log import PartitionLog
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.deleted_topics import DeletedTopics
    from sparkonce.broker_lite.scheduling import Scheduler, Timer
    from sparkonce.broker_lite.waiting import Promise

RECORDS_PER_UNIT: Final = 10
"""How many records are applied to the image for one unit of work."""
ROLE: Final = 2
"""The units of work to begin or end a role."""
RETRY_S: Final = 1.0
"""The delay before an operation that failed on the disk is retried, in seconds."""

logger = logging.getLogger(__name__)


class ClusterPartitions:
    """Updates a broker's logs and waiting requests to match the cluster image."""

    def __init__(
        self, logs: LogManager, member: ClusterMember, scheduler: Scheduler, clock: Clock, deleted: DeletedTopics
    ) -> None:
        self.logs = logs
        self.member = member
        self.purgatory = FetchPurgatory(scheduler)
        """The waiting fetches of consumers."""
        self.deletions = Deletions(member, scheduler)
        self.on_topics: list[Callable[[Sequence[Topic]], object]] = []
        """Called with the removed topics whenever topics are created, changed or removed."""
        self._deleted = deleted
        self._scheduler = scheduler
        self._clock = clock
        self._retry: Timer | None = None
        self._logged: dict[ClusterKey, str] = {}
        """What has been logged about partitions without a role."""
        self._monotonic_ms = clock.monotonic_ms
        self.follower_fetches = FollowerFetches(
            self.logs, member.replicas, self.deletions, member.publish, scheduler, self._monotonic_ms
        )
        self.followers = self.follower_fetches.waiting
        """The waiting fetches of followers."""
        self._led: dict[PartitionKey, LedPartition] = {}
        """Cache of `leading` since the last change of a role."""
        member.replicas.on_change = self._led.clear
        member.listen(self._on_event)

    def leading(self, topic: str, index: int) -> LedPartition:
        """Return a partition led here. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""
        led = self._led.get((topic, index))
        if led is None or not self.member.replicas.in_session():
            led = self._led[topic, index] = self._find(topic, index)
        return led

    def _find(self, topic: str, index: int) -> LedPartition:
        found = self.logs.topics.get(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
        leader = self.member.replicas.leader((found.topic_id, index))
        return LedPartition(
            cast("PartitionLog", leader.log), leader.state.leader_epoch, leader if leader.followers else None
        )

    def appended(self, topic: str, index: int, led: LedPartition, size: int, last_offset: int) -> None:
        """Note an append by this broker as the leader; if it is alone in sync, the high watermark advances."""
        if led.replicas is None:
            if self.purgatory.waits_for(topic, index):
                self.purgatory.appended(topic, index, size, led.log.last_stable_offset > last_offset)
            return
        self.followers.appended(topic, index, size)
        found = self.logs.topics[topic]
        self.member.publish(self.member.replicas.appended((found.topic_id, index), self._monotonic_ms()))

    def ended(self, topic: str, index: int, led: LedPartition) -> None:
        """Note that this broker, as the leader, has written a transaction marker."""
        self.purgatory.decided(topic, index)
        self.followers.decided(topic, index)
        if led.replicas is not None:
            found = self.logs.topics[topic]
            self.member.publish(self.member.replicas.appended((found.topic_id, index), self._monotonic_ms()))

    def gone(self, keys: Iterable[PartitionKey]) -> None:
        """Complete the fetches of partitions that were deleted, or have another leader now."""
        keys = list(keys)
        self.purgatory.gone(keys)
        self.followers.gone(keys)

    def deleted(self, topic: str, index: int, offset: int, timeout_ms: int) -> Promise[Deleted]:
        """Promise that every live replica begins at `offset` or later; followers' fetches are answered at once.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.followers.answer_now((topic, index))
        return self.deletions.deleted(self.member.key(topic, index), offset, timeout_ms)

    def take(self, image: ClusterImage) -> None:
        """Create and remove local logs to match the cluster image.

        Does nothing before this start of the broker is registered in the image: until then the image is out of date,
        and a topic that is not in it yet would seem to be deleted. Disk failures are retried after a while.
        """
        if not self.member.registered:
            return
        former = self.logs.metadata_position
        self.logs.note_metadata_position(
            self.member.safe_position, continues=former is None or image.contains(LogPosition(*former))
        )
        gone = [topic for topic in self.logs.topics.values() if topic.topic_id not in image.topics]
        wanted = map(self._wanted, image.topics.values())
        if finish(self.logs.take(wanted, gone, self._clock.now_ms())):
            self._topics_changed(gone)
            self._deleted.forget_all()
        self._scheduler.call_soon(self._look_for_failures)

    def change(self, records: Sequence[MetadataRecord]) -> Generator[int, None, None]:
        """Apply the decisions of a standalone broker's own controller; yields units of work.

        Committed offsets of removed topics, and their files, are left to `DeletedTopics.clean_up`.
        """
        from sparkonce.broker_lite.controller import records as kinds  # not needed at the start of a standalone broker

        member, image = self.member, self.member.image
        keys: list[ClusterKey] = []
        topic_ids: dict[uuid.UUID, None] = {}
        of_topics = (kinds.PartitionChanged, kinds.TopicCreated, kinds.TopicDeleted, kinds.TopicSettingsChanged)
        for record in records:
            image.apply(record)
            if isinstance(record, kinds.PartitionChanged):
                keys.append((record.topic_id, record.partition))
            if isinstance(record, of_topics):
                topic_ids[record.topic_id] = None
        yield len(records) // RECORDS_PER_UNIT
        gone = [topic for each in topic_ids if each not in image.topics and (topic := self.logs.topic_by_id(each))]
        wanted = [self._wanted(image.topics[each]) for each in topic_ids if each in image.topics]
        yield from in_units(self.logs.take(wanted, gone, self._clock.now_ms()))
        keys += [(topic.topic_id, index) for topic in gone for index in topic.logs]
        yield ITEM * len(keys)
        self._topics_changed(gone)
        for key in keys:
            member.publish(member.replicas.apply_to(key, image, self._monotonic_ms()))
            yield ROLE
        member.notify()
        if member.replicas.failed:
            self._look_for_failures()

    def _topics_changed(self, gone: Sequence[Topic]) -> None:
        self.gone((topic.name, index) for topic in gone for index in range(topic.partition_count))
        self._deleted.note(gone)
        for listener in self.on_topics:
            listener(gone)

    def _wanted(self, topic: TopicImage) -> WantedTopic:
        us = self.member.broker_id
        here = [index for index, state in topic.partitions.items() if us in state.replicas]
        return WantedTopic(topic.name, topic.topic_id, len(topic.partitions), here, topic.settings)

    def _look_for_failures(self) -> None:
        """Schedule a retry of the roles that replicas could not take."""
        failed = self.member.replicas.failed
        if not failed or self._retry is not None:
            return
        for key, error in failed.items():
            self.logs.note_failure(error)
            if self._logged.get(key) != str(error):
                is_known = isinstance(error, (KafkaError, OSError))
                text = "partition %s-%d is not led or followed as it should be: %s; it is tried again"
                logger.error(text, *key, error, exc_info=None if is_known else error)
        self._logged = {key: str(error) for key, error in failed.items()}
        self._retry = self._scheduler.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.take(self.member.image)
        self.member.take_roles()

    def close(self) -> None:
        """Cancel all retries."""
        if self._retry is not None:
            self._retry.cancel()

    def _on_event(self, event: Event) -> None:
        topic = self.logs.topic_by_id(event.key[0])
        if topic is None:
            return
        if isinstance(event, HighWatermarkMoved):
            self.purgatory.decided(topic.name, event.key[1])
        else:
            self.gone([(topic.name, event.key[1])])
            self.deletions.lost(event.key)
