"""A disk in memory for the log's `Storage`: it loses unflushed data, tears writes, fills up, interrupts calls.

Theory of operation: a file's bytes are in the page cache, and a prefix of them is durable. When a process dies, the
page cache stays. When the power fails, each file ends somewhere between what is durable and what was written, and the
last bytes of that may be zeros. A file that was replaced as a whole without a flush is the old one or the new one. A
truncation may be undone, with what was behind it, until anything is flushed: a journaling file system writes its
changes in order, so a flush of one file also writes earlier truncations of others. Names are durable at
once.

`fuse` lets a process die in the middle of a call: after that many changes the next one raises `CutShort`, as do all
others until it is dead.

Simulations and the tests of the log share this disk.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from sparkonce.kafka.protocol.primitives import Buffer

_NO_SPACE = "No space left on device"


class CutShort(BaseException):
    """The process has died in the middle of a change."""


class _Content:
    __slots__ = ("data", "durable_size", "is_damaged", "old", "promised_size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable_size = 0
        self.promised_size = 0
        """How many bytes a lying disk has reported as durable."""
        self.is_damaged = False
        """Whether some of that was lost."""
        self.old: bytes | None = None
        """The contents that may replace `data` after a loss of power."""


class SimulatedFile:
    """A `File` of a `SimulatedDisk`."""

    __slots__ = ("_content", "_disk")

    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    @property
    def size(self) -> int:
        """See `File`."""
        return len(self._content.data)

    def append(self, data: Buffer) -> None:
        """See `File`."""
        disk = self._disk
        disk.change()
        if disk.room is not None and len(data) > disk.room:
            self._content.data += data[: disk.room]
            disk.room = 0
            raise OSError(errno.ENOSPC, _NO_SPACE)
        self._content.data += data
        if disk.room is not None:
            disk.room -= len(data)

    def pread(self, size: int, position: int) -> bytes:
        """See `File`."""
        return bytes(self._content.data[position : position + size])

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._disk.change()
        content = self._content
        if size < content.durable_size:
            if content.old is None:
                content.old = bytes(content.data[: content.durable_size])
            content.durable_size = size
            self._disk.cut.append(content)
        content.promised_size = min(content.promised_size, size)
        del content.data[size:]

    def flush(self) -> None:
        """See `File`."""
        self._disk.change()
        self._disk.check_flush()
        self._disk.make_durable(self._content)

    def fileno(self) -> int:
        """See `File`."""
        raise OSError(errno.EBADF, "a simulated file has no descriptor")

    def close(self) -> None:
        """See `File`."""


class _Flush:
    """A flush that completes when the disk gets to it, or on the first wait for it."""

    __slots__ = ("_disk", "_done", "_error", "_paths")

    def __init__(self, disk: SimulatedDisk, paths: Sequence[str]) -> None:
        self._disk = disk
        self._paths = paths
        self._done = False
        self._error: OSError | None = None

    def done(self) -> bool:
        return self._done

    def result(self) -> None:
        if not self._done:
            self._disk.change()
            self._done = True
            try:
                self._disk.check_flush()
            except OSError as error:
                self._error = error
            else:
                self._flush()
        if self._error is not None:
            raise self._error

    def _flush(self) -> None:
        for path in self._paths:
            content = self._disk.files.get(path)
            if content is not None:
                self._disk.make_durable(content)


class DiskLock:
    """A `Lock` of a `SimulatedDisk`."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """See `Lock`."""
        self._disk.locks.discard(self._path)


class SimulatedDisk:
    """A `Storage` in memory; one for each broker."""

    def __init__(self) -> None:
        self.files: dict[str, _Content] = {}
        self.directories: set[str] = set()
        self.locks: set[str] = set()
        self.cut: list[_Content] = []
        self.lies = False
        """Whether it reports each flush as done without flushing."""
        self.has_lost = False
        """Whether it has ever lost what it reported as flushed; a replaced disk has not."""
        self.room: int | None = None
        """How many bytes still fit; None for any number."""
        self.broken = False
        """Whether it has failed for good: nothing can be changed."""
        self.fuse: int | None = None
        """How many changes are left before the process dies; None for any number."""
        self.blown: Callable[[], bool] = lambda: True
        """Called when the fuse has burnt down: whether the process may die now."""
        self.now_ms = 0
        """The clock for times of modification, see `modified_ms`."""
        self.write_error: OSError | None = None
        """The error of writing a file as a whole, if it fails."""
        self.flush_errors: list[OSError] = []
        """The errors of the next flushes; as on a real disk, later ones succeed."""
        self.pending: list[_Flush] = []
        """Flushes under way."""
        self._modified: dict[str, int] = {}

    def change(self) -> None:
        """Count a change.

        Raises:
            CutShort: instead of the change, if the process dies here.
            OSError: instead of the change, if the disk is broken.
        """
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        if self.fuse is None:
            return
        if self.fuse > 0:
            self.fuse -= 1
        elif self.blown():
            raise CutShort
        else:
            self.fuse = None

    def check_flush(self) -> None:
        """Raise the next of `flush_errors`, if there is one.

        Raises:
            OSError: that error.
        """
        if self.flush_errors:
            raise self.flush_errors.pop(0)

    def make_durable(self, content: _Content) -> None:
        """Make a file durable, and all earlier truncations."""
        if self.lies:
            content.promised_size = len(content.data)
            return
        content.durable_size, content.old = len(content.data), None
        if self.cut:
            for each in self.cut:
                each.old = None
            self.cut.clear()

    def settle(self) -> None:
        """Complete the flushes under way."""
        flushes, self.pending = self.pending, []
        for flush in flushes:
            flush.result()

    def process_died(self) -> None:
        """Release the process's locks and the fuse; the page cache stays, and is written later."""
        self.locks.clear()
        self.pending.clear()
        self.fuse = None

    def replace(self) -> None:
        """Become an empty disk."""
        self.files.clear()
        self.directories.clear()
        self.cut.clear()
        self._modified.clear()
        self.has_lost = False

    def lose_power(self, rng: random.Random, torn: bool = False) -> int:
        """Lose unflushed data; with `torn`, files may end in zeros. Return how many bytes are lost."""
        self.process_died()
        lost = 0
        for content in self.files.values():
            promised, before = content.data[: content.promised_size], len(content.data)
            if content.old is not None and rng.random() < 0.5:
                content.data = bytearray(content.old)
                lost += before
            elif before > content.durable_size:
                kept = rng.randint(content.durable_size, before)
                lost += before - kept
                del content.data[kept:]
                if torn and kept > content.durable_size:
                    zeros = rng.randint(0, min(kept - content.durable_size, 80))
                    content.data[kept - zeros :] = bytes(zeros)
            if content.data[: content.promised_size] != promised:
                content.is_damaged = self.has_lost = True
            content.promised_size = 0
            content.durable_size, content.old = len(content.data), None
        self.cut.clear()
        return lost

    def open(self, path: str) -> SimulatedFile:
        """See `Storage`."""
        content = self.files.get(path)
        if content is None:
            self.change()
            content = self.files[path] = _Content()
        return SimulatedFile(self, content)

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        content = self.files.get(path)
        if content is None:
            raise FileNotFoundError(path)
        return bytes(content.data)

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        """See `Storage`."""
        del private
        self.change()
        if self.write_error is not None:
            raise self.write_error
        if self.room is not None:
            if len(data) > self.room:
                raise OSError(errno.ENOSPC, _NO_SPACE)
            self.room -= len(data)
        before = self.files.get(path)
        content = self.files[path] = _Content()
        content.data += data
        if durable:
            self.make_durable(content)
        if (self.lies or not durable) and before is not None:
            content.old = before.old if before.old is not None else bytes(before.data[: before.durable_size])

    def size(self, path: str) -> int:
        """See `Storage`."""
        content = self.files.get(path)
        if content is None:
            raise FileNotFoundError(path)
        return len(content.data)

    def modified_ms(self, path: str) -> int:
        """See `Storage`; now, if the time was never set."""
        self.size(path)
        return self._modified.get(path, self.now_ms)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """See `Storage`."""
        self._modified[path] = time_ms

    def flush_later(self, paths: Sequence[str]) -> _Flush:
        """See `Storage`."""
        flush = _Flush(self, tuple(paths))
        self.pending.append(flush)
        return flush

    def list_directory(self, path: str) -> list[str]:
        """See `Storage`."""
        prefix = f"{path}/"
        length = len(prefix)
        names = (*self.files, *self.directories)
        return sorted({name[length:].split("/")[0] for name in names if name.startswith(prefix)})

    def is_directory(self, path: str) -> bool:
        """See `Storage`."""
        return path in self.directories

    def make_directory(self, path: str) -> None:
        """See `Storage`."""
        self.directories.add(path)

    def rename(self, source: str, target: str) -> None:
        """See `Storage`."""
        self.change()
        if source in self.directories:
            self.directories.discard(source)
            self.directories.add(target)
            for name in [name for name in self.files if name.startswith(f"{source}/")]:
                self._rename_file(name, target + name[len(source) :])
        elif source in self.files:
            self._rename_file(source, target)
        else:
            raise FileNotFoundError(source)

    def _rename_file(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)
        if source in self._modified:
            self._modified[target] = self._modified.pop(source)

    def remove(self, path: str) -> None:
        """See `Storage`."""
        if path in self.files:
            self.change()
            del self.files[path]

    def remove_directory(self, path: str) -> None:
        """See `Storage`."""
        if any(name.startswith(f"{path}/") for name in (*self.files, *self.directories)):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self.directories.discard(path)

    def lock(self, path: str) -> DiskLock:
        """See `Storage`."""
        if path in self.locks:
            raise BlockingIOError(path)
        self.locks.add(path)
        return DiskLock(self, path)

    def is_locked(self, path: str) -> bool:
        """See `Storage`."""
        return path in self.locks

    def close(self) -> None:
        """See `Storage`; whoever began a flush checks it."""
        for flush in self.pending:
            with suppress(OSError):
                flush.result()
        self.pending.clear()


class SharedDisk(SimulatedDisk):
    """A disk that all machines share; it reports changes."""

    changed = False

    def __init__(self) -> None:
        super().__init__()
        self.watches: dict[Callable[[], None], None] = {}
        """Called during a change."""

    def change(self) -> None:
        """See `SimulatedDisk`."""
        super().change()
        self.changed = True
        self.report()

    def report(self) -> None:
        """Notify the watchers of a change."""
        for changed in self.watches:
            changed()
