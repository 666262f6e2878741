"""All replicas of one broker, and which of them it leads (the deciding part of Kafka's ReplicaManager).

Theory of operation: `apply` compares the cluster image with the current roles, and turns replicas into leaders and
followers. A broker's own view of an epoch never decreases. The effects are reported as events: their receivers answer
waiting producers when a high watermark has moved, load a coordinator's partition when it is led, and fetch the
partitions that are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkonce.broker_lite.assertions import broken
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.partition_state import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    PartitionState,
    broken_invariant,
)
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader, Proposal
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.replication.replica_log import ReplicaLog


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The settings of replication, in milliseconds, as Kafka's settings of the same names."""

    replica_lag_time_max_ms: int = 30_000


class Event:
    """A change of a partition."""

    # Written by hand: dataclasses would take a good part of a broker's start.
    __slots__ = ("key",)

    def __init__(self, key: PartitionKey) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key})"


class Leads(Event):
    """The partition is led by this broker, in a new epoch."""

    __slots__ = ()


class Follows(Event):
    """Another broker leads the partition, or none (-1); this one may have led before."""

    __slots__ = ("leader",)

    def __init__(self, key: PartitionKey, leader: int) -> None:
        super().__init__(key)
        self.leader = leader

    def __repr__(self) -> str:
        return f"Follows({self.key}, {self.leader})"


class Gone(Event):
    """The partition, or this replica of it, has been removed."""

    __slots__ = ()


class HighWatermarkMoved(Event):
    """The high watermark of a partition that this broker leads has advanced."""

    __slots__ = ()


def _nothing() -> None:
    """Do nothing."""


Role = PartitionLeader | PartitionFollower


def _always() -> bool:
    return True


