"""The cluster according to the controller's log: the state that every broker and the controller itself use.

An image results from applying the log's records in order; two that have applied the same records are equal. The
settings that decide which records are acknowledged are in it, too (KIP-966): a controller and a leader with different
ones could lose acknowledged records.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH, NO_LEADER, PartitionState

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.records import MetadataRecord

PartitionKey = tuple[uuid.UUID, int]

MAX_TERMS: Final = 1_000
"""For how many past controllers the image keeps where their terms begin in the log."""

MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
KAFKA_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({MIN_IN_SYNC_REPLICAS: "1", UNCLEAN_ELECTION: "false"})
"""The values for a log without these settings."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker."""

    broker_id: int
    broker_epoch: int
    incarnation: uuid.UUID
    host: str
    port: int
    fenced: bool = True
    shutting_down: bool = False
    listeners: tuple[tuple[str, str, int], ...] = ()
    """The addresses for clients: name, host and port of each listener."""

    @property
    def may_join(self) -> bool:
        """Whether it may be in sync, and lead."""
        return not self.fenced and not self.shutting_down


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; its partitions are numbered from 0."""

    name: str
    topic_id: uuid.UUID
    settings: dict[str, str]
    partitions: dict[int, PartitionState] = field(default_factory=dict)


class LogPosition(NamedTuple):
    """An offset of the controller's log, and the controller in whose term it was written.

    The log may be replaced by an older copy, which is then continued: offsets and epochs repeat, but not with the same
    incarnation of the same broker.
    """

    controller_epoch: int
    incarnation: uuid.UUID
    """The controller's incarnation in that epoch."""
    offset: int


class ClusterImage:
    """The state of the cluster at `next_offset` of the controller's log."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.controller_id = NO_LEADER
        self.controller_epoch = -1
        self.terms: tuple[LogPosition, ...] = ()
        """Where the terms of the last controllers begin, in order."""
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[uuid.UUID, TopicImage] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.next_producer_id = 0
        self.default_settings: dict[str, str] = {}
        """The values for topics without settings of their own; the controller begins its log with them."""
        self.documents: dict[str, str] = {}
        """The contents of the files that are the same on all brokers, by name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterImage) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> ClusterImage:
        """Return an independent copy."""
        image = ClusterImage()
        vars(image).update(vars(self))
        image.brokers, image.topic_ids = self.brokers.copy(), self.topic_ids.copy()
        image.topics = {key: replace(topic, partitions=topic.partitions.copy()) for key, topic in self.topics.items()}
        image.documents = self.documents.copy()
        return image

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic by its name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, key: PartitionKey) -> PartitionState | None:
        """Return a partition's state."""
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def partitions(self) -> Iterator[tuple[PartitionKey, PartitionState]]:
        """Iterate over all partitions; the image must not change meanwhile."""
        for topic in self.topics.values():
            for index, state in topic.partitions.items():
                yield (topic.topic_id, index), state

    @property
    def position(self) -> LogPosition | None:
        """Return this image's position in the log; None if its controller has recorded no incarnation."""
        return self.terms[-1]._replace(offset=self.next_offset) if self.terms else None

    def contains(self, position: LogPosition) -> bool:
        """Whether the log up to this image contains a position: as KIP-101 finds where two logs diverge.

        Positions older than `terms` count as contained; without terms, under a controller of an older version, those
        older than that controller.
        """
        for index, term in enumerate(self.terms):
            if term.controller_epoch == position.controller_epoch:
                ends = [*(later.offset for later in self.terms[index + 1 :]), self.next_offset]
                return term.incarnation == position.incarnation and position.offset <= ends[0]
        oldest = self.terms[0].controller_epoch if self.terms else self.controller_epoch
        return position.controller_epoch < oldest

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's last registration."""
        broker = self.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None else broker.broker_epoch

    def may_join(self, broker_id: int) -> bool:
        """Whether a broker may be in sync, and lead."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.may_join

    def min_in_sync_replicas(self, topic_id: uuid.UUID) -> int:
        """How many replicas of an existing topic must be in sync for a write with acks=all."""
        return int(self._setting(topic_id, MIN_IN_SYNC_REPLICAS))

    def allows_unclean_election(self, topic_id: uuid.UUID) -> bool:
        """Whether any replica of an existing topic may lead, if no other can."""
        return self._setting(topic_id, UNCLEAN_ELECTION).strip().lower() == "true"

    def _setting(self, topic_id: uuid.UUID, name: str) -> str:
        own = self.topics[topic_id].settings
        return own[name] if name in own else self.default_settings.get(name, KAFKA_DEFAULTS[name])

    def apply(self, record: MetadataRecord) -> None:
        """Apply the record at `next_offset`."""
        from sparkonce.broker_lite.controller import records  # not needed at the start of a standalone broker

        match record:
            case records.BrokerRegistered():
                self.brokers[record.broker_id] = BrokerImage(
                    record.broker_id,
                    self.next_offset,
                    record.incarnation,
                    record.host,
                    record.port,
                    listeners=record.listeners,
                )
            case records.BrokerChanged():
                broker = self.brokers[record.broker_id]
                if broker.broker_epoch == record.broker_epoch:
                    self.brokers[record.broker_id] = replace(
                        broker, fenced=record.fenced, shutting_down=record.shutting_down
                    )
            case records.TopicCreated():
                self.topics[record.topic_id] = TopicImage(record.name, record.topic_id, dict(record.settings))
                self.topic_ids[record.name] = record.topic_id
            case records.TopicDeleted():
                del self.topic_ids[self.topics.pop(record.topic_id).name]
            case records.TopicSettingsChanged():
                topic = self.topics[record.topic_id]
                self.topics[record.topic_id] = replace(topic, settings=dict(record.settings))
            case records.DefaultSettingsChanged():
                self.default_settings = dict(record.settings)
            case records.PartitionChanged():
                self.topics[record.topic_id].partitions[record.partition] = record.state
            case records.ProducerIdsAllocated():
                self.next_producer_id = record.next_producer_id
            case records.ControllerElected():
                self.controller_id, self.controller_epoch = record.controller_id, record.controller_epoch
                self._begin_term(record.incarnation, record.log_end)
            case records.DocumentChanged():
                self.documents[record.name] = record.text
        self.next_offset += 1

    def _begin_term(self, incarnation: uuid.UUID | None, log_end: int) -> None:
        if incarnation is None:  # a controller of an older version: its snapshots have no terms
            self.terms = ()
            return
        former = [each for each in self.terms if each.controller_epoch < self.controller_epoch]
        self.terms = (*former, LogPosition(self.controller_epoch, incarnation, log_end))[-MAX_TERMS:]
