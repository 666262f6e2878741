"""The log's only access to files.

Every disk access of the log goes through `Storage` and `File`, so that a simulator can replace them by a disk that
loses unflushed writes. The contract: `append` and `write` are visible to later reads at once; they survive a power
failure only after a flush. `write` replaces a file as a whole: a reader, and a crash of the process, sees the old
content or the new, never a mix.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from sparkonce.broker_lite.log.file_system import FileSystem
from sparkonce.kafka.protocol.primitives import Buffer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


_OPEN_TRIES = 50
_OPEN_AGAIN_S = 0.1
FLUSHERS: Final = 8
"""Flushes at a time; a file system writes its journal once for all that wait for it."""
_MANY_PATHS = 128
"""So many files at once are flushed with the whole file system, if possible."""
_OPEN_FILE_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_UNLOCKED = struct.pack("h", fcntl.F_UNLCK)
"""The `l_type` by which the kernel reports that the lock is free."""
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""A `struct flock` of a 64-bit Linux; its process must be 0."""


class File(Protocol):
    """One open file, appended to at its end."""

    @property
    def size(self) -> int:
        """How many bytes the file has."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end.

        Raises:
            OSError: if that fails; part of it may have been written.
        """

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def flush(self) -> None:
        """Flush everything written to the disk."""

    def fileno(self) -> int:
        """Return the descriptor, for `sendfile`.

        Raises:
            OSError: if the storage has none; the bytes must then be read.
        """

    def close(self) -> None:
        """Close the file; nothing is flushed."""


class Flush(Protocol):
    """A flush under way."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> None:
        """Wait for its end. Raises OSError if it failed."""


class Lock(Protocol):
    """A lock on a directory, held until `release` or the end of the process."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


class Files(Protocol):
    """Files that are read and written as a whole; see `Storage`."""

    def read(self, path: str) -> bytes:
        """Return a file's content."""

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        """Replace a file's content."""


class Storage(Protocol):
    """A file system, as far as the log needs one. Paths are absolute, with `/` between names."""

    def open(self, path: str) -> File:
        """Open a file to read and append, creating it if it does not exist."""

    def read(self, path: str) -> bytes:
        """Return a file's content. Raises FileNotFoundError if it does not exist."""

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        """Replace a file as a whole, flushed if `durable`; only its owner can read a `private` one."""

    def size(self, path: str) -> int:
        """How many bytes a file has. Raises FileNotFoundError if it does not exist."""

    def modified_ms(self, path: str) -> int:
        """When a file was last written to, in milliseconds since 1970. Raises FileNotFoundError if there is none."""

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set when a file was last written to."""

    def flush_later(self, paths: Sequence[str]) -> Flush:
        """Begin to flush files or directories; those deleted meanwhile are skipped."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def is_directory(self, path: str) -> bool:
        """Whether the directory exists."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if they do not exist."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file of the new name."""

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, or a link to one, if it exists. Raises OSError if it is not empty."""

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, creating it if it does not exist. Raises BlockingIOError if it is held already."""

    def is_locked(self, path: str) -> bool:
        """Whether the file at `path` is locked, by another process or by this one."""

    def close(self) -> None:
        """Wait for the flushes under way."""


class WriteGate:
    """A check before a storage's writes, if `check` is set: it may delay a write, or raise OSError instead."""

    __slots__ = ("check",)

    def __init__(self) -> None:
        self.check: Callable[[str, int], None] | None = None
        """Called with the path and the number of bytes."""


class DiskFile:
    """A `File` on a real file system."""

    __slots__ = ("_descriptor", "_gate", "_path", "_size")

    def __init__(self, path: str, gate: WriteGate) -> None:
        self._path = path
        self._gate = gate
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size(self) -> int:
        """See `File`."""
        return self._size

    def append(self, data: Buffer) -> None:
        """See `File`."""
        if self._gate.check is not None:
            self._gate.check(self._path, len(data))
        written = os.write(self._descriptor, data)
        self._size += written
        while written < len(data):
            more = os.write(self._descriptor, memoryview(data)[written:])
            written += more
            self._size += more

    def pread(self, size: int, position: int) -> bytes:
        """See `File`."""
        return os.pread(self._descriptor, size, position)

    def truncate(self, size: int) -> None:
        """See `File`."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def flush(self) -> None:
        """See `File`."""
        os.fsync(self._descriptor)

    def fileno(self) -> int:
        """See `File`."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed")
        return self._descriptor

    def close(self) -> None:
        """See `File`; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1  # it is free even if this fails, and may be reused
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close
    """A deleted segment's file is closed by its last sender."""


