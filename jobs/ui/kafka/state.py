"""A cluster as it was at one look: brokers, topics, partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition; offsets are None where no broker leads it, or before they are known."""

    partition: int
    leader_id: int
    """-1 if there is no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None = None
    stable: int | None = None
    """Where the first open transaction begins, or the end."""
    end: int | None = None
    """The high watermark."""
    per_second: float | None = None
    """Offsets that were added in a second, lately."""

    @property
    def is_under_replicated(self) -> bool:
        """Whether some replica is not in sync."""
        return len(self.in_sync) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionState, ...]

    @property
    def offsets(self) -> int:
        """How many offsets all partitions hold: records, gaps and transaction markers."""
        return sum(each.end - each.start for each in self.partitions if each.end is not None and each.start is not None)

    @property
    def per_second(self) -> float:
        """The same as of partitions, for all of them."""
        return sum(each.per_second or 0.0 for each in self.partitions)

    @property
    def waiting(self) -> int:
        """How many offsets lie behind an open transaction."""
        return sum(
            each.end - each.stable for each in self.partitions if each.end is not None and each.stable is not None
        )

    @property
    def under_replicated(self) -> int:
        """How many partitions are under-replicated."""
        return sum(each.is_under_replicated for each in self.partitions)

    @property
    def without_leader(self) -> int:
        """How many partitions have no leader."""
        return sum(each.leader_id < 0 for each in self.partitions)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the last look has found, and what keeps the next one from being made."""

    at_ms: int | None = None
    """When it was looked at; None if never."""
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[BrokerState, ...] = ()
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    problem: str | None = None
    """Why the brokers do not answer now."""