class Replicas:
    """The replicas of one broker; not safe for use by several threads at once."""

    def __init__(
        self, broker_id: int, log_of: Callable[[PartitionKey], ReplicaLog], settings: ReplicationSettings
    ) -> None:
        """Begin without replicas.

        Args:
            broker_id: this broker's id.
            log_of: returns the log of a partition with a replica on this broker; creates it if needed.
            settings: the settings of replication.
        """
        self.broker_id = broker_id
        self.roles: dict[PartitionKey, Role] = {}
        self._log_of = log_of
        self._settings = settings
        self._image = ClusterImage()
        self._partition_epochs: dict[PartitionKey, int] = {}
        self._proposing: dict[PartitionKey, None] = {}
        """Partitions that may have a proposal for the controller, so that `proposals` need not check all."""
        self._asked: dict[PartitionKey, Proposal] = {}
        """The proposals of former leaders, which may lead again in the same leader epoch."""
        self.on_change: Callable[[], object] = _nothing
        """Called when a role, or a leader's state of its replicas, has changed; before that is reported."""
        self.on_proposal: Callable[[], object] = _nothing
        """Called when there is a first proposal to take."""
        self.changes = 0
        """The number of such changes, and of the controller's answers."""
        self.failed: dict[PartitionKey, Exception] = {}
        """Partitions whose log could not be opened, truncated or read since the last `apply`: the next one retries.

        Those that were to take a role have none until then.
        """
        self.in_session: Callable[[], bool] = _always
        """Whether the cluster counts this broker as alive: if not, it leads nothing, as others may lead by now."""

    def apply(self, image: ClusterImage, now_ms: int) -> list[Event]:
        """Apply this image; return the changes for this broker.

        A log that fails loses its own partition's role, and nothing else: the changes of the others must be reported,
        or they would never be fetched again. It is retried with the next image.
        """
        self._image = image
        self.failed.clear()
        # Before in-sync replicas: a high watermark must not advance by a minimum that the controller no longer uses.
        for key, role in self._led():
            if key[0] in image.topics:
                role.change_min_in_sync_replicas(image.min_in_sync_replicas(key[0]))
        events: list[Event] = []
        ours = set()
        for key, state in image.partitions():
            if self.broker_id in state.replicas:
                ours.add(key)
                if state.partition_epoch > self._partition_epochs.get(key, -1):
                    events += self._take_role(key, state, now_ms)
        for key in self.roles.keys() - ours:
            events.append(self._leave(key))
        for key in self._asked.keys() - ours:
            del self._asked[key]
        return events + self._advanced(now_ms)

    def apply_to(self, key: PartitionKey, image: ClusterImage, now_ms: int) -> list[Event]:
        """Apply an image in which only one partition has changed for this broker."""
        self._image = image
        state = image.partition(key)
        if state is not None and self.broker_id in state.replicas:
            return self._take_role(key, state, now_ms)
        return [self._leave(key)] if key in self.roles else []

    def _take_role(self, key: PartitionKey, state: PartitionState, now_ms: int) -> list[Event]:
        try:
            events = self._take(key, state, now_ms)
        except Exception as error:
            self.failed[key] = error
            self._remember_proposal(key)
            return [self._leave(key)] if key in self.roles else []
        finally:
            self._changed()
        self._partition_epochs[key] = state.partition_epoch
        return events

    def _leave(self, key: PartitionKey) -> Event:
        del self.roles[key], self._partition_epochs[key]
        self._changed()
        return Gone(key)

    def leader(self, key: PartitionKey) -> PartitionLeader:
        """Return a partition that this broker leads.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
        """
        role = self.roles.get(key)
        if isinstance(role, PartitionLeader) and self.in_session():
            return role
        if role is None and self._image.partition(key) is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {key[1]} of the topic with the id {key[0]}",
            )
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} does not lead {key[0]}-{key[1]}")

    def step_down(self) -> list[Event]:
        """Lead nothing until the next `apply`, which restores the roles in its image."""
        events: list[Event] = []
        for key, role in self._led():
            state = role.state
            self._remember_proposal(key)
            self.roles[key] = PartitionFollower(role.log, NO_LEADER, state.leader_epoch)
            self._partition_epochs[key] = -1
            events.append(Follows(key, NO_LEADER))
        self._changed()
        return events

    def _remember_proposal(self, key: PartitionKey) -> None:
        """Keep the proposal: the controller may still accept it, while this broker leads again."""
        role = self.roles.get(key)
        if isinstance(role, PartitionLeader) and role.proposal is not None:
            self._asked[key] = role.proposal

    def _changed(self) -> None:
        self.changes += 1
        self.on_change()

    def followed(self, leader: int) -> Iterator[tuple[PartitionKey, PartitionFollower]]:
        """Iterate over the partitions to fetch from one broker."""
        for key, role in self.roles.items():
            if isinstance(role, PartitionFollower) and role.leader == leader:
                yield key, role

    def appended(self, key: PartitionKey, now_ms: int) -> list[Event]:
        """Note an append by the leader of a partition: if it is alone in sync, the high watermark advances."""
        return [HighWatermarkMoved(key)] if self.leader(key).advance(now_ms) else []

    def fetched_by(
        self, key: PartitionKey, broker_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> list[Event]:
        """Note a follower's position.

        Raises:
            KafkaError: as `PartitionLeader.fetched`.
        """
        leader = self.leader(key)
        moved = leader.fetched(broker_id, broker_epoch, offset, log_start_offset, now_ms)
        if leader.has_proposal:
            self._propose(key)
        return [HighWatermarkMoved(key)] if moved else []

    def tick(self, now_ms: int) -> list[Event]:
        """Check for lagging followers; to be called every half of `replica.lag.time.max.ms`.

        A high watermark can move by that: it may have waited for a follower that was about to join, and did not.
        """
        for key, role in self._led():
            role.shrink(now_ms)
            if role.has_proposal:
                self._propose(key)
        return self._advanced(now_ms)

    def _propose(self, key: PartitionKey) -> None:
        is_first = not self._proposing
        self._proposing[key] = None
        if is_first:
            self.on_proposal()

    def proposals(self) -> list[tuple[PartitionKey, Proposal]]:
        """Return the unsent proposals for the controller."""
        if not self._proposing:
            return []
        keys, self._proposing = self._proposing, {}
        found = []
        for key in keys:
            role = self.roles.get(key)
            proposal = role.take_proposal() if isinstance(role, PartitionLeader) else None
            if proposal is not None:
                found.append((key, proposal))
        return found

    def proposal_answered(
        self, key: PartitionKey, proposal: Proposal, answer: PartitionState | ErrorCode | None, now_ms: int
    ) -> list[Event]:
        """Handle the controller's answer to a proposal; None on a timeout."""
        role = self.roles.get(key)
        if not isinstance(role, PartitionLeader):
            return []
        moved = False
        if answer is None:
            role.unanswered(proposal)
        elif isinstance(answer, ErrorCode):
            moved = role.refused(proposal, answer, now_ms)
        else:
            moved = role.confirmed(proposal, answer, now_ms)
        self.changes += 1
        if role.has_proposal:
            self._propose(key)
        return [HighWatermarkMoved(key)] if moved else []

    def _take(self, key: PartitionKey, state: PartitionState, now_ms: int) -> list[Event]:
        role = self.roles.get(key)
        found = broken_invariant(None, state)
        if found is None and role is not None and state.leader_epoch < role.leader_epoch:
            found = "epochs-rise", f"its leader epoch was {role.leader_epoch}, now it is {state.leader_epoch}"
        if found is not None:
            raise broken(found[0], f"partition {key[0]}-{key[1]}: {found[1]}")
        if state.leader == self.broker_id:
            if isinstance(role, PartitionLeader) and role.state.leader_epoch == state.leader_epoch:
                return [HighWatermarkMoved(key)] if role.changed(state, now_ms) else []
            leads = self.roles[key] = self._lead(key, state, now_ms)
            self._asked.pop(key, None)
            if leads.has_proposal:
                self._propose(key)
            return [Leads(key)]
        self._asked.pop(key, None)
        same = isinstance(role, PartitionFollower) and role.leader_epoch == state.leader_epoch
        if same:
            return []
        # No leader: nothing is truncated, and the epoch is noted, so that requests of the old leader are rejected.
        self.roles[key] = PartitionFollower(self._log_of(key), state.leader, state.leader_epoch)
        return [Follows(key, state.leader)]

    def _lead(self, key: PartitionKey, state: PartitionState, now_ms: int) -> PartitionLeader:
        return PartitionLeader(
            self.broker_id,
            self._log_of(key),
            state,
            self._joinable_epoch,
            min_in_sync_replicas=self._image.min_in_sync_replicas(key[0]),
            lag_time_max_ms=self._settings.replica_lag_time_max_ms,
            now_ms=now_ms,
            asked=self._asked.get(key),
        )

    def _led(self) -> list[tuple[PartitionKey, PartitionLeader]]:
        return [(key, role) for key, role in self.roles.items() if isinstance(role, PartitionLeader)]

    def _advanced(self, now_ms: int) -> list[Event]:
        """Recompute high watermarks: which replicas may join can change with brokers, without partitions."""
        events: list[Event] = []
        for key, role in self._led():
            try:
                if role.advance(now_ms):
                    events.append(HighWatermarkMoved(key))
            except Exception as error:
                self.failed[key] = error
        return events

    def _joinable_epoch(self, broker_id: int) -> int:
        return self._image.broker_epoch(broker_id) if self._image.may_join(broker_id) else NO_BROKER_EPOCH
