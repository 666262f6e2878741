"""The machine that a broker runs on: files, time, randomness, addresses.

`Server` gets all of it from a `Host`, and the event loop, so that a simulator can replace them
(`lab/sim`).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparkonce.broker_lite.log.storage import DiskStorage, Storage, WriteGate
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.server.listener import bind

if TYPE_CHECKING:
    import asyncio
    import socket

    from sparkonce.broker_lite.cluster.file_coordination import Watch
    from sparkonce.broker_lite.security.settings import ListenerConfig
    from sparkonce.broker_lite.server.listener import Listener
    from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperSession

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
"""Linux: the id of the current boot of the machine."""

SYSTEM_CLOCK = Clock(lambda: time.time_ns() // 1_000_000, lambda: time.monotonic_ns() // 1_000_000)


class Usage(NamedTuple):
    """The resources that this process uses."""

    processor_s: float
    """Since its start."""
    resident_bytes: int


class Heart(Protocol):
    """Sends a controller's signs of life while its event loop is busy; see `Pulse`."""

    def loop_is_seen(self, *, needed: bool) -> None:
        """Note that the event loop is running, and whether signs of life are needed."""

    def stop(self) -> None:
        """Stop."""


class Host(Protocol):
    """A machine, as far as a broker uses it."""

    @property
    def storage(self) -> Storage:
        """Its file system."""

    @property
    def write_gate(self) -> WriteGate:
        """A check that may delay or reject writes to its storage."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    def new_uuid(self) -> uuid.UUID:
        """Return a unique id."""

    def perf_counter_ns(self) -> int:
        """Return a time to measure the duration of requests, in nanoseconds."""

    def usage(self) -> Usage:
        """Return the resources that this process uses."""

    def real_path(self, path: str) -> str:
        """Return the absolute path of a file, without links."""

    def lock_id(self, path: str) -> str:
        """Return an id of a locked file that is unique, also among machines; empty if there is none.

        Only one process can hold the lock on a file, until the machine restarts; a copy is another file.
        """

    def bind(self, config: ListenerConfig) -> tuple[socket.socket, Listener]:
        """Bind a listener's address; see `listener.bind`."""

    def watch(self, directories: Sequence[str], then: Callable[[], None]) -> Watch | None:
        """Call back on the event loop when something in these directories may have changed; see `WatchDirectories`."""

    def pulse(self, beat: Callable[[], None], clock: Clock, interval_ms: int, patience_ms: int) -> Heart:
        """Begin to call `beat` periodically, as `Pulse` does."""

    def zookeeper(self, connect: str, timeout_ms: int, loop: asyncio.AbstractEventLoop) -> ZooKeeperSession:
        """Return a client for a ZooKeeper, `host:port,host:port/chroot`; it is not started yet.

        Raises:
            ModuleNotFoundError: if the client's package is not installed.
        """


class SystemHost:
    """The machine that this process runs on."""

    clock = SYSTEM_CLOCK

    def __init__(self) -> None:
        self.storage = DiskStorage()
        self.write_gate = self.storage.gate
        self.new_uuid = uuid.uuid4
        self.perf_counter_ns = time.perf_counter_ns
        self.real_path = os.path.realpath
        self.bind = bind

    def usage(self) -> Usage:
        """See `Host`."""
        import resource  # on first use: few brokers serve metrics

        used = resource.getrusage(resource.RUSAGE_SELF)
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                resident_bytes = int(file.read().split()[1]) * resource.getpagesize()
        except OSError:  # not on Linux: use the maximum so far, in KiB
            resident_bytes = used.ru_maxrss * 1024
        return Usage(used.ru_utime + used.ru_stime, resident_bytes)

    def lock_id(self, path: str) -> str:
        """See `Host`."""
        try:
            boot = self.storage.read(BOOT_ID).decode().strip()
        except OSError:
            return ""
        found = os.stat(path)
        return f"{boot}/{found.st_dev}/{found.st_ino}"

    def watch(self, directories: Sequence[str], then: Callable[[], None]) -> Watch | None:
        """See `Host`."""
        from sparkonce.broker_lite.server.directory_watch import DirectoryWatch  # only members of clusters have one

        return DirectoryWatch.begin(directories, then)

    def pulse(self, beat: Callable[[], None], clock: Clock, interval_ms: int, patience_ms: int) -> Heart:
        """See `Host`."""
        from sparkonce.broker_lite.server.pulse import Pulse  # only members of clusters have one

        return Pulse(beat, clock.monotonic_ms, interval_ms, patience_ms)

    def zookeeper(self, connect: str, timeout_ms: int, loop: asyncio.AbstractEventLoop) -> ZooKeeperSession:
        """See `Host`."""
        from sparkonce.broker_lite.server.zookeeper_client import ZooKeeperClient  # it is an extra

        return ZooKeeperClient(connect, timeout_ms, loop)
