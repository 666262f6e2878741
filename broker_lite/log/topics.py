"""A topic, with the broker's logs of it; and a topic as the controller has decided it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: `settings` are its own, `config` is the result of these and the broker's."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    logs: Mapping[int, PartitionLog]
    """The partitions that this broker has a replica of."""
    settings: Mapping[str, str]
    config: LogConfig


class WantedTopic(NamedTuple):
    """A topic as the controller has decided; `here` are the partitions that are assigned to this broker."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    here: Collection[int]
    settings: Mapping[str, str]