class _NoFile:
    """See `NO_FILE`."""

    size = 0

    def append(self, data: Buffer) -> None:  # noqa: ARG002
        raise AssertionError("nothing is written to a file that is not there")

    def pread(self, size: int, position: int) -> bytes:  # noqa: ARG002
        return b""

    def truncate(self, size: int) -> None:
        """Do nothing: it is empty."""

    def flush(self) -> None:
        """Do nothing: nothing has been written."""

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "the file has not been made yet")

    def close(self) -> None:
        """Do nothing."""


NO_FILE: Final[File] = _NoFile()
"""An empty `File` for readers, in place of one that does not exist yet."""


class DiskLock:
    """A `Lock` that the operating system releases when its holder dies.

    Where open file description locks exist (`F_OFD_SETLK`, Linux) it is one: they also exclude brokers of the same
    process and, unlike flock's, Java's, so a Kafka broker and this one never write to one directory.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if _OPEN_FILE_LOCK is None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                fcntl.fcntl(self._descriptor, _OPEN_FILE_LOCK, _WHOLE_FILE)
        except BlockingIOError:
            self.release()
            raise

    def release(self) -> None:
        """See `Lock`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class DiskStorage:
    """A `Storage` on a real file system; slow flushes run on threads of their own."""

    def __init__(self) -> None:
        self._flusher: ThreadPoolExecutor | None = None
        self._file_systems: dict[int, FileSystem] = {}
        """Those in which a file is locked, by device."""
        self.gate = WriteGate()

    def open(self, path: str) -> File:
        """See `Storage`."""
        return DiskFile(path, self.gate)

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        """See `Storage`."""
        if self.gate.check is not None:
            self.gate.check(path, len(data))
        beside = f"{path}.tmp"
        with open(beside, "wb") as file:
            if private:
                os.fchmod(file.fileno(), 0o600)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
        if durable:
            _flush_path(os.path.dirname(path))

    def size(self, path: str) -> int:
        """See `Storage`."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """See `Storage`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """See `Storage`."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def flush_later(self, paths: Sequence[str]) -> Flush:
        """See `Storage`."""
        if self._flusher is None:
            from concurrent.futures import ThreadPoolExecutor  # slow to import, and not every broker needs it

            self._flusher = ThreadPoolExecutor(FLUSHERS, "log-flusher")
        return self._flusher.submit(self._flush, tuple(paths))

    def _flush(self, paths: tuple[str, ...]) -> None:
        if len(paths) >= _MANY_PATHS and self._flush_file_systems(paths):
            return
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: nothing to flush
                _flush_path(path, _open_patiently)

    def _flush_file_systems(self, paths: tuple[str, ...]) -> bool:
        """Flush the file systems that hold the files; False if each must be, as where links lead elsewhere."""
        devices = set()
        for directory in {os.path.dirname(path) for path in paths}:
            with contextlib.suppress(FileNotFoundError):
                devices.add(os.stat(directory).st_dev)
        return devices <= self._file_systems.keys() and all(self._file_systems[each].flush() for each in devices)

    def list_directory(self, path: str) -> list[str]:
        """See `Storage`."""
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        """See `Storage`."""
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        """See `Storage`."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See `Storage`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """See `Storage`."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_directory(self, path: str) -> None:
        """See `Storage`."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.islink(path):  # a partition that was moved to another disk: the link's target is kept
                os.unlink(path)
            else:
                os.rmdir(path)

    def lock(self, path: str) -> Lock:
        """See `Storage`."""
        directory = os.path.dirname(path)
        device = os.stat(directory).st_dev
        if device not in self._file_systems:
            self._file_systems[device] = FileSystem(directory)
        return DiskLock(path)

    def is_locked(self, path: str) -> bool:
        """See `Storage`: checks without taking the lock, which others would see for a moment."""
        if _OPEN_FILE_LOCK is None:
            try:
                DiskLock(path).release()
            except BlockingIOError:
                return True
            return False
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            return False
        try:
            held = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        finally:
            os.close(descriptor)
        return held[:2] != _UNLOCKED

    def close(self) -> None:
        """See `Storage`."""
        if self._flusher is not None:
            self._flusher.shutdown(wait=True)
            self._flusher = None
        while self._file_systems:
            self._file_systems.popitem()[1].close()


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _open_patiently(path: str) -> int:
    """Open a file, waiting while the process or the machine has no free descriptor.

    A failed flush closes its log for good; a lack of descriptors must not do that.
    """
    for _ in range(_OPEN_TRIES - 1):
        try:
            return _open(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        time.sleep(_OPEN_AGAIN_S)
    return _open(path)


def _flush_path(path: str, open_file: Callable[[str], int] = _open) -> None:
    descriptor = open_file(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
