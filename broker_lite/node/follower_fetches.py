"""The fetches of followers: their positions, and which of them wait.

Theory of operation: a follower that fetches from offset x has everything before x, so each fetch is noted with the
leader of every partition: this advances high watermarks and adds in-sync replicas. A follower that is up to date waits
for an append.

A follower with idle partitions sends the same fetch twice a second. From the third one on its partitions are not
noted one by one: while its session names nothing and no role, log end or log start offset has changed, one timestamp
is the last fetch of them all (`PartitionLeader.rest`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sparkonce.broker_lite.node.purgatory import FollowerPurgatory, PartitionKey
from sparkonce.broker_lite.replication.leader import PartitionLeader, RestingClock
from sparkonce.kafka.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparkonce.broker_lite.controller.image import PartitionKey as ClusterKey
    from sparkonce.broker_lite.log.log_manager import LogManager
    from sparkonce.broker_lite.log.partition_log import PartitionLog
    from sparkonce.broker_lite.node.deletions import Deletions
    from sparkonce.broker_lite.node.fetch_sessions import CachedPartition
    from sparkonce.broker_lite.replication.replicas import Event, Replicas
    from sparkonce.broker_lite.scheduling import Scheduler
    from sparkonce.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchTopic


class _Resting:
    """An up-to-date follower, and the state in which its next fetch says nothing new."""

    __slots__ = ("_broker_epoch", "_changes", "_logs", "_replicas", "clock", "is_told", "keys", "topics")

    def __init__(
        self,
        wanted: FetchRequest,
        replicas: Replicas,
        leaders: Iterable[PartitionLeader],
        keys: frozenset[PartitionKey],
        clock: RestingClock,
    ) -> None:
        self.topics = wanted.topics
        self.keys = keys
        self.clock = clock
        self.is_told = False
        """Whether its session has sent everything, too."""
        self._broker_epoch = wanted.replica_epoch
        self._replicas = replicas
        self._changes = replicas.changes
        self._logs = [(each.log, each.log.log_start_offset, each.log.log_end_offset) for each in leaders]

    def goes_on(self, wanted: FetchRequest) -> bool:
        """Whether a fetch is the same as the last one, and nothing has changed here."""
        if wanted.topics is not self.topics or wanted.replica_epoch != self._broker_epoch:
            return False
        if self._replicas.changes != self._changes or not self._replicas.in_session():
            return False
        # This is all that is done for each of thousands of idle partitions.
        return all(log.log_end_offset == end and log.log_start_offset == start for log, start, end in self._logs)


class FollowerFetches:
    """The fetches of all followers of one broker."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        deletions: Deletions,
        publish: Callable[[Iterable[Event]], None],
        scheduler: Scheduler,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.waiting = FollowerPurgatory(scheduler)
        self._logs = logs
        self._replicas = replicas
        self._deletions = deletions
        self._publish = publish
        self._monotonic_ms = monotonic_ms
        self._last: dict[int, Sequence[FetchTopic]] = {}
        """The last fetch of each follower that was up to date."""
        self._resting: dict[int, _Resting] = {}

    def fetched(self, wanted: FetchRequest, *, uses_topic_ids: bool) -> Collection[PartitionKey]:
        """Note a follower's position: it has everything before the offset that it fetches.

        Returns all its partitions if there is nothing to send for any, so that it has to wait; else none. Invalid
        offsets are ignored here, and rejected by the read.
        """
        now_ms, follower = self._monotonic_ms(), wanted.replica_id
        resting = self._resting.get(follower)
        if resting is not None and not self._deletions.any_waits and resting.goes_on(wanted):
            resting.clock.fetched_ms = now_ms
            return resting.keys
        self._resting.pop(follower, None)
        last = self._last.pop(follower, None)
        up_to_date = self._note(wanted, uses_topic_ids, now_ms)
        if up_to_date is None:
            return ()
        self._last[follower] = wanted.topics
        keys = frozenset(up_to_date)
        if last is wanted.topics:
            self._let_rest(wanted, up_to_date.values(), keys, now_ms)
        return keys

    def _note(
        self, wanted: FetchRequest, uses_topic_ids: bool, now_ms: int
    ) -> dict[PartitionKey, PartitionLeader] | None:
        """Note a follower's position; returns its partitions if it is up to date in every one."""
        events: list[Event] = []
        up_to_date: dict[PartitionKey, PartitionLeader] = {}
        has_all = True
        ends: list[tuple[PartitionLeader, int]] = []
        for name, topic_id, partitions in wanted.topics:
            topic = self._logs.topic_by_id(topic_id) if uses_topic_ids else self._logs.topics.get(name)
            has_all = has_all and topic is not None
            for each in partitions if topic is not None else ():
                assert topic is not None
                try:
                    leader = self._note_one((topic.topic_id, each.partition), wanted, each, now_ms, events)
                except (KafkaError, OSError) as error:
                    self._logs.note_failure(error)
                    leader = None
                if leader is None:
                    has_all = False
                else:
                    up_to_date[topic.name, each.partition] = leader
                    ends.append((leader, each.fetch_offset))
        self._publish(events)
        # Coordinators may have appended meanwhile, as the new high watermark completed their requests.
        return up_to_date if has_all and all(leader.log.log_end_offset == end for leader, end in ends) else None

    def _note_one(
        self, key: ClusterKey, wanted: FetchRequest, partition: FetchPartition, now_ms: int, events: list[Event]
    ) -> PartitionLeader | None:
        """Note a follower's position in one partition; returns the partition if it is up to date."""
        replicas, offset = self._replicas, partition.fetch_offset
        leader = replicas.leader(key)
        end = leader.log.log_end_offset
        if not leader.log.log_start_offset <= offset <= end:
            return None
        if leader.check_fetch(partition.current_leader_epoch, partition.last_fetched_epoch, offset) is not None:
            return None
        events += replicas.fetched_by(
            key, wanted.replica_id, wanted.replica_epoch, offset, partition.log_start_offset, now_ms
        )
        self._deletions.fetched(key)
        return leader if offset == end else None

    def _let_rest(
        self,
        wanted: FetchRequest,
        leaders: Collection[PartitionLeader],
        keys: frozenset[PartitionKey],
        now_ms: int,
    ) -> None:
        clock = RestingClock(now_ms)
        if all(leader.rest(wanted.replica_id, clock) for leader in leaders):
            self._resting[wanted.replica_id] = _Resting(wanted, self._replicas, leaders, keys, clock)

    def is_quiet(self, wanted: FetchRequest, asked: Mapping[tuple[Any, int], CachedPartition]) -> bool:
        """Whether a waiting follower is up to date: it is at every partition's end, and nothing else is to be sent.

        `asked` has the partitions of its session; empty if that has advanced.
        """
        if not asked:
            return False
        resting = self._resting.get(wanted.replica_id)
        goes_on = resting is not None and resting.goes_on(wanted)
        if resting is not None and goes_on and resting.is_told:
            return True
        is_quiet = all(self._is_told(key, cached) for key, cached in asked.items())
        if resting is not None and goes_on:
            resting.is_told = is_quiet
        return is_quiet

    def _is_told(self, key: tuple[Any, int], cached: CachedPartition) -> bool:
        role, wanted = self._replicas.roles.get(key), cached.wanted
        if not isinstance(role, PartitionLeader) or role.state.leader_epoch != wanted.current_leader_epoch:
            return False
        log = cast("PartitionLog", role.log)
        return (
            log.log_end_offset == wanted.fetch_offset
            and log.high_watermark == cached.high_watermark
            and log.log_start_offset == cached.log_start_offset
        )

    def read(self, follower: int) -> None:
        """Note that a follower's fetch is read, and may send something: its next one is processed in full."""
        self._resting.pop(follower, None)
