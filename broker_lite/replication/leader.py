"""One partition as its leader sees it: the positions of followers, in-sync replicas, and the high watermark.

Theory of operation (Kafka's Partition): a follower that fetches from offset x has everything below x. The high
watermark is the least log end offset of the in-sync replicas; records below it are acknowledged and survive any clean
election. It also waits for replicas that are about to join: proposed to the controller but not confirmed, or caught up
and soon to be proposed. Otherwise one that the controller already counts as in sync could be elected without
acknowledged records. For the same reason it does not advance while fewer than `min.insync.replicas` are in sync
(KIP-966), and while the controller counts any replica out of sync as eligible to lead: it has used a larger minimum
than this leader knows, and such a replica must not lack acknowledged records before it is removed.

If the leader has the only replica, an append advances the high watermark at once.

The controller decides who is in sync. The leader proposes, with the partition epoch that it has, and uses the
larger set until it has the answer. One proposal is under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH, PartitionState
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.replication.replica_log import EpochEnd, ReplicaLog

_UNKNOWN_OFFSET = -1
_FINAL_REFUSALS = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class RestingClock:
    """The time of the last fetch of a follower that is up to date; shared by all its idle partitions."""

    __slots__ = ("fetched_ms",)

    def __init__(self, fetched_ms: int) -> None:
        self.fetched_ms = fetched_ms


@dataclass(slots=True)
class FollowerState:
    """The leader's state of a follower; offsets are -1 until it has fetched in this epoch."""

    broker_epoch: int
    last_caught_up_ms: int
    log_end_offset: int = _UNKNOWN_OFFSET
    log_start_offset: int = _UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = 0
    resting: RestingClock | None = None
    """While nothing changes, the time of its last fetch, instead of `last_caught_up_ms`.

    Its clock stops once something has changed, so it may stay set when the follower is no longer idle.
    """

    def fetched(self, offset: int, log_start_offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        """Note a fetch. It was caught up now, or at its last fetch, if it has now reached the end of then."""
        if self.resting is not None:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.resting.fetched_ms)
            self.resting = None
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset, self.log_start_offset, self.broker_epoch = offset, log_start_offset, broker_epoch
        self.last_fetch_ms, self.leader_end_at_last_fetch = now_ms, leader_end

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it is caught up, or was within the last `lag_time_max_ms`."""
        caught_up_ms = self.last_caught_up_ms
        if self.resting is not None:
            caught_up_ms = max(caught_up_ms, self.resting.fetched_ms)
        return self.log_end_offset == leader_end or now_ms - caught_up_ms <= lag_time_max_ms


class Proposal(NamedTuple):
    """The proposed in-sync replicas: broker ids with their epochs."""

    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]


class PartitionLeader:
    """The leader of one partition in one leader epoch."""

    __slots__ = (
        *("_broker_epoch", "_min_in_sync_replicas", "_unsent", "broker_id", "epoch_start_offset", "followers"),
        *("lag_time_max_ms", "log", "proposal", "state"),
    )  # a broker may have many thousands

    def __init__(
        self,
        broker_id: int,
        log: ReplicaLog,
        state: PartitionState,
        broker_epoch: Callable[[int], int],
        *,
        min_in_sync_replicas: int,
        lag_time_max_ms: int,
        now_ms: int,
        asked: Proposal | None = None,
    ) -> None:
        """Begin to lead: the epoch is written to the log before anything is served.

        Args:
            broker_id: this broker's id.
            log: this replica's log.
            state: the cluster's state of the partition.
            broker_epoch: returns the epoch of a broker that may be in sync; NO_BROKER_EPOCH for one that may not.
            min_in_sync_replicas: the topic's setting.
            lag_time_max_ms: after so long behind the end a follower is out of sync (`replica.lag.time.max.ms`).
            now_ms: the time.
            asked: the last proposal of this broker in the same leader epoch, if any. It may have been accepted.
        """
        self.broker_id = broker_id
        self.log = log
        self.state = state
        self.proposal: Proposal | None = None
        """The proposal sent, or to be sent; None if there is none."""
        if asked is not None and asked[:2] == (state.leader_epoch, state.partition_epoch):
            self.proposal = asked
        self._unsent = self.proposal is not None
        self.lag_time_max_ms = lag_time_max_ms
        self._min_in_sync_replicas = min_in_sync_replicas
        self._broker_epoch = broker_epoch
        self.epoch_start_offset = log.log_end_offset
        self.followers: dict[int, FollowerState] = {}
        log.begin_epoch(state.leader_epoch, with_first_record=len(state.replicas) == 1)
        self._add_replicas(now_ms)
        if self.followers:
            self.advance(now_ms)

    @property
    def leader_epoch(self) -> int:
        """The epoch that it leads in."""
        return self.state.leader_epoch

    @property
    def min_in_sync_replicas(self) -> int:
        """How many must be in sync for a write with acks=all: at most the number of replicas."""
        return min(self._min_in_sync_replicas, len(self.state.replicas))

    @property
    def is_below_minimum(self) -> bool:
        """Whether too few are in sync for the high watermark to advance, by this leader's or the controller's count."""
        return bool(self.state.eligible_leader_replicas) or len(self.in_sync_replicas) < self.min_in_sync_replicas

    @property
    def in_sync_replicas(self) -> tuple[int, ...]:
        """The in-sync replicas that the controller has confirmed."""
        return self.state.in_sync_replicas

    @property
    def maximal_in_sync_replicas(self) -> set[int]:
        """The replicas that the controller may count as in sync: a proposal may be accepted without our knowledge."""
        proposed = () if self.proposal is None else (broker_id for broker_id, _ in self.proposal.in_sync_replicas)
        return {*self.state.in_sync_replicas, *proposed}

    def check_fetch(self, epoch: int, last_fetched_epoch: int, offset: int) -> EpochEnd | None:
        """Check the epochs of a fetch; returns where its log diverges from ours, if it does (KIP-320, KIP-595).

        `epoch` and `last_fetched_epoch` are -1 if the fetch has none.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; OFFSET_OUT_OF_RANGE if nothing is left of the epoch.
        """
        check_leader_epoch(epoch, self.state.leader_epoch)
        if last_fetched_epoch < 0:
            return None
        ours = self.log.epoch_end(last_fetched_epoch)
        if ours is None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no records of epoch {last_fetched_epoch} or before")
        return ours if ours.epoch < last_fetched_epoch or ours.end_offset < offset else None

    def fetched(self, broker_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int) -> bool:
        """Note that a follower has everything below `offset`; returns whether the high watermark has moved.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the broker is no replica.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"broker {broker_id} is not one of the replicas")
        if NO_BROKER_EPOCH != broker_epoch < follower.broker_epoch:
            return False  # from an earlier start of the broker
        follower.fetched(offset, log_start_offset, broker_epoch, self.log.log_end_offset, now_ms)
        self._maybe_expand(broker_id, follower)
        return self.advance(now_ms)

    def rest(self, broker_id: int, clock: RestingClock) -> bool:
        """Let `clock` keep the fetch times of an up-to-date follower; returns whether its fetches change only that.

        That holds while this log's ends and the cluster's state of the partition are unchanged: the follower is
        in sync, and the high watermark cannot move further.
        """
        follower, end = self.followers.get(broker_id), self.log.log_end_offset
        if follower is None or follower.log_end_offset != end or self.log.high_watermark != end:
            return False
        follower.resting = clock
        return broker_id in self.in_sync_replicas

    def advance(self, now_ms: int) -> bool:
        """Advance the high watermark as far as possible; returns whether it has moved."""
        end = self.log.log_end_offset
        if self.log.high_watermark >= end or self.is_below_minimum:
            return False
        waited_for = self.maximal_in_sync_replicas
        offset = end
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < offset and (
                broker_id in waited_for or self._is_about_to_join(broker_id, follower, end, now_ms)
            ):
                offset = follower.log_end_offset
        return self.log.advance_high_watermark(offset)

    def check_acks_all(self) -> None:
        """Check whether a write with acks=all may be appended.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS.
        """
        if len(self.in_sync_replicas) < self.min_in_sync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.in_sync_replicas)} in sync, min.insync.replicas is {self.min_in_sync_replicas}",
            )

    def is_acknowledged(self, last_offset: int) -> bool:
        """Whether a write with acks=all that ends with `last_offset` may be answered.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS_AFTER_APPEND if all in-sync replicas have it, and these are too few.
        """
        if self.log.high_watermark <= last_offset:
            return False
        if len(self.in_sync_replicas) < self.min_in_sync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{len(self.in_sync_replicas)} in sync, min.insync.replicas is {self.min_in_sync_replicas}",
            )
        return True

    def shrink(self, now_ms: int) -> None:
        """Propose to remove in-sync replicas that have lagged for too long; call it every half of that time."""
        if self.proposal is not None:
            return
        end = self.log.log_end_offset
        left = [each for each in self.in_sync_replicas if each == self.broker_id or self._keeps_up(each, end, now_ms)]
        if len(left) < len(self.in_sync_replicas):
            self._propose(left)

    @property
    def has_proposal(self) -> bool:
        """Whether there is an unsent proposal."""
        return self._unsent

    def take_proposal(self) -> Proposal | None:
        """Return the proposal if it is unsent."""
        if not self._unsent:
            return None
        self._unsent = False
        return self.proposal

    def unanswered(self, proposal: Proposal) -> None:
        """Send a proposal again, as no answer came: it may have been accepted all the same."""
        self._unsent = self._unsent or self.proposal == proposal

    def confirmed(self, proposal: Proposal, state: PartitionState, now_ms: int) -> bool:
        """Apply the controller's answer to a proposal; return whether the high watermark has moved."""
        if state.leader_epoch != self.state.leader_epoch:
            return False  # the log will have the new leader
        if self.proposal == proposal:
            self._drop_proposal()
        return self.changed(state, now_ms)

    def refused(self, proposal: Proposal, code: ErrorCode, now_ms: int) -> bool:
        """Handle the controller's rejection of a proposal; return whether the high watermark has moved.

        If a broker may not be in sync now, nothing changes: the controller saw our epochs to be the latest, so the
        proposal cannot have been accepted. If it has a newer state than ours, we wait for the log, and assume until
        then that the proposal was accepted, which is safe. After any other error (it is no longer the controller, it
        failed) the proposal is sent again.
        """
        if self.proposal != proposal:
            return False
        if code is ErrorCode.INELIGIBLE_REPLICA:
            self._drop_proposal()
            return self.advance(now_ms)
        if code not in _FINAL_REFUSALS:
            self.unanswered(proposal)
        return False

    def changed(self, state: PartitionState, now_ms: int) -> bool:
        """Apply a newer state within this leader epoch; return whether the high watermark has moved."""
        if state.partition_epoch <= self.state.partition_epoch:
            return False
        self.state = state
        self._drop_proposal()
        before = self.log.high_watermark
        self._add_replicas(now_ms)
        return self.advance(now_ms) or self.log.high_watermark > before

    def change_min_in_sync_replicas(self, count: int) -> None:
        """Apply another `min.insync.replicas`; `advance` then returns whether the high watermark moves."""
        self._min_in_sync_replicas = count

    def _add_replicas(self, now_ms: int) -> None:
        """Add new replicas; one in sync has its whole lag time to fetch, another none."""
        if len(self.state.replicas) == 1:
            self.followers.clear()
            self.log.be_sole_replica()
            return
        others = [each for each in self.state.replicas if each != self.broker_id]
        if self.log.latest_epoch < self.state.leader_epoch:  # so far no other replica could ask for it
            self.log.begin_epoch(self.state.leader_epoch)
        self.log.be_one_of_several()
        for each in others:
            if each not in self.followers:
                caught_up_ms = now_ms if each in self.state.in_sync_replicas else -self.lag_time_max_ms - 1
                self.followers[each] = FollowerState(NO_BROKER_EPOCH, caught_up_ms)
        for gone in self.followers.keys() - set(others):
            del self.followers[gone]

    def _keeps_up(self, broker_id: int, end: int, now_ms: int) -> bool:
        follower = self.followers.get(broker_id)
        return follower is not None and follower.is_caught_up(end, now_ms, self.lag_time_max_ms)

    def _is_about_to_join(self, broker_id: int, follower: FollowerState, end: int, now_ms: int) -> bool:
        caught_up = follower.is_caught_up(end, now_ms, self.lag_time_max_ms)
        return caught_up and self._may_be_in_sync(broker_id, follower)

    def _may_be_in_sync(self, broker_id: int, follower: FollowerState) -> bool:
        """Whether the cluster allows it: not fenced, not shutting down, and its latest start has fetched."""
        epoch = self._broker_epoch(broker_id)
        return epoch != NO_BROKER_EPOCH and follower.broker_epoch in (epoch, NO_BROKER_EPOCH)

    def _maybe_expand(self, broker_id: int, follower: FollowerState) -> None:
        """Propose a follower that has reached the high watermark, and the beginning of this epoch.

        The second condition excludes one that has records of an older epoch up to the high watermark only: it could be
        elected and lose the records that this leader began with (KAFKA-7128). Nor is one proposed before it says which
        start of its broker it is of: it may lose what it has, and start again, before the controller decides (KIP-903).
        """
        if (
            self.proposal is None
            and broker_id not in self.in_sync_replicas
            and follower.broker_epoch != NO_BROKER_EPOCH
            and follower.log_end_offset >= max(self.log.high_watermark, self.epoch_start_offset)
            and self._may_be_in_sync(broker_id, follower)
        ):
            self._propose([*self.in_sync_replicas, broker_id])

    def _drop_proposal(self) -> None:
        self.proposal, self._unsent = None, False

    def _propose(self, in_sync_replicas: list[int]) -> None:
        with_epochs = tuple((each, self._known_epoch(each)) for each in in_sync_replicas)
        self.proposal = Proposal(self.state.leader_epoch, self.state.partition_epoch, with_epochs)
        self._unsent = True

    def _known_epoch(self, broker_id: int) -> int:
        follower = self.followers.get(broker_id)
        return self._broker_epoch(broker_id) if follower is None else follower.broker_epoch


def check_leader_epoch(told: int, current: int) -> None:
    """Check the epoch of a request against the current one; -1 if it has none.

    Raises:
        KafkaError: FENCED_LEADER_EPOCH if the request is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
    """
    if 0 <= told < current:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {current}, the request names {told}")
    if told > current:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch here is {current}, not yet {told}")
