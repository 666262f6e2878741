"""One run of a broker: the production `Server` on simulated parts of a machine."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from lab.sim.disk import CutShort, DiskLock, SharedDisk, SimulatedDisk, SimulatedFile
from lab.sim.machine.loop import SimulatedLoop
from lab.sim.machine.settings import FIRST_PORT, has_watch
from lab.sim.machine.watches import Reader, SimulatedWatch
from lab.sim.zookeeper.client import SimulatedClient
from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.cluster.record_format import decode, encode_snapshot
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.storage import WriteGate
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.request import Endpoint
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.replication.replicas import Event, Leads
from sparkonce.broker_lite.server.connection import ClientConnection
from sparkonce.broker_lite.server.listener import Listener, ServerError
from sparkonce.broker_lite.server.membership import ClusterShell
from sparkonce.broker_lite.server.server import Server
from sparkonce.kafka.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from lab.sim.run import Run
    from sparkonce.broker_lite.cluster.coordination import Coordination
    from sparkonce.broker_lite.cluster.file_coordination import Watch
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.broker_lite.log.storage import Flush, Storage
    from sparkonce.broker_lite.security.settings import ListenerConfig
    from sparkonce.broker_lite.server.host import Heart, Usage
    from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperSession
    from sparkonce.kafka.protocol.primitives import Buffer

SHARED: Final = "/shared"
"""The mount point of the disk that all machines share."""
DATA: Final = "/data"
_RELEASED_MS: Final = (0, 1, 5)
"""How long the kernel takes to release a dead process's locks, after it has reported their files as closed."""


class _Lock:
    """A `Lock` owned by one process."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self.disk = disk
        self._lock: DiskLock | None = disk.lock(path)

    def release(self) -> None:
        """See `Lock`."""
        if self._lock is not None:
            self.report()
            self.free()

    def free(self) -> None:
        """Release it for others."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def report(self) -> None:
        """Notify watchers that the file is closed."""
        if isinstance(self.disk, SharedDisk):
            self.disk.report()


class Mounted:
    """The file system as one process sees it: its machine's disk, and the shared one."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._disk = process.machine.disk
        self._shared = process.machine.run.shared
        self._locks: list[_Lock] = []

    def release_locks(self) -> None:
        """Release the locks of a dead process; if that is reported, the report comes a moment before."""
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
            raise CutShort  # it has died during a call
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
    """See `server.pulse.Pulse`: for a process that is never too busy."""

    def __init__(self, loop: SimulatedLoop, beat: Callable[[], None], interval_ms: int) -> None:
        self._loop = loop
        self._beat = beat
        self._interval_ms = interval_ms
        self._timer = loop.call_later(interval_ms / 1000, self._run)

    def loop_is_seen(self, *, needed: bool = True) -> None:
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
        """See `Host`: constant, so that a page of metrics is the same in each run."""
        from sparkonce.broker_lite.server.host import Usage  # former versions do not have it, and do not call it

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
        """See `Host`: some machines cannot report changes made by others."""
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


class TrustedConnection(ClientConnection):
    """A connection of a broker, or of a client without bugs: it is never closed for an invalid request."""

    def _fail_with(self, error: Exception, *request: Any) -> None:  # former versions have no request here
        if isinstance(error, ProtocolError):
            self._loop.call_exception_handler({"message": f"what {self.peer} sends is refused", "exception": error})
        super()._fail_with(error, *request)


class WatchedServer(Server):
    """A `Server` that reports its membership as soon as it has one."""

    on_joined: Callable[[ClusterMember, Coordination], None]

    def _kind_of(self, listener: Listener) -> type[ClientConnection]:
        return TrustedConnection if listener.endpoint.port == FIRST_PORT else ClientConnection

    def _join(self, *arguments: Any) -> Any:
        cluster = super()._join(*arguments)
        if isinstance(cluster, ClusterShell):
            former = vars(cluster).get("_coordination")  # its name in former versions
            self.on_joined(cluster.member, former or cluster.coordination)
        return cluster


class ProcessOwner(Protocol):
    """The machine of a process, as far as the process knows it."""

    node_id: int
    run: Run
    address: str
    disk: SimulatedDisk
    rng: random.Random
    booted_ms: int
    reporting: random.Random

    def reads_reports(self, loop: SimulatedLoop) -> Reader:
        """Return how a broker here reads the reports of a watch."""

    def config(self) -> BrokerConfig:
        """Return the settings of its broker."""

    def now_ms(self) -> int:
        """Return the time of day by its clock."""

    def joined(self, member: ClusterMember) -> None:
        """Note that its broker joins its cluster."""

    def leads(self, key: PartitionKey) -> None:
        """Note that its broker leads a partition."""

    def stopped(self, *, clean: bool) -> None:
        """Note that its broker has stopped."""

    def could_not_start(self, *, refused: bool) -> None:
        """Note that its broker has not started; `refused`: because of the contents of its disk."""

    def note_unwritable(self) -> None:
        """Note that its broker ends, perhaps because it could not write."""


def _is_refusal(error: BaseException) -> bool:
    """Whether a broker refuses what its disk holds: not if the disk, or ZooKeeper, has failed to do something."""
    return isinstance(error, (ServerError, LogDirectoryError)) and not isinstance(error.__cause__, OSError)


class Process:
    """One run of a broker."""

    version: ClassVar[str] = ""
    """The version's name in the trace."""

    def __init__(self, machine: ProcessOwner) -> None:
        self.machine = machine
        run = machine.run
        self.alive = True
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            run.scheduler, run.network, machine.address, self._on_error
        )
        self.files = Mounted(self)
        config = BrokerConfig.of(machine.config().given)  # of its own version
        self.server = WatchedServer(config, DATA, SimulatedHost(self))
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
        self.machine.could_not_start(refused=_is_refusal(error))

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
        """Stop all its activity."""
        self.alive = False
        self.loop.end()
        if self.server._housekeeper is not None:
            with suppress(CutShort):  # an interrupted change stays incomplete
                self.server._housekeeper.stop()
        self.machine.run.network.process_ended(self.loop, power=power)
        if self.zookeeper is not None:
            self.zookeeper.process_ended(power=power)
        if self.watch is not None:
            self.watch.close()
        self.files.release_locks()

    def _joined(self, member: ClusterMember, coordination: Coordination) -> None:
        self.member, self.coordination = member, coordination
        self.machine.joined(member)
        member.listen(self._event)

    def _event(self, event: Event) -> None:
        if isinstance(event, Leads):
            self.machine.leads(event.key)

    @property
    def led(self) -> dict[PartitionKey, PartitionLeader]:
        """The partitions that its broker leads as far as it knows, in session or not."""
        roles = {} if self.member is None else self.member.replicas.roles
        return {key: role for key, role in roles.items() if isinstance(role, PartitionLeader)}

    @staticmethod
    def known(image: bytes) -> bytes:
        """Return an encoded image without what this version does not know."""
        found = decode(image)
        assert isinstance(found, ClusterImage)
        return encode_snapshot(found)

    def encoded_image(self) -> bytes:
        """Return the cluster image of a broker that is a member, encoded as in the controller's log."""
        assert self.member is not None
        return encode_snapshot(self.member.image)

    def _on_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, CutShort):
            self.machine.run.mistake(f"broker {self.machine.node_id}: {context.get('message')}: {error!r}", error)
