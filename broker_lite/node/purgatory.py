"""Fetches that wait for more bytes.

Theory of operation: a fetch that finds less than its minimum is filed under each of its partitions. An append subtracts
its bytes from what the fetches of that partition still lack; a fetch that lacks nothing is answered soon after, when
the append's own response is sent. A timer answers the others when their wait time ends. The count may be wrong (a batch
may lie beyond a fetch's limits) and complete a fetch early; it then reads again and is filed again.

A read_committed fetch does not count appends while a transaction is open, since it will not see them; the end of a
transaction may make any number of bytes visible, and completes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparkonce.broker_lite.scheduling import Scheduler, Timer
from sparkonce.broker_lite.waiting import Promise

PartitionKey = tuple[str, int]


class _Waiter(Promise[bool]):
    """One waiting fetch; the value is whether it must be answered now, even without records."""

    __slots__ = ("final", "keys", "missing_bytes", "only_committed", "timer")

    def __init__(self, keys: Collection[PartitionKey], missing_bytes: int, only_committed: bool) -> None:
        super().__init__(ends_with_client=True)
        self.keys = keys
        self.missing_bytes = missing_bytes
        self.only_committed = only_committed
        self.timer: Timer | None = None
        self.final = False


class FetchPurgatory:
    """All waiting fetches."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters: dict[PartitionKey, dict[_Waiter, None]] = {}
        """The fetches of each partition, in order of arrival."""
        self._ready: list[_Waiter] = []

    async def wait(
        self, keys: Collection[PartitionKey], missing_bytes: int, wait_ms: int, only_committed: bool = False
    ) -> bool:
        """Wait until that many bytes are appended; return whether the fetch must be answered now, as its time is up."""
        waiter = _Waiter(keys, missing_bytes, only_committed)
        self._file(waiter)
        waiter.timer = self._scheduler.call_later(max(wait_ms, 0) / 1000, lambda: self._on_timer(waiter))
        try:
            return await waiter
        except GeneratorExit:  # the client has gone
            self._forget(waiter)
            raise

    def _file(self, waiter: _Waiter) -> None:
        for key in waiter.keys:
            self._waiters.setdefault(key, {})[waiter] = None

    def _unfile(self, waiter: _Waiter) -> None:
        for key in waiter.keys:
            waiters = self._waiters.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[key]

    def _of(self, key: PartitionKey) -> Collection[_Waiter]:
        return self._waiters.get(key, ())

    def waits_for(self, topic: str, partition: int) -> bool:
        """Whether a fetch waits for a partition."""
        return (topic, partition) in self._waiters

    def appended(self, topic: str, partition: int, size: int, stable: bool = True) -> None:
        """Note that `size` bytes have been appended; `stable`: whether they are below the last stable offset."""
        ready = []
        for waiter in self._of((topic, partition)):
            if stable or not waiter.only_committed:
                waiter.missing_bytes -= size
                if waiter.missing_bytes <= 0:
                    ready.append(waiter)
        self._wake(ready)

    def decided(self, topic: str, partition: int) -> None:
        """Complete the fetches of a partition in which a transaction has ended."""
        self._wake(list(self._of((topic, partition))))

    def gone(self, keys: Iterable[PartitionKey]) -> None:
        """Complete the fetches of deleted partitions."""
        for key in keys:
            self._wake(list(self._of(key)))

    def answer_now(self, key: PartitionKey) -> None:
        """Answer the fetches of a partition, even without records."""
        waiters = list(self._of(key))
        for waiter in waiters:
            waiter.final = True
        self._wake(waiters)

    @property
    def size(self) -> int:
        """How many fetches wait."""
        return len(set().union(*self._waiters.values()))

    def _wake(self, waiters: list[_Waiter]) -> None:
        for waiter in waiters:
            self._forget(waiter)
            if not self._ready:
                self._scheduler.call_soon(self._retry_ready)
            self._ready.append(waiter)

    def _retry_ready(self) -> None:
        ready, self._ready = self._ready, []
        for waiter in ready:
            waiter.complete(waiter.final)

    def _on_timer(self, waiter: _Waiter) -> None:
        self._forget(waiter)
        waiter.complete(True)

    def _forget(self, waiter: _Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._unfile(waiter)


class FollowerPurgatory(FetchPurgatory):
    """The waiting fetches of followers: few, with thousands of partitions each, so each is filed once for all."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._all: dict[_Waiter, None] = {}

    @property
    def size(self) -> int:
        """See `FetchPurgatory`."""
        return len(self._all)

    def waits_for(self, topic: str, partition: int) -> bool:
        """See `FetchPurgatory`."""
        return bool(self._of((topic, partition)))

    def _file(self, waiter: _Waiter) -> None:
        waiter.keys = frozenset(waiter.keys)
        self._all[waiter] = None

    def _unfile(self, waiter: _Waiter) -> None:
        self._all.pop(waiter, None)

    def _of(self, key: PartitionKey) -> Collection[_Waiter]:
        return [waiter for waiter in self._all if key in waiter.keys]
