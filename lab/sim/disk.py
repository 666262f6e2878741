"""A disk in memory, for the log's `Storage`: it forgets what was not flushed, tears writes, fills up, cuts calls short.

Theory of operation: a file's bytes are in the page cache, and a part of them from the front is on the disk for sure.
When a process dies the page cache stays. When the power goes, every file ends somewhere between what is on the disk and
what was written, and the last bytes of that may be zeros. A file that was replaced as a whole without a flush is the
old one or the new. A cut may be undone, with what lay behind it, until anything is flushed: a journaling file system
writes its changes in order, and a flush of one file brings the earlier ones of others with it. Names are durable at
once.

`fuse` is how a process dies in the middle of a call: after so many changes the next one raises `CutShort`, and so do
all others until it is dead.

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
        """How much a disk that lies has said to be durable."""
        self.is_damaged = False
        """Whether some of that was lost."""
        self.old: bytes | None = None
        """What may be there after a loss of power in place of `data`."""


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
    """Done when the disk has got round to it, or on the first wait for it."""

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
        """Whether it says of each flush that it is done, and does nothing."""
        self.has_lost = False
        """Whether it has ever lost what it said was flushed; a replacement has not."""
        self.room: int | None = None
        """How many bytes it still takes; None for any number."""
        self.broken = False
        """Whether it fails for good: nothing can be changed any more."""
        self.fuse: int | None = None
        """How many changes are still made before the process dies; None for any number."""
        self.blown: Callable[[], bool] = lambda: True
        """Asked when the fuse has burnt down: whether the process may die now."""
        self.now_ms = 0
        """When files are written to, as `modified_ms` tells it."""
        self.write_error: OSError | None = None
        """What writing a file as a whole fails with."""
        self.flush_errors: list[OSError] = []
        """What the next flushes fail with; as on a real disk, those after them succeed."""
        self.pending: list[_Flush] = []
        """Flushes under way."""
        self._modified: dict[str, int] = {}

    def change(self) -> None:
        """Count a change.

        Raises:
            CutShort: in place of the change, if the process dies here.
            OSError: in place of the change, if the disk is broken.
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
        """Let a flush fail if it is to.

        Raises:
            OSError: the next of `flush_errors`.
        """
        if self.flush_errors:
            raise self.flush_errors.pop(0)

    def make_durable(self, content: _Content) -> None:
        """Bring a file onto the disk, and all cuts that were made before."""
        if self.lies:
            content.promised_size = len(content.data)
            return
        content.durable_size, content.old = len(content.data), None
        if self.cut:
            for each in self.cut:
                each.old = None
            self.cut.clear()

    def settle(self) -> None:
        """End the flushes that are under way."""
        flushes, self.pending = self.pending, []
        for flush in flushes:
            flush.result()

    def process_died(self) -> None:
        """Release what the process held; the page cache stays, and reaches the disk in its own time."""
        self.locks.clear()
        self.pending.clear()
        self.fuse = None

    def replace(self) -> None:
        """Be another disk, on which there is nothing."""
        self.files.clear()
        self.directories.clear()
        self.cut.clear()
        self._modified.clear()
        self.has_lost = False

    def lose_power(self, rng: random.Random, torn: bool = False) -> int:
        """Forget what may be forgotten; `torn` lets the ends of files be zeros. Returns how many bytes are lost."""
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
        """See `Storage`; a time that was never set is now."""
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
        """See `Storage`; flushes are checked by what began them."""
        for flush in self.pending:
            with suppress(OSError):
                flush.result()
        self.pending.clear()


class SharedDisk(SimulatedDisk):
    """A disk that all machines share; it knows whether it was changed, and reports it."""

    changed = False

    def __init__(self) -> None:
        super().__init__()
        self.watches: dict[Callable[[], None], None] = {}
        """Called while something changes."""

    def change(self) -> None:
        """See `SimulatedDisk`."""
        super().change()
        self.changed = True
        self.report()

    def report(self) -> None:
        """Notify those who watch of a change."""
        for changed in self.watches:
            changed()
