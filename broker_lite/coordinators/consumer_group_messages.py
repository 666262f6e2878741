"""Input and output of a KIP-848 group's state machine."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from sparkonce.broker_lite.coordinators.assignors import Partitions
from sparkonce.broker_lite.coordinators.consumer_group_image import Change, GroupImage, Owned


class Topics(Protocol):
    """The topics that exist."""

    @property
    def version(self) -> int:
        """A number that grows whenever a topic is created or deleted."""

    def names(self) -> Iterable[str]:
        """Return the names that a pattern may match."""

    def id_and_partitions(self, name: str) -> tuple[uuid.UUID, int] | None:
        """Return a topic's id and number of partitions."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The broker's settings for these groups."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]
    """The first is the default."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request; None (-1 for the time) means: unchanged."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] | None = None
    """Whether this client may describe a topic that a pattern matches; None: all."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat; ``assignment`` None: unchanged."""

    member_id: str
    member_epoch: int
    assignment: Owned | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of an event; ``seen`` is the member whose session restarts."""

    answer: HeartbeatAnswer | None
    image: GroupImage
    changes: tuple[Change, ...] = ()
    seen: str | None = None
