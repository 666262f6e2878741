"""A disk in memory that forgets what was not flushed when the power goes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from broker_lite.protocol.primitives import Buffer


class PowerCutError(BaseException):
    """The power has gone in the middle; nothing reaches the disk until `lose_power` has told what was lost."""


class _Content:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)


class MemoryFile:
    def __init__(self, storage: MemoryStorage, content: _Content) -> None:
        self._storage = storage
        self._content = content
        self.open = True

    @property
    def size(self) -> int:
        return len(self._content.data)

    def append(self, data: Buffer) -> None:
        assert self.open
        self._storage.operate()
        room = self._storage.room
        if room is not None:
            self._content.data += data[:room]
            self._storage.room = max(room - len(data), 0)
            if len(data) > room:
                raise OSError(28, "No space left on device")
        else:
            self._content.data += data

    def pread(self, size: int, position: int) -> bytes:
        assert self.open
        return bytes(self._content.data[position : position + size])

    def truncate(self, size: int) -> None:
        self._storage.operate()
        del self._content.data[size:]

    def flush(self) -> None:
        self._storage.operate()
        self._storage.check_flush()
        self._content.durable = bytes(self._content.data)

    def fileno(self) -> int:
        raise OSError("no descriptor: the file is in memory")

    def close(self) -> None:
        self.open = False


class _Flush:
    def __init__(self, storage: MemoryStorage, paths: Sequence[str]) -> None:
        self._storage = storage
        self._paths = paths
        self._done = False
        self._error: OSError | None = None

    def done(self) -> bool:
        return self._done

    def result(self) -> None:
        if not self._done:
            self._storage.operate()
            self._done = True
            try:
                self._storage.check_flush()
                for path in self._paths:
                    content = self._storage.files.get(path)
                    if content is not None:
                        content.durable = bytes(content.data)
            except OSError as error:
                self._error = error
        if self._error is not None:
            raise self._error


class _Lock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryStorage:
    """Directory entries are durable at once; contents only when flushed. `room` is what is left on the disk."""

    def __init__(self) -> None:
        self.files: dict[str, _Content] = {}
        self.directories: set[str] = set()
        self.locks: set[str] = set()
        self.pending: list[_Flush] = []
        self.room: int | None = None
        self.modified: dict[str, int] = {}
        self.now_ms = 0
        self.write_error: OSError | None = None
        """What writing a file as a whole fails with."""
        self.flush_errors: list[OSError] = []
        """What the next flushes fail with; as on a real disk, those after them succeed."""
        self.operations_left: int | None = None
        """How many operations that change something are still done before the power goes."""

    def operate(self) -> None:
        if self.operations_left is not None:
            if self.operations_left <= 0:
                raise PowerCutError
            self.operations_left -= 1

    def check_flush(self) -> None:
        if self.flush_errors:
            raise self.flush_errors.pop(0)

    def lose_power(self, rng: random.Random) -> None:
        """Cut every file's unflushed bytes somewhere; what was rewritten as a whole may be the old or the new."""
        self.operations_left = None
        self.locks.clear()
        self.pending.clear()
        for content in self.files.values():
            durable, now = content.durable, bytes(content.data)
            kept = now[: rng.randint(len(durable), len(now))] if now.startswith(durable) else rng.choice([durable, now])
            content.data = bytearray(kept)
            content.durable = kept

    def open(self, path: str) -> MemoryFile:
        return MemoryFile(self, self.files.setdefault(path, _Content()))

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return bytes(self.files[path].data)

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        self.operate()
        if self.write_error is not None:
            raise self.write_error
        content = _Content()
        if path in self.files:
            content.durable = self.files[path].durable
        content.data = bytearray(data)
        if durable:
            content.durable = bytes(data)
        self.files[path] = content

    def size(self, path: str) -> int:
        return len(self.read(path))

    def modified_ms(self, path: str) -> int:
        self.read(path)
        return self.modified.get(path, self.now_ms)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self.modified[path] = time_ms

    def flush_later(self, paths: Sequence[str]) -> _Flush:
        flush = _Flush(self, tuple(paths))
        self.pending.append(flush)
        return flush

    def list_directory(self, path: str) -> list[str]:
        prefix = f"{path}/"
        return sorted(
            {name[len(prefix) :].split("/")[0] for name in (*self.files, *self.directories) if name.startswith(prefix)}
        )

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def make_directory(self, path: str) -> None:
        self.directories.add(path)

    def rename(self, source: str, target: str) -> None:
        self.operate()
        if source in self.modified:
            self.modified[target] = self.modified.pop(source)
        for table in (self.files,):
            for name in [name for name in table if name == source or name.startswith(f"{source}/")]:
                table[target + name[len(source) :]] = table.pop(name)
        if source in self.directories:
            self.directories.discard(source)
            self.directories.add(target)

    def remove(self, path: str) -> None:
        if path in self.files:
            self.operate()
            del self.files[path]

    def remove_directory(self, path: str) -> None:
        for name in [name for name in self.files if name.startswith(f"{path}/")]:
            del self.files[name]
        self.directories.discard(path)

    def lock(self, path: str) -> _Lock:
        if path in self.locks:
            raise BlockingIOError(path)
        self.locks.add(path)
        return _Lock(self.locks, path)

    def close(self) -> None:
        for flush in self.pending:
            with contextlib.suppress(OSError):  # whoever began it asks
                flush.result()
        self.pending.clear()
