"""Requests that wait for replication: producers with acks=all, and coordinators before they answer.

Theory of operation (Kafka's DelayedProduce): a record is replicated when every in-sync replica has it, that is, below
the high watermark. A waiting request is filed under its partition, ordered by offset, and is answered when the high
watermark has passed its offset, when this broker no longer leads the partition, or after its timeout. One timer
serves all of them: it is set for the earliest deadline, and then checks all waiting requests.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.replication.replicas import Event, HighWatermarkMoved, Replicas
from sparkonce.broker_lite.scheduling import Scheduler, Timer
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


class _Waiter(Promise[ErrorCode]):
    """One waiting request; those with the same offset keep their order of arrival."""

    __slots__ = ("deadline_ms", "last_offset", "number")

    def __init__(self, last_offset: int, number: int, deadline_ms: int) -> None:
        super().__init__()
        self.last_offset = last_offset
        self.number = number
        self.deadline_ms = deadline_ms

    def __lt__(self, other: _Waiter) -> bool:
        return (self.last_offset, self.number) < (other.last_offset, other.number)


class Acknowledgements:
    """All waiting requests of one broker; not thread-safe."""

    def __init__(self, replicas: Replicas, scheduler: Scheduler, monotonic_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._scheduler = scheduler
        self._monotonic_ms = monotonic_ms
        self._waiting: dict[PartitionKey, list[_Waiter]] = {}
        self._number = 0
        self._timer: Timer | None = None
        self._timer_ms = 0

    def safe(self, key: PartitionKey, last_offset: int, timeout_ms: int) -> Promise[ErrorCode]:
        """Promise that everything up to `last_offset` is replicated. It may be complete already.

        The value is NONE; NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION if this broker no longer leads the
        partition; NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few replicas are in sync; or REQUEST_TIMED_OUT after
        `timeout_ms`. To wait for several, request all before awaiting the first: a partition that is lost and led again
        in between may have other records there.
        """
        deadline_ms = self._monotonic_ms() + max(timeout_ms, 0)
        self._number += 1
        waiter = _Waiter(last_offset, self._number, deadline_ms)
        answer = self._answer(key, last_offset)
        if answer is not None:
            waiter.complete(answer)
            return waiter
        heappush(self._waiting.setdefault(key, []), waiter)
        if self._timer is None or deadline_ms < self._timer_ms:
            self._set_timer(deadline_ms)
        return waiter

    def on_event(self, event: Event) -> None:
        """Answer the requests that an event completes."""
        waiting = self._waiting.get(event.key)
        if waiting is None:
            return
        if isinstance(event, HighWatermarkMoved):
            self._answer_safe(event.key, waiting)
            return
        # A new leader epoch, here or on another broker: records of the former epoch may have been truncated.
        del self._waiting[event.key]
        for waiter in waiting:
            waiter.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def size(self) -> int:
        """How many requests are waiting."""
        return sum(len(waiting) for waiting in self._waiting.values())

    def close(self) -> None:
        """Drop all waiting requests, and cancel the timer."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer_safe(self, key: PartitionKey, waiting: list[_Waiter]) -> None:
        # A handler that goes on may wait for the same partition again, so each request is removed before.
        while waiting:
            answer = self._answer(key, waiting[0].last_offset)
            if answer is None:
                return
            waiter = heappop(waiting)
            if not waiting:
                self._waiting.pop(key, None)
            waiter.complete(answer)
            waiting = self._waiting.get(key, [])

    def _answer(self, key: PartitionKey, last_offset: int) -> ErrorCode | None:
        try:
            return ErrorCode.NONE if self._replicas.leader(key).is_acknowledged(last_offset) else None
        except KafkaError as error:
            return error.code

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._monotonic_ms(), 0)
        self._timer = self._scheduler.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._monotonic_ms()
        late: list[_Waiter] = []
        for key, waiting in list(self._waiting.items()):
            if any(each.deadline_ms <= now_ms for each in waiting):
                late += (each for each in waiting if each.deadline_ms <= now_ms)
                waiting[:] = [each for each in waiting if each.deadline_ms > now_ms]
                heapify(waiting)
                if not waiting:
                    del self._waiting[key]
        deadlines = [each.deadline_ms for waiting in self._waiting.values() for each in waiting]
        if deadlines:
            self._set_timer(min(deadlines))
        for waiter in sorted(late):
            waiter.complete(ErrorCode.REQUEST_TIMED_OUT)
