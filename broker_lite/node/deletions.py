"""DeleteRecords requests that wait for all live replicas (Kafka's DelayedDeleteRecords).

A follower learns its leader's new log start offset from the response to a fetch, and sends its own in the next one.
The client waits for, and gets, the low watermark: the lowest log start offset of all live replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.broker_lite.replication.leader import PartitionLeader
    from sparkonce.broker_lite.scheduling import Scheduler, Timer


class Deleted(NamedTuple):
    """How a request has ended: an error, or the low watermark."""

    error: ErrorCode
    low_watermark: int = -1


class _Waiter(Promise[Deleted]):
    __slots__ = ("offset", "timer")

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset
        self.timer: Timer | None = None


class Deletions:
    """All waiting requests of one broker."""

    def __init__(self, member: ClusterMember, scheduler: Scheduler) -> None:
        self._member = member
        self._scheduler = scheduler
        self._waiting: dict[PartitionKey, list[_Waiter]] = {}

    def deleted(self, key: PartitionKey, offset: int, timeout_ms: int) -> Promise[Deleted]:
        """Promise that the low watermark has reached `offset`. It may be complete already.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
        """
        low = self._low_watermark(self._member.replicas.leader(key))
        waiter = _Waiter(offset)
        if low >= offset:
            waiter.complete(Deleted(ErrorCode.NONE, low))
        else:
            delay_s = max(timeout_ms, 0) / 1000
            waiter.timer = self._scheduler.call_later(delay_s, lambda: self._on_timer(key, waiter))
            self._waiting.setdefault(key, []).append(waiter)
        return waiter

    @property
    def any_waits(self) -> bool:
        """Whether a request is waiting."""
        return bool(self._waiting)

    def fetched(self, key: PartitionKey) -> None:
        """Answer the requests that a follower's fetch completes."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        try:
            low = self._low_watermark(self._member.replicas.leader(key))
        except KafkaError as error:
            self._end(key, error.code)
            return
        left = [each for each in waiting if each.offset > low]
        done = [each for each in waiting if each.offset <= low]
        self._keep(key, left)
        for waiter in done:
            self._complete(waiter, Deleted(ErrorCode.NONE, low))

    def lost(self, key: PartitionKey) -> None:
        """Answer all requests of a partition whose leader has changed."""
        if key in self._waiting:
            self._end(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _low_watermark(self, leader: PartitionLeader) -> int:
        there = [each for broker_id, each in leader.followers.items() if self._member.image.may_join(broker_id)]
        return min([leader.log.log_start_offset, *(each.log_start_offset for each in there)])

    def _end(self, key: PartitionKey, code: ErrorCode) -> None:
        for waiter in self._waiting.pop(key):
            self._complete(waiter, Deleted(code))

    def _on_timer(self, key: PartitionKey, waiter: _Waiter) -> None:
        self._keep(key, [each for each in self._waiting[key] if each is not waiter])
        waiter.complete(Deleted(ErrorCode.REQUEST_TIMED_OUT))

    def _keep(self, key: PartitionKey, waiting: list[_Waiter]) -> None:
        if waiting:
            self._waiting[key] = waiting
        else:
            del self._waiting[key]

    @staticmethod
    def _complete(waiter: _Waiter, how: Deleted) -> None:
        assert waiter.timer is not None
        waiter.timer.cancel()
        waiter.complete(how)
