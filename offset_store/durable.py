"""Flushes files and folders of local disks, so that they outlive a loss of power."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NOT_FOR_FOLDERS = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What some network and user-space file systems answer: they have nothing to flush there."""


def flush_file(path: str | Path) -> None:
    """Flush a file that is complete. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: str | Path) -> None:
    """Flush the names in a folder, where the file system can. Raises OSError."""
    try:
        flush_file(folder)
    except PermissionError:  # a folder that may be written to and not read
        return
    except OSError as error:
        if error.errno not in _NOT_FOR_FOLDERS:
            raise
