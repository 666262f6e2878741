"""The records of the controller's log: each is one change of the cluster (Kafka's KIP-631).

A record has the new state, not the difference, so that applying one twice does no harm. Its position in the log
matters too: the offset of a `BrokerRegistered` is the broker's epoch.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH as NO_BROKER_EPOCH
from sparkonce.broker_lite.controller.partition_state import NO_LEADER as NO_LEADER
from sparkonce.broker_lite.controller.partition_state import PartitionState as PartitionState


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker has started, fenced until it has caught up with this log; `incarnation` differs in every start of it."""

    broker_id: int
    incarnation: uuid.UUID
    host: str
    """The address for other brokers."""
    port: int
    listeners: tuple[tuple[str, str, int], ...] = ()
    """The addresses for clients: name, host and port of each listener."""


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    """Whether a broker with this epoch is fenced, and whether it is shutting down."""

    broker_id: int
    broker_epoch: int
    fenced: bool
    shutting_down: bool


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic with these settings; its partitions follow."""

    name: str
    topic_id: uuid.UUID
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is deleted, with its partitions."""

    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged:
    """All settings of a topic from now on."""

    topic_id: uuid.UUID
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DefaultSettingsChanged:
    """All of the cluster's own settings from now on: the defaults of topics without their own."""

    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition's new state; also for a new partition."""

    topic_id: uuid.UUID
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below this one are assigned."""

    next_producer_id: int


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """A broker has become the controller."""

    controller_id: int
    controller_epoch: int
    incarnation: uuid.UUID | None = None
    """The incarnation of the broker; None in older records."""
    log_end: int = 0
    """The end of the former controllers' log."""


@dataclass(frozen=True, slots=True)
class DocumentChanged:
    """The new content of a file that is the same on all brokers, such as access control lists."""

    name: str
    text: str


MetadataRecord = (
    BrokerRegistered
    | BrokerChanged
    | TopicCreated
    | TopicDeleted
    | TopicSettingsChanged
    | DefaultSettingsChanged
    | PartitionChanged
    | ProducerIdsAllocated
    | ControllerElected
    | DocumentChanged
)
