"""The folder ``_delta_log`` of one table, as files: listed, read, put if absent.

Everything that this product knows of a table it reads through a `LogStorage`, and every commit of it is one
`LogStorage.put_if_absent`. Names are relative to the folder. The error of a store that cannot be reached, or does not
answer, is an OSError: of a write, it leaves open whether the file is there.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from sparkonce.offset_store.durable import flush_folder

LOG_FOLDER = "_delta_log"
TEMPORARY = ".sparkonce-"
"""What the names of files begin with that are not finished: readers of a log skip names that begin with a dot."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

Tag = tuple[object, ...]
"""What changes if a file is replaced: inode, size and modification time, or the ETag."""


class LogStorage(Protocol):
    """One log's folder.

    A catalog that makes a table's commits (the feature ``catalogManaged``, which is refused today) would be one more of
    these: its `put_if_absent` writes ``_staged_commits/<version>.<uuid>.json`` and asks the catalog to ratify it, and
    `names`, `read` and `tag` know ratified commits under the names that they will have once they are published.
    """

    @property
    def is_local(self) -> bool:
        """Whether reading a file takes no round trip."""

    def prepare(self) -> None:
        """Make the folder and those above it, where files need some. Raises OSError."""

    def names(self, after: str = "") -> list[str]:
        """Return the names of the files in the folder, not below it, that sort after ``after``, in order; [] if none.

        Raises:
            OSError: if it cannot be listed.
        """

    def modified(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the files in the folder, or in one below it, in the order of their names, with when each was modified.

        The times, in milliseconds, are found as they are asked for. Raises OSError.
        """

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises FileNotFoundError, or another OSError if it cannot be read."""

    def open(self, name: str) -> BinaryIO:
        """Open a file, which may be large, to read parts of it. Raises as `read`."""

    def tag(self, name: str) -> Tag | None:
        """Return the file's tag; None if it is not there. Raises OSError."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file unless one of that name is there; return whether it was written.

        The file is never seen in part, and is there after a loss of power once this has returned True.

        Raises:
            OSError: if it is unknown whether the file was written.
        """

    def put(self, name: str, data: bytes) -> None:
        """Write a file, in place of one of that name. Raises OSError."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there. Raises OSError."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A log on a local file system, or on one that is mounted."""

    folder: Path

    @property
    def is_local(self) -> bool:
        """See `LogStorage`."""
        return True

    def prepare(self) -> None:
        """See `LogStorage.prepare`: it is there after a loss of power, too."""
        made = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        for each in made:
            with suppress(PermissionError):  # a folder above may be writable, and not readable
                flush_folder(each.parent)

    def names(self, after: str = "") -> list[str]:
        """See `LogStorage.names`."""
        try:
            return sorted(name for name in os.listdir(self.folder) if name > after)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def modified(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """See `LogStorage.modified`."""
        try:
            names = sorted(os.listdir(self.folder / folder))
        except FileNotFoundError:
            return
        for name in names:
            with suppress(FileNotFoundError):
                yield name, os.stat(self.folder / folder / name).st_mtime_ns // 1_000_000

    def read(self, name: str) -> bytes:
        """See `LogStorage.read`."""
        return (self.folder / name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        """See `LogStorage.open`."""
        return (self.folder / name).open("rb")

    def tag(self, name: str) -> Tag | None:
        """See `LogStorage.tag`."""
        try:
            found = os.stat(f"{self.folder}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `LogStorage.put_if_absent`: a link to a file that is complete and flushed appears at once, or not.

        Raises:
            OSError: also if the file system has no links, with what to do.
        """
        temporary = self._temporary(data)
        try:
            os.link(temporary, self.folder / name)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise OSError(
                error.errno,
                f"the file system of {self.folder} has no hard links, so nothing can be put there only if it is "
                f"absent, and two writers could replace each other's commits ({error}). Keep the table on a file "
                "system that has them (ext4, XFS, NFS), or in an object store",
            ) from error
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        with suppress(OSError):  # Hadoop's checksum of a former file of that name, by which Spark would refuse this one
            os.unlink(self.folder / f".{name}.crc")
        flush_folder(self.folder)
        return True

    def put(self, name: str, data: bytes) -> None:
        """See `LogStorage.put`."""
        temporary = self._temporary(data)
        os.replace(temporary, self.folder / name)

    def delete(self, name: str) -> None:
        """See `LogStorage.delete`."""
        with suppress(FileNotFoundError):
            os.unlink(self.folder / name)

    def _temporary(self, data: bytes) -> Path:
        path = self.folder / f"{TEMPORARY}{uuid.uuid4()}.tmp"
        try:
            with path.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        return path
