"""What the controller writes down: each change of the cluster is one record of its log (Kafka's KIP-631).

A record says what is now, not what changed, so that applying one twice does no harm. Where a record lies in the log
counts too: the offset of a `BrokerRegistered` is the broker's epoch.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH as NO_BROKER_EPOCH
from sparkonce.broker_lite.controller.partition_state import NO_LEADER as NO_LEADER
from sparkonce.broker_lite.controller.partition_state import PartitionState as PartitionState


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker has come, fenced until it has caught up with this log; `incarnation` differs in every start of it."""

    broker_id: int
    incarnation: uuid.UUID
    host: str
    """Where other brokers reach it."""
    port: int
    listeners: tuple[tuple[str, str, int], ...] = ()
    """Where clients reach it: for each listener its name, host and port."""


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    """A broker with this epoch is fenced or not, and wants to shut down or not."""

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
    """A topic is gone, its partitions too."""

    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged:
    """All settings of a topic from now on."""

    topic_id: uuid.UUID
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DefaultSettingsChanged:
    """All of the cluster's own settings from now on: what topics go by that have none of their own."""

    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition is new or has changed: this is its state from now on."""

    topic_id: uuid.UUID
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below this one have been handed out."""

    next_producer_id: int


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """A broker has become the controller."""

    controller_id: int
    controller_epoch: int
    incarnation: uuid.UUID | None = None
    """That of the broker's process; None in older records."""
    log_end: int = 0
    """Where the log of the controllers before it ends."""


@dataclass(frozen=True, slots=True)
class DocumentChanged:
    """What a file that all brokers have alike holds from now on: access control lists, say."""

    name: str
    text: str


Record = (
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
