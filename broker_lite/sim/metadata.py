"""The metadata log on the disk that all brokers share, and the lock that makes one of them the controller.

Theory of operation: a write takes its time; what comes in the meantime is written together next. What is durable is
what brokers read, in order, each at its own pace. When the controller dies, its lock is free at once; of the writes
that it has begun, some may still have reached the disk. A controller that is only paused keeps the lock, and nobody
takes its place.

`image` is what the durable records say, and so the truth about the cluster; the invariants are checked with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import Record
from sparkonce.broker_lite.sim.scheduler import Scheduler

NOBODY: Final = 0

_Write = tuple[Sequence[Record], Callable[[], None]]


class SharedMetadata:
    """The log, the lock, and the writes under way."""

    def __init__(
        self, scheduler: Scheduler, rng: random.Random, flush_ms: int, landed: Callable[[Sequence[Record]], None]
    ) -> None:
        """Begin empty; `landed` is called with records that have become durable, and are to be applied to `image`."""
        self.image = ClusterImage()
        self.records: list[Record] = []
        self.holder = NOBODY
        """The broker that holds the lock."""
        self.flush_ms = flush_ms
        self._scheduler = scheduler
        self._rng = rng
        self._landed = landed
        self._writing: list[_Write] = []
        self._waiting: list[_Write] = []
        self._term = 0

    def try_lead(self, broker_id: int) -> bool:
        """Take the lock if it is free."""
        if self.holder != NOBODY:
            return False
        self.holder = broker_id
        return True

    def write(self, records: Sequence[Record], then: Callable[[], None]) -> None:
        """Append records; `then` is called when they are durable, and all that were written before."""
        if self._writing:
            self._waiting.append((records, then))
        elif records:
            self._writing.append((records, then))
            self._plan()
        else:
            then()

    def holder_died(self) -> int:
        """Free the lock; returns how many records are lost that were not durable yet."""
        writes = [*self._writing, *self._waiting]
        kept = self._rng.randint(0, len(self._writing))
        self._writing, self._waiting = [], []
        self.holder = NOBODY
        self._term += 1
        for records, _ in writes[:kept]:
            self._land(records)
        return sum(len(records) for records, _ in writes[kept:])

    def _plan(self) -> None:
        delay_ms = 1 + int(self._rng.random() * self.flush_ms)
        self._scheduler.after(delay_ms, self._written, self._term)

    def _written(self, term: int) -> None:
        if term != self._term:
            return  # its writer has died
        written, self._writing, self._waiting = self._writing, self._waiting, []
        for records, _ in written:
            self._land(records)
        if self._writing:
            self._plan()
        for _, then in written:
            then()

    def _land(self, records: Sequence[Record]) -> None:
        if records:
            self.records += records
            self._landed(records)
