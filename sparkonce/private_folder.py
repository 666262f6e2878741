"""Folders of this user alone: among the user's caches, or below the machine's folder for temporary files."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def private_folder(name: str) -> Path | None:
    """Return the folder ``NAME-<user id>``, created if missing; None if there is none that is this user's alone."""
    try:
        return _made(Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}")
    except OSError:
        return None


def cache_folder(name: str) -> Path | None:
    """Return ``sparkonce/NAME`` below ``XDG_CACHE_HOME`` or ``~/.cache``, as `private_folder`; None without a home."""
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        # A relative one would be in the current directory, which may be anybody's.
        if not caches.is_absolute() or _made(caches / "sparkonce", 0o002) is None:
            return None
        return _made(caches / "sparkonce" / name)
    except (OSError, RuntimeError):  # the latter if the user is in no list of users
        return None


def _made(folder: Path, forbidden: int = 0o077) -> Path | None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & forbidden
    return folder if is_ours else None
