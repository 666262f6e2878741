"""The machines that brokers run on: a disk, a clock, an address, and one process after the other.

Theory of operation: a process is the production `Server` on a `SimulatedLoop`. It dies in one of three ways: in order
(`Server.stop`), as a process (its callbacks and its connections end, its files stay as they are), or with its machine
(what it has not flushed may be gone). All machines share one disk for `metadata.log.dir`, as the brokers of a cluster
do; a process's locks on that end with it.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.storage import WriteGate
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.request import Endpoint
from sparkonce.broker_lite.protocol.errors import ProtocolError
from sparkonce.broker_lite.replication.replicas import Replicas
from sparkonce.broker_lite.server.connection import Connection
from sparkonce.broker_lite.server.host import Usage
from sparkonce.broker_lite.server.listener import Listener, ServerError
from sparkonce.broker_lite.server.membership import ClusterShell
from sparkonce.broker_lite.server.server import Server
from sparkonce.broker_lite.sim.disk import CutShort, DiskLock, SharedDisk, SimulatedDisk, SimulatedFile
from sparkonce.broker_lite.sim.machine.damage import damage, has_damage
from sparkonce.broker_lite.sim.machine.loop import SimulatedLoop
from sparkonce.broker_lite.sim.machine.settings import FIRST_PORT, has_watch
from sparkonce.broker_lite.sim.machine.watches import LATE_MS, Reader, SimulatedWatch
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.scheduler import stream
from sparkonce.broker_lite.sim.zookeeper.client import SimulatedClient

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.coordination import Coordination
    from sparkonce.broker_lite.cluster.file_coordination import Watch
    from sparkonce.broker_lite.log.storage import Flush, Storage
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.protocol.primitives import Buffer
    from sparkonce.broker_lite.security.settings import ListenerConfig
    from sparkonce.broker_lite.server.host import Heart
    from sparkonce.broker_lite.server.seat import Cluster, Seat
    from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperSession
    from sparkonce.broker_lite.sim.run import Run

SHARED: Final = "/shared"
"""Where the disk is mounted that all machines share."""
METADATA: Final = f"{SHARED}/metadata"
DATA: Final = "/data"
EPOCH_MS: Final = 1_700_000_000_000
"""The time of day at which a simulation begins."""
_FLUSHES_MS: Final = 100
_START_AGAIN_MS: Final = 500
_RELEASED_MS: Final = (0, 1, 5)
"""How long it takes the kernel to release what a dead process had locked, after it has reported it."""
_NO_EPOCH: Final = -1


class _Lock:
    """A `Lock` that is its holder's, and nobody else's."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self.disk = disk
        self._lock: DiskLock | None = disk.lock(path)

    def release(self) -> None:
        """See `Lock`."""
        if self._lock is not None:
            self.report()
            self.free()

    def free(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def report(self) -> None:
        """Tell whoever watches that the file is closed."""
        if isinstance(self.disk, SharedDisk):
            self.disk.report()


class Mounted:
    """The file system that one process sees: its machine's disk, and the shared one."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._disk = process.machine.disk
        self._shared = process.machine.run.shared
        self._locks: list[_Lock] = []

    def release_locks(self) -> None:
        """Release the locks of a process that has died; where that is reported, it is so a moment before."""
        scheduler, chance = self.process.machine.run.scheduler, self.process.machine.reporting
        for lock in self._locks:
            if lock.disk is self._shared and self._shared.watches:
                lock.report()
                scheduler.after(chance.choice(_RELEASED_MS), lock.free)
            else:
                lock.release()
        self._locks.clear()

    def _of(self, path: str) -> SimulatedDisk:
        if not self.process.alive:
            raise CutShort  # it has died in the middle of what it does
        disk = self._shared if path.startswith(SHARED) else self._disk
        disk.now_ms = self.process.machine.now_ms()
        return disk

    def open(self, path: str) -> SimulatedFile:
        """See `Storage`."""
        return self._of(path).open(path)

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        return self._of(path).read(path)

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        """See `Storage`."""
        self._of(path).write(path, data, durable=durable, private=private)

    def size(self, path: str) -> int:
        """See `Storage`."""
        return self._of(path).size(path)

    def modified_ms(self, path: str) -> int:
        """See `Storage`."""
        return self._of(path).modified_ms(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """See `Storage`."""
        disk = self._of(path)
        disk.size(path)
        disk.set_modified_ms(path, time_ms)

    def flush_later(self, paths: Sequence[str]) -> Flush:
        """See `Storage`."""
        return self._of(paths[0] if paths else DATA).flush_later(paths)

    def list_directory(self, path: str) -> list[str]:
        """See `Storage`."""
        return self._of(path).list_directory(path)

    def is_directory(self, path: str) -> bool:
        """See `Storage`."""
        return self._of(path).is_directory(path)

    def make_directory(self, path: str) -> None:
        """See `Storage`."""
        self._of(path).make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """See `Storage`."""
        self._of(source).rename(source, target)

    def remove(self, path: str) -> None:
        """See `Storage`."""
        self._of(path).remove(path)

    def remove_directory(self, path: str) -> None:
        """See `Storage`."""
        self._of(path).remove_directory(path)

    def lock(self, path: str) -> _Lock:
        """See `Storage`; as on a real disk, the file is there afterwards."""
        disk = self._of(path)
        lock = _Lock(disk, path)
        self._locks.append(lock)
        disk.open(path).close()
        return lock

    def is_locked(self, path: str) -> bool:
        """See `Storage`."""
        return self._of(path).is_locked(path)

    def close(self) -> None:
        """See `Storage`."""
        self._of(DATA).close()


class _Pulse:
    """See `server.pulse.Pulse`: as the thread of a process that is never too busy."""

    def __init__(self, loop: SimulatedLoop, beat: Callable[[], None], interval_ms: int) -> None:
        self._loop = loop
        self._beat = beat
        self._interval_ms = interval_ms
        self._timer = loop.call_later(interval_ms / 1000, self._run)

    def loop_is_seen(self, *, needed: bool) -> None:
        """See `Heart`."""

    def stop(self) -> None:
        """See `Heart`."""
        self._timer.cancel()

    def _run(self) -> None:
        self._timer = self._loop.call_later(self._interval_ms / 1000, self._run)
        self._beat()


class SimulatedHost:
    """The `Host` of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        machine = process.machine
        self.storage: Storage = process.files
        self.write_gate = WriteGate()
        self.clock = Clock(machine.now_ms, lambda: machine.run.scheduler.now_ms + machine.booted_ms)
        self._ports = FIRST_PORT

    def new_uuid(self) -> uuid.UUID:
        """See `Host`."""
        return uuid.UUID(int=self._process.machine.rng.getrandbits(128), version=4)

    def perf_counter_ns(self) -> int:
        """See `Host`."""
        return self._process.machine.run.scheduler.now_ms * 1_000_000

    def usage(self) -> Usage:
        """See `Host`: the same for all, as a page of metrics is to be the same each time."""
        return Usage(1.0, 1 << 26)

    def real_path(self, path: str) -> str:
        """See `Host`."""
        return path

    def lock_id(self, path: str) -> str:
        """See `Host`."""
        return f"{self._process.machine.address}{path}"

    def bind(self, config: ListenerConfig) -> tuple[Any, Listener]:
        """See `Host`: every listener has the same port after each start."""
        machine = self._process.machine
        port, self._ports = self._ports, self._ports + 1
        return machine.run.network.bind(machine.address, port), Listener(config, Endpoint(machine.address, port))

    def watch(self, directories: Sequence[str], then: Callable[[], None]) -> Watch | None:
        """See `Host`: some machines cannot report what others do."""
        assert all(each.startswith(SHARED) for each in directories)
        process = self._process
        run = process.machine.run
        if not has_watch(run.plan.seed):
            return None
        process.watch = SimulatedWatch(run.shared, run.scheduler, process.machine.reads_reports(process.loop), then)
        return process.watch

    def pulse(self, beat: Callable[[], None], clock: Clock, interval_ms: int, patience_ms: int) -> Heart:
        """See `Host`."""
        del clock, patience_ms
        return _Pulse(self._process.loop, beat, interval_ms)

    def zookeeper(self, connect: str, timeout_ms: int, loop: asyncio.AbstractEventLoop) -> ZooKeeperSession:
        """See `Host`."""
        del connect, loop
        process, machine = self._process, self._process.machine
        assert machine.run.ensemble is not None, "the plan has a ZooKeeper"
        seed = machine.run.plan.seed
        client = SimulatedClient(machine.run.ensemble, seed, machine.node_id, timeout_ms, process.loop)
        process.zookeeper = client
        return client


class TrustedConnection(Connection):
    """A connection of a broker, or of a client that makes no mistakes: it is never ended for what it has sent."""

    def _fail_with(self, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            self._loop.call_exception_handler({"message": f"what {self.peer} sends is refused", "exception": error})
        super()._fail_with(error)


class WatchedServer(Server):
    """A `Server` that shows its membership as soon as it has one."""

    on_joined: Callable[[ClusterMember, Coordination], None]

    def _kind_of(self, listener: Listener) -> type[Connection]:
        return TrustedConnection if listener.endpoint.port == FIRST_PORT else Connection

    def _join(self, broker: Broker, seat: Seat, listeners: list[Listener]) -> Cluster:
        cluster = super()._join(broker, seat, listeners)
        if isinstance(cluster, ClusterShell):
            self.on_joined(cluster.member, cluster.coordination)
        return cluster


class Owner(Protocol):
    """Who has put the machines up: it decides what their brokers are, and hears what becomes of them."""

    def config_of(self, node_id: int) -> BrokerConfig:
        """Return the settings of a broker."""

    def broker_epoch(self, node_id: int) -> int:
        """Return the epoch in which a broker is registered."""

    def joined(self, machine: Machine, member: ClusterMember) -> None:
        """Hear that a broker begins to take part in its cluster."""

    def may_stop(self, node_id: int, *, power: bool) -> bool:
        """Whether a broker may die now."""

    def stopped_uncleanly(self, node_id: int, *, power: bool) -> None:
        """Hear that a broker has died."""

    def disk_replaced(self, node_id: int) -> None:
        """Hear that a broker has another disk, which is empty."""


class Process:
    """One run of a broker."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        run = machine.run
        self.alive = True
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            run.scheduler, run.network, machine.address, self._on_error
        )
        self.files = Mounted(self)
        self.server = WatchedServer(machine.config(), DATA, SimulatedHost(self))
        self.server.on_joined = self._joined
        self.member: ClusterMember | None = None
        self.coordination: Coordination | None = None
        self.zookeeper: SimulatedClient | None = None
        self.watch: SimulatedWatch | None = None
        self.stopping = False
        self.started = False

    def start(self) -> None:
        """Begin."""
        self.loop.call_soon(self._start)

    def _start(self) -> None:
        self.loop.create_task(self.server.start()).add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        self.started = error is None
        if error is None:
            return
        if not isinstance(error, (ServerError, LogDirectoryError, OSError, CutShort)):
            self._on_error({"message": "start", "exception": error})
        self.machine.note_unwritable()
        self.machine.run.trace(lambda: f"broker {self.machine.node_id} does not start: {error!r}")
        self.machine.could_not_start(refused=isinstance(error, (ServerError, LogDirectoryError)))

    def stop(self) -> None:
        """Stop in order."""
        if self.started and not self.stopping:
            self.stopping = True
            self.loop.call_soon(self._stop)

    def _stop(self) -> None:
        self.loop.create_task(self.server.stop()).add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if error is not None and not isinstance(error, (OSError, CutShort)):
            self._on_error({"message": "stop", "exception": error})
        if error is not None:
            self.machine.note_unwritable()
        self.machine.stopped(clean=error is None)

    def end(self, *, power: bool) -> None:
        """Let nothing of it happen any more."""
        self.alive = False
        self.loop.end()
        if self.server._housekeeper is not None:
            with suppress(CutShort):  # what it was in the middle of stays as it is
                self.server._housekeeper.stop()
        self.machine.run.network.process_ended(self.loop, power=power)
        if self.zookeeper is not None:
            self.zookeeper.process_ended(power=power)
        if self.watch is not None:
            self.watch.close()
        self.files.release_locks()

    def _joined(self, member: ClusterMember, coordination: Coordination) -> None:
        self.member, self.coordination = member, coordination
        self.machine.owner.joined(self.machine, member)

    def _on_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, CutShort):
            self.machine.run.mistake(f"broker {self.machine.node_id}: {context.get('message')}: {error!r}", error)


class Machine:
    """One broker's machine, on and off."""

    def __init__(self, node_id: int, run: Run, owner: Owner) -> None:
        self.node_id = node_id
        self.run = run
        self.owner = owner
        self.address = f"10.0.0.{node_id}"
        self.disk = SimulatedDisk()
        self.disk.blown = self._is_cut_short
        self.disk.directories.add(DATA)
        self.rng: random.Random = stream("machine", run.plan.seed, node_id)
        self.process: Process | None = None
        self.clock_ahead_ms = 0
        self.booted_ms = 1_000_000 * node_id
        self.incarnation = 0
        self.forgot_epoch: int | None = None
        """The broker epoch under which it has lost power last."""
        self.blind_until_ms = 0
        self.learns_ms = 0
        """When its broker hears of what the controller has decided last."""
        self._hearing = stream("hearing", run.plan.seed, node_id)
        self._damaging = stream("damaging", run.plan.seed, node_id) if has_damage(run.plan.seed) else None
        self.reporting = stream("reporting", run.plan.seed, node_id)
        self._graveyard: list[Process] = []
        """Kept, so that nothing of them is collected, and so executed, in the middle of the run."""
        run.network.know(self.address, node_id)
        run.scheduler.after(_FLUSHES_MS, self._flush)

    def config(self) -> BrokerConfig:
        """Return the settings of its broker."""
        return self.owner.config_of(self.node_id)

    def now_ms(self) -> int:
        """Return the time of day, as its clock has it."""
        return EPOCH_MS + self.run.scheduler.now_ms + self.clock_ahead_ms

    def hear_later(self) -> None:
        """Let the broker read what the controller has decided some time after that, while there are faults."""
        run = self.run
        if not run.is_healed and self.learns_ms < run.scheduler.now_ms:
            self.learns_ms = run.scheduler.now_ms + int(self._hearing.random() ** 2 * run.plan.settings.image_lag_ms)

    def reads_reports(self, loop: SimulatedLoop) -> Reader:
        """Return how a broker here reads the reports of a watch: soon, once all is healed."""
        return Reader(
            lambda: 0 if self.run.is_healed else self.reporting.choice(LATE_MS),
            lambda: self.deaf_until_ms,
            loop.call_soon,
        )

    @property
    def deaf_until_ms(self) -> int:
        """Until when its broker does not read what the controller has decided."""
        return max(self.blind_until_ms, self.learns_ms)

    def _flush(self) -> None:
        """Let the disk do what it was asked for."""
        self.run.scheduler.after(_FLUSHES_MS, self._flush)
        if self.alive and not self.paused and not self.disk.broken:
            try:
                self.disk.settle()
            except CutShort:
                self.die()

    # Life and death.

    @property
    def alive(self) -> bool:
        """Whether its broker runs."""
        return self.process is not None

    @property
    def paused(self) -> bool:
        """Whether its broker is held up."""
        return self.process is not None and self.process.loop.paused

    def start(self) -> None:
        """Start the broker, unless it runs."""
        if self.process is not None:
            return
        self.run.trace(lambda: f"broker {self.node_id} starts")
        self.incarnation += 1
        self.run.network.down.discard(self.node_id)
        self.process = Process(self)
        self.process.start()

    def start_later(self, delay_ms: int) -> None:
        """Start the broker after a while, if it is still down then."""
        self.run.scheduler.after(delay_ms, self.start)

    def stop(self) -> None:
        """Let the broker stop in order."""
        if self.process is not None:
            self.process.stop()

    def stopped(self, *, clean: bool) -> None:
        """Take a broker that has stopped."""
        self.run.trace(lambda: f"broker {self.node_id} has stopped{'' if clean else ', not cleanly'}")
        if clean:
            self.run.mark(Mark.STOPPED)
        else:
            self.owner.stopped_uncleanly(self.node_id, power=False)
        self._end(power=False)
        self.start_later(_START_AGAIN_MS)

    def note_unwritable(self) -> None:
        """Note that what its broker was to write could not be written, if that is why it has ended."""
        if self.disk.broken:
            self.run.mark(Mark.BROKEN)
        elif self.disk.room is not None:
            self.run.mark(Mark.HALTED)

    def could_not_start(self, *, refused: bool) -> None:
        """Try again after a while; with another disk, if what is on this one is refused and may be as it has lied."""
        self._end(power=False)
        if refused and self.disk.has_lied:
            self.run.trace(lambda: f"broker {self.node_id} gets another disk")
            self.run.mark(Mark.DISK_REPLACED)
            self.disk.replace()
            self.disk.directories.add(DATA)
            self.owner.disk_replaced(self.node_id)
        self.start_later(_START_AGAIN_MS)

    def die(self, *, power: bool = False) -> None:
        """Let the broker die, or the whole machine."""
        if self.process is None:
            return
        self.run.trace(lambda: f"broker {self.node_id} dies{', with its machine' if power else ''}")
        self.owner.stopped_uncleanly(self.node_id, power=power)
        self._end(power=power)
        if power:
            self.run.network.down.add(self.node_id)
            self.forgot_epoch = self.owner.broker_epoch(self.node_id)
            self.disk.lose_power(self.rng, self.run.plan.settings.torn)
            self.run.mark(Mark.POWER_LOST)
        if self._damaging is not None:
            self.damage(self._damaging)

    def damage(self, chance: random.Random) -> None:
        """Damage files that the broker, which has died, can do without."""
        for _ in range(damage(self.disk, chance)):
            self.run.mark(Mark.FILE_DAMAGED)

    def _end(self, *, power: bool) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.end(power=power)
            self._graveyard.append(process)
        self.disk.process_died()

    def pause(self) -> None:
        """Hold the broker up."""
        if self.process is not None:
            self.run.trace(lambda: f"broker {self.node_id} is paused")
            self.process.loop.pause()

    def resume(self) -> None:
        """Let the broker go on."""
        if self.process is not None:
            self.run.trace(lambda: f"broker {self.node_id} goes on")
            self.process.loop.resume()

    def _is_cut_short(self) -> bool:
        """Whether the broker may die now, in the middle of a change; it dies when what it does is over."""
        process = self.process
        if process is None or not self.may_stop(power=False):
            return False
        process.alive = process.loop.alive = False
        power = self.rng.random() < 0.5 and self.may_stop(power=True)
        self.run.scheduler.after(0, self._cut_short, process, power)
        return True

    def may_stop(self, *, power: bool) -> bool:
        """Whether its broker may die now."""
        return self.owner.may_stop(self.node_id, power=power)

    def _cut_short(self, process: Process, power: bool) -> None:
        if self.process is process:
            self.run.mark(Mark.CUT_SHORT)
            self.die(power=power)

    @property
    def replicas(self) -> Replicas:
        """The replicas of its broker, which is a member."""
        assert self.process is not None
        assert self.process.member is not None
        return self.process.member.replicas
