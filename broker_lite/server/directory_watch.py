"""Changes in directories, reported by Linux (inotify): so brokers of one machine see each other's changes at once.

Created, removed, extended and replaced files are reported, and so is the end of a process that held a lock: its open
files are closed. A disk shared by several machines reports changes of this machine only, and other systems report
nothing, so the watcher must also poll.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

IN_MODIFY: Final = 0x2
IN_CLOSE_WRITE: Final = 0x8
"""A file open for writing, such as a locked one, was closed; not one that was only read."""
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
_CHANGES: Final = IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE
_READ_BYTES: Final = 64 << 10

logger = logging.getLogger(__name__)


class DirectoryWatch:
    """A watch on directories, from `begin` to `close`; on the event loop that runs then."""

    def __init__(self, descriptor: int, then: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._then = then
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._changed)

    @classmethod
    def begin(cls, directories: Sequence[str], then: Callable[[], None]) -> DirectoryWatch | None:
        """Watch directories, and call back after changes; None if not supported."""
        try:
            descriptor = _watch(directories)
        except (AttributeError, ImportError, OSError) as error:
            logger.debug("changes in %s are not reported: %s", ", ".join(directories), error)
            return None
        return cls(descriptor, then)

    def close(self) -> None:
        """Stop watching; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _changed(self) -> None:
        os.read(self._descriptor, _READ_BYTES)  # the kind of change does not matter
        self._then()


def _watch(directories: Sequence[str]) -> int:
    """Return a descriptor, readable after changes. Raises OSError, or AttributeError if this is not Linux."""
    import ctypes  # 3 ms of a start, for members of clusters only

    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise _error(ctypes.get_errno())
    for directory in directories:
        if library.inotify_add_watch(descriptor, os.fsencode(directory), _CHANGES) < 0:
            error = _error(ctypes.get_errno(), directory)
            os.close(descriptor)
            raise error
    return int(descriptor)


def _error(number: int, *path: str) -> OSError:
    return OSError(number, os.strerror(number), *path)
