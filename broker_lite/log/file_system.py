"""A file system that is flushed as a whole (Linux's syncfs), for brokers that stop with thousands of changed files.

It is used only where it is as good as an fsync of each file: where the kernel reports every error, on file systems that
then have their journal on the disk. An error may be any program's, and is reported only once. So after one nothing is
flushed in this way any more: an fsync of each file says which of them are damaged.
"""

from __future__ import annotations

import os
import re
import threading

_REPORTS_ALL_ERRORS = (5, 17)
"""The Linux since which syncfs reports failed writes (5.8) and a failed journal."""
_KINDS = frozenset({0xEF53, 0x58465342, 0x9123683E})
"""ext4, XFS and Btrfs, as statfs(2) numbers them; others, such as FUSE, may only send the data to somebody else."""


class FileSystem:
    """The file system of a directory, opened before anything is written: it reports the errors since then."""

    __slots__ = ("_descriptor", "_is_trusted", "_lock")

    def __init__(self, directory: str) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        self._is_trusted = True
        self._lock = threading.Lock()

    def flush(self) -> bool:
        """Flush all of it; False if that has failed, now or earlier, or each file has to be flushed here."""
        with self._lock:  # two threads at a time would not both see an error
            self._is_trusted = self._is_trusted and _flush(self._descriptor)
            return self._is_trusted

    def close(self) -> None:
        """Close it; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


def _flush(descriptor: int) -> bool:
    system = os.uname()
    release = re.match(r"(\d+)\.(\d+)", system.release)
    if system.sysname != "Linux" or release is None or tuple(map(int, release.groups())) < _REPORTS_ALL_ERRORS:
        return False
    import ctypes  # slow to import, and few brokers need it

    library = ctypes.CDLL(None)
    found = (ctypes.c_long * 32)()  # a `struct statfs`, which begins with the kind
    if library.fstatfs(descriptor, found) != 0 or found[0] not in _KINDS:
        return False
    return bool(library.syncfs(descriptor) == 0)
