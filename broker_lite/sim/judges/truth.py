"""What is true in a simulated cluster, and whether everybody keeps to it.

Theory of operation: `Truth` reads the controller's log as a broker does, after every event that has written to the
shared disk; so it knows of every decision at the moment it counts. Each log that a broker opens is a `WatchedLog`,
which tells of each append, cut and high watermark. What that must fulfil is in `replication/invariants.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.log.checkpoints import PARTITION_METADATA, decode_partition_metadata
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.invariants import Batch, PartitionHistory
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.sim.faults.strangers import is_noted
from sparkonce.broker_lite.sim.judges.cleaned_logs import whole
from sparkonce.broker_lite.sim.judges.watched_log import LogWatcher, WatchedLog
from sparkonce.broker_lite.sim.machine.machine import METADATA, Mounted, Process, SharedDisk
from sparkonce.broker_lite.sim.marks import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from sparkonce.broker_lite.cluster.coordination import Step
    from sparkonce.broker_lite.log.config import LogConfig
    from sparkonce.broker_lite.log.segment import Segment
    from sparkonce.broker_lite.log.storage import Storage
    from sparkonce.broker_lite.sim.machine.machine import Machine
    from sparkonce.broker_lite.sim.world import World

_NOBODY = -1


class Truth:
    """The cluster, as its log has it; `take` is called with each step of that."""

    def __init__(self, disk: SharedDisk, take: Callable[[Step], None]) -> None:
        self._disk = disk
        self._take = take
        self._coordination = FileCoordination(disk, METADATA, _NOBODY, 1, 0)
        self.image = ClusterImage()

    def look(self) -> None:
        """Read what is new, if anything is."""
        if self._disk.changed:
            self._disk.changed = False
            for step in self._coordination.poll():
                self._take(step)

    def joined(self, machine: Machine) -> None:
        """Take a broker that begins to take part: a lock on the shared disk needs no look at it."""

    def look_at_the_end(self) -> None:
        """Look at what is stored, once the cluster has recovered: all of it has been read."""

    @property
    def holder(self) -> int:
        """Who has claimed the latest epoch of the controller."""
        return self._coordination.locks.leader()


class Mistakes(logging.Handler):
    """Takes what brokers log with a traceback: nothing else of what they log is a mistake of their own."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging`."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError) and not is_noted(record, error):
            self._world.mistake(None, f"{record.getMessage()}: {error!r}", error)


