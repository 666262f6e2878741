"""The state of a cluster at one time: brokers, topics, groups, open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkonce.jobs.cli.housekeeping.open_transactions import Picture
from sparkonce.jobs.ui.kafka.past import slope
from sparkonce.offset_store.group import Note
from sparkonce.offset_store.offsets import lag, total_lag


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition; offsets are None without a leader, or before they are known."""

    partition: int
    leader_id: int
    """-1 if there is no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None = None
    stable: int | None = None
    """The start of the first open transaction, or the end."""
    end: int | None = None
    """The high watermark."""
    per_second: float | None = None
    """Recent growth in offsets per second."""

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.in_sync) < len(self.replicas)

    @property
    def held(self) -> int:
        """The number of offsets: records, gaps and transaction markers."""
        return 0 if self.end is None or self.start is None else self.end - self.start

    @property
    def waiting(self) -> int:
        """The number of offsets behind an open transaction."""
        return 0 if self.end is None or self.stable is None else max(self.end - self.stable, 0)


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic; its figures are the sums of its partitions'."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionState, ...]

    @property
    def replicas(self) -> int:
        """The number of replicas of all partitions."""
        return sum(len(each.replicas) for each in self.partitions)

    @property
    def held(self) -> int:
        """The number of offsets."""
        return sum(each.held for each in self.partitions)

    @property
    def per_second(self) -> float:
        """Recent growth in offsets per second."""
        return sum(each.per_second or 0.0 for each in self.partitions)

    @property
    def waiting(self) -> int:
        """The number of offsets behind an open transaction."""
        return sum(each.waiting for each in self.partitions)

    @property
    def under_replicated(self) -> int:
        """The number of under-replicated partitions."""
        return sum(each.is_under_replicated for each in self.partitions)

    @property
    def without_leader(self) -> int:
        """The number of partitions without a leader."""
        return sum(each.leader_id < 0 for each in self.partitions)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers and topics."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[BrokerState, ...] = ()
    topics: Mapping[str, TopicState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's position in a partition."""

    topic: str
    partition: int
    committed: int
    """The offset that it reads next."""
    end: int | None
    """None if the partition is gone, or its end is unknown."""
    seconds: float | None = None
    """The age of the next record: 0 if there is none, None if unknown."""
    by_timestamp: bool = False
    """Whether ``seconds`` comes from the record's own timestamp, because it was written before the start."""
    is_beyond: bool = False
    """Whether the log ends before ``committed``: the topic was recreated, or has lost records."""
    note: Note | None = None
    """What a query of ours has noted beside the offset."""

    @property
    def lag(self) -> int | None:
        """The number of unread offsets."""
        return total_lag([lag(self.committed, self.end)])


@dataclass(frozen=True, slots=True)
class Lag:
    """The total lag of several partitions."""

    offsets: int
    seconds: float | None
    """The maximum; None if one of those that lag is unknown."""
    by_timestamp: bool
    beyond: int = 0
    """Partitions whose log ends before the committed offset."""
    unknown: int = 0
    """Partitions that are gone, or whose end is not known."""


UNSEEN_PAUSE_S = 60.0
"""The time between commits of a group that was not seen to commit twice: that of Kafka Connect."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """One consumer group."""

    group_id: str
    kind: str
    state: str
    partitions: tuple[GroupPartition, ...] = ()
    past: tuple[tuple[float, int], ...] = ()
    """Its earlier lags in offsets, with seconds of a monotonic clock."""
    problem: str | None = None
    """Why its offsets are unknown."""
    pause_s: float = UNSEEN_PAUSE_S
    """The time between its last two commits that moved offsets, at most `UNSEEN_PAUSE_S`; that until two were seen."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state.lower() == "empty"

    @property
    def lag(self) -> Lag:
        """Its lag in all partitions."""
        return _together(self.partitions)

    @property
    def topics(self) -> list[str]:
        """The topics with committed offsets."""
        return sorted({each.topic for each in self.partitions})

    @property
    def trend(self) -> float:
        """The growth of its lag in offsets per second; negative if it shrinks."""
        return slope(self.past)

    def lag_in(self, topic: str) -> Lag:
        """Return its lag in one topic."""
        return _together(each for each in self.partitions if each.topic == topic)


def _together(partitions: Iterable[GroupPartition]) -> Lag:
    known = list(partitions)
    behind = [each for each in known if each.lag]
    seconds = [each.seconds for each in behind]
    longest = None if None in seconds else max((each for each in seconds if each is not None), default=0.0)
    return Lag(
        total_lag(each.lag for each in behind) or 0,
        longest,
        any(each.by_timestamp and each.seconds == longest for each in behind),
        sum(each.is_beyond for each in known),
        sum(each.lag is None for each in known),
    )


@dataclass(frozen=True, slots=True)
class OtherTransaction:
    """An open transaction of a producer other than our sink."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    started_ms: int
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionsState:
    """Open transactions."""

    ours: Picture = field(default_factory=lambda: Picture((), 0, False))
    others: tuple[OtherTransaction, ...] = ()
