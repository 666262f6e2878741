"""Folders of this user below the machine's folder for temporary files."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def private_folder(name: str) -> Path | None:
    """Return the folder ``NAME-<user id>``, created if missing; None if there is none that is this user's alone."""
    try:
        folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_ours else None