class Unjudged(PartitionHistory):
    """What has happened to a partition whose records may be deleted, or lost: only its leaders are judged."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lossy, self.promises = True, False

    def _place(self, broker_id: int, batch: Batch) -> None:
        """See `PartitionHistory`."""


class Watcher(LogWatcher):
    """Tells the invariants what happens to one replica."""

    def __init__(self, process: Process, key: PartitionKey, history: PartitionHistory) -> None:
        self._process = process
        self._world = process.machine.world
        self._broker_id = process.machine.node_id
        self.key = key
        self._history = history

    def appended(self, log: WatchedLog) -> None:
        """See `LogWatcher`."""
        cleaned = self._world.cleaned
        cleaned.cleaned(self._broker_id, self.key, cleaned.adopted(self._world.logs, self.key, log))
        last, name = log.batches[-1], self._history.name
        self._world.trace(lambda: f"broker {self._broker_id} appends {name} {last.base_offset} to {last.last_offset}")
        self._world.judge(lambda: self._history.appended(self._broker_id, log.batches))
        if last.base_offset and last.base_offset == log.segments[-1].base_offset:
            self._world.mark(Mark.ROLLED)

    def was_cut(self, log: WatchedLog) -> None:
        """See `LogWatcher`."""
        self._world.trace(lambda: f"broker {self._broker_id} cuts {self._history.name} at {log.log_end_offset}")
        self._world.mark(Mark.TRUNCATED)
        self._world.cleaned.cut(self._broker_id, self.key, log.log_end_offset)
        self._world.judge(lambda: self._world.decisions.check_member(self.key, self._broker_id))

    def was_torn(self) -> None:
        """See `LogWatcher`."""
        self._world.mark(Mark.TORN)

    def cleaned(self, end: int) -> None:
        """Note that a log is about to be compacted below an offset."""
        self._world.mark(Mark.COMPACTED)
        self._world.trace(lambda: f"broker {self._broker_id} compacts {self._history.name} below {end}")
        self._world.cleaned.cleaned(self._broker_id, self.key, end)

    def high_watermark_moved(self, log: WatchedLog) -> None:
        """See `LogWatcher`."""
        self._world.judge(lambda: self._check_high_watermark(log))

    def _check_high_watermark(self, log: WatchedLog) -> None:
        end, world, history = log.high_watermark, self._world, self._history
        followed = self._followed_epoch(log)
        if followed is not None:
            history.follower_high_watermark(self._broker_id, log.batches, end, followed)
        elif history.leader_high_watermark(self._broker_id, log.batches, end, log.latest_epoch):
            if history.lossy and not isinstance(history, Unjudged):
                world.mark(Mark.SAFE_AGAIN)
            world.trace(lambda: f"broker {self._broker_id}: {history.name} is safe below {end}")
            world.decisions.check_members(self.key)
            role = None if self._process.member is None else self._process.member.replicas.roles.get(self.key)
            if isinstance(role, PartitionLeader) and role.state.leader_epoch == log.latest_epoch:
                history.check_minimum(self._broker_id, role.state)

    def _followed_epoch(self, log: WatchedLog) -> int | None:
        """Return the epoch in which the replica follows; 0 while it is opened, None if it leads or begins to."""
        member = self._process.member
        if member is None:
            return 0
        role = member.replicas.roles.get(self.key)
        if isinstance(role, PartitionFollower) and log.latest_epoch <= role.leader_epoch:
            # Out of session it leads nothing, and after that may lead again in the epoch that was and is its own.
            return None if self._history.leaders.get(role.leader_epoch) == self._broker_id else role.leader_epoch
        return None


class ObservedLog(WatchedLog):
    """A log that a simulated broker opens."""

    @classmethod
    def open(cls, storage: Storage, directory: str, config: LogConfig, now_ms: int, **options: Any) -> Self:
        """See `PartitionLog`."""
        before = _bytes_of_records(storage, directory)
        log = super().open(storage, directory, config, now_ms, **options)
        metadata = options.get("metadata") or storage.read(f"{directory}/{PARTITION_METADATA}")
        _observe(log, storage, metadata)
        if _bytes_of_records(storage, directory) < before:
            log.watcher.was_torn()
        return log

    @classmethod
    def begin(cls, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes) -> Self:
        """See `PartitionLog`."""
        log = super().begin(storage, directory, config, now_ms, metadata)
        _observe(log, storage, metadata)
        return log

    def swap_segments(self, cleaned: Segment, old: Sequence[Segment], now_ms: int) -> None:
        """See `LocalLog`."""
        assert isinstance(self.watcher, Watcher)
        self.watcher.cleaned(old[-1].next_offset())
        super().swap_segments(cleaned, old, now_ms)


def _bytes_of_records(storage: Storage, directory: str) -> int:
    names = storage.list_directory(directory) if storage.is_directory(directory) else []
    return sum(storage.size(f"{directory}/{name}") for name in names if name.endswith(".log"))


def _observe(log: ObservedLog, storage: Storage, metadata: bytes) -> None:
    assert isinstance(storage, Mounted)
    process = storage.process
    key = decode_partition_metadata(metadata), int(log.directory.rpartition("-")[2])
    world = process.machine.world
    history = world.history_of(key, log.directory.rpartition("/")[2])
    broker_id = process.machine.node_id
    log.watch(Watcher(process, key, history))
    before = world.logs.get((broker_id, key))
    world.logs[broker_id, key] = log
    if process.machine.disk.has_lied:
        world.cleaned.cut(broker_id, key, log.log_end_offset)
    world.judge(lambda: _restore(log, before, world.cleaned.of(broker_id, key), history))
    world.judge(lambda: history.opened(broker_id, log.batches))


def _restore(log: ObservedLog, before: WatchedLog | None, cleaned_end: int, history: PartitionHistory) -> None:
    if before is not None and cleaned_end and not isinstance(history, Unjudged):
        log.batches = whole(history.name, before.batches, log.batches, cleaned_end)
