"""The logs of simulated brokers: they report each append, truncation and high watermark to the invariants.

The invariants are in `replication/invariants.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, ClassVar, Final

from lab.sim.judges.cleaned_logs import whole
from lab.sim.judges.truth import Unjudged
from lab.sim.judges.watched_log import LogWatcher, WatchedLog
from lab.sim.machine.process import Mounted, Process
from lab.sim.marks import Mark
from sparkonce.broker_lite.log.checkpoints import PARTITION_METADATA, decode_partition_metadata
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.segment import LOG_SUFFIX
from sparkonce.broker_lite.log.segment_swap import DELETED
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.broker_lite.replication.leader import PartitionLeader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from lab.sim.disk import SimulatedDisk
    from lab.sim.judges.decisions import Decisions
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.broker_lite.log.config import LogConfig
    from sparkonce.broker_lite.log.segment import Segment
    from sparkonce.broker_lite.log.storage import Storage
    from sparkonce.broker_lite.replication.invariants import PartitionHistory

_NO_END: Final = 1 << 63


class Watcher(LogWatcher):
    """Reports changes of one replica to the invariants."""

    def __init__(
        self, world: World, decisions: Decisions, process: Process, key: PartitionKey, history: PartitionHistory
    ) -> None:
        self._world = world
        self._decisions = decisions
        self._process = process
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
        self._world.judge(lambda: self._decisions.check_member(self.key, self._broker_id))

    def was_torn(self) -> None:
        """See `LogWatcher`."""
        self._world.mark(Mark.TORN)

    def cleaned(self, end: int) -> None:
        """Note that a log is about to be compacted up to an offset."""
        self._world.mark(Mark.COMPACTED)
        self._world.trace(lambda: f"broker {self._broker_id} compacts {self._history.name} below {end}")
        self._world.cleaned.cleaned(self._broker_id, self.key, end)

    def dropping(self, log: WatchedLog, count: int) -> None:
        """Check that a log that deletes its oldest segments keeps enough, unless they are before its start."""
        start, least = log.segments[count].base_offset, log.config.retention_bytes
        left = sum(segment.size for segment in log.segments[count:])
        if start <= log.log_start_offset or least < 0:
            return
        known = self._world.retained_from
        known[self.key] = max(start, known.get(self.key, 0))
        if left < least:
            text = f"{self._history.name}: broker {self._broker_id} keeps {left} of {least} bytes"
            self._world.violated(ViolationError("retained", text))

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
            self._decisions.check_members(self.key)
            role = None if self._process.member is None else self._process.member.replicas.roles.get(self.key)
            if isinstance(role, PartitionLeader) and role.state.leader_epoch == log.latest_epoch:
                history.check_minimum(self._broker_id, role.state)

    def _followed_epoch(self, log: WatchedLog) -> int | None:
        """Return the epoch in which the replica follows; 0 while it is opened, None if it leads or becomes leader."""
        member = self._process.member
        if member is None:
            return 0
        role = member.replicas.roles.get(self.key)
        if isinstance(role, PartitionFollower) and log.latest_epoch <= role.leader_epoch:
            # Outside its session it leads nothing; later it may lead again in the same epoch, which is still its own.
            return None if self._history.leaders.get(role.leader_epoch) == self._broker_id else role.leader_epoch
        return None


class ObservedLog(WatchedLog):
    """The log class of simulated brokers: see `observed_logs`."""

    world: ClassVar[World]
    decisions: ClassVar[Decisions]

    @classmethod
    def open(cls, storage: Storage, directory: str, config: LogConfig, now_ms: int, **options: Any) -> Self:
        """See `PartitionLog`."""
        assert isinstance(storage, Mounted)
        recovery_point = _NO_END if options.get("holes_allowed") else options.get("recovery_point", 0)
        _check_disk(storage.process.machine.disk, directory, recovery_point)
        before = _bytes_of_records(storage, directory)
        log = super().open(storage, directory, config, now_ms, **options)
        metadata = options.get("metadata") or storage.read(f"{directory}/{PARTITION_METADATA}")
        log._observe(storage, metadata)
        if _bytes_of_records(storage, directory) < before:
            log.watcher.was_torn()
        return log

    @classmethod
    def begin(cls, storage: Storage, directory: str, config: LogConfig, now_ms: int, metadata: bytes) -> Self:
        """See `PartitionLog`."""
        log = super().begin(storage, directory, config, now_ms, metadata)
        log._observe(storage, metadata)
        return log

    def drop_segments(self, count: int, now_ms: int) -> None:
        """See `LocalLog`."""
        assert isinstance(self.watcher, Watcher)
        self.watcher.dropping(self, count)
        super().drop_segments(count, now_ms)

    def swap_segments(self, cleaned: Segment, old: Sequence[Segment], now_ms: int) -> None:
        """See `LocalLog`."""
        assert isinstance(self.watcher, Watcher)
        self.watcher.cleaned(old[-1].next_offset())
        super().swap_segments(cleaned, old, now_ms)

    def _observe(self, storage: Storage, metadata: bytes) -> None:
        assert isinstance(storage, Mounted)
        world, process = self.world, storage.process
        key = decode_partition_metadata(metadata), int(self.directory.rpartition("-")[2])
        history = world.history_of(key, self.directory.rpartition("/")[2])
        broker_id = process.machine.node_id
        self.watch(Watcher(world, self.decisions, process, key, history))
        before = world.logs.get((broker_id, key))
        world.logs[broker_id, key] = self
        # That a follower has fetched it from a compacted log does not mean that it is flushed.
        lasts = before is not None and not before.is_forgotten and not process.machine.disk.has_lost
        durable = before.recovery_point if before is not None and lasts else 0
        world.cleaned.cut(broker_id, key, max(self.log_end_offset, durable))
        world.judge(lambda: _restore(self, before, world.cleaned.of(broker_id, key), history))
        world.judge(lambda: history.opened(broker_id, self.batches))


def observed_logs(world: World, decisions: Decisions) -> type[ObservedLog]:
    """Return the log class for a world's brokers."""
    return type("ObservedLog", (ObservedLog,), {"world": world, "decisions": decisions})


def _check_disk(disk: SimulatedDisk, directory: str, recovery_point: int) -> None:
    """Check for losses that no broker sees: below a recovery point, flushed to a disk that has lied.

    Raises:
        LogDirectoryError: if something is lost. Neither Kafka nor this broker would notice, and both would go on.
    """
    files = {path.rpartition("/")[2]: disk.files[path] for path in disk.files if path.startswith(f"{directory}/")}
    bases = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in files if name.endswith(LOG_SUFFIX)) or [0]
    read_from = bases[max(bisect_right(bases, recovery_point) - 1, 0)]
    for name, content in files.items():
        stem = name.partition(".")[0]
        is_read = (int(stem) if stem.isdigit() else bases[0]) >= read_from
        if content.is_damaged and not is_read and not name.endswith(DELETED):
            raise LogDirectoryError(f"{directory}/{name}: the disk has lost what it said was flushed")
        content.is_damaged = False


def _bytes_of_records(storage: Storage, directory: str) -> int:
    names = storage.list_directory(directory) if storage.is_directory(directory) else []
    return sum(storage.size(f"{directory}/{name}") for name in names if name.endswith(".log"))


def _restore(log: ObservedLog, before: WatchedLog | None, cleaned_end: int, history: PartitionHistory) -> None:
    if before is not None and cleaned_end and not isinstance(history, Unjudged):
        log.batches = whole(history.name, before.batches, log.batches, cleaned_end, log.log_end_offset)
