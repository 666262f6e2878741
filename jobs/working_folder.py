"""The folder that a command works in: one that its user names and keeps, or one that is removed at the end."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def empty_folder(text: str) -> Path:
    """Read an option that names a folder to keep: one that is empty, or does not exist yet.

    Raises:
        argparse.ArgumentTypeError: if something is in it, or it is a file: what is there is not ours to mix with.
    """
    folder = Path(text)
    if folder.exists() and not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder: name another")
    if folder.is_dir() and any(folder.iterdir()):
        raise argparse.ArgumentTypeError(f"{text} is not empty: name another")
    return folder


@contextmanager
def working_folder(kept: Path | None, prefix: str) -> Iterator[Path]:
    """Give the absolute path of ``kept``, made if it is missing, or of a temporary folder whose name has ``prefix``."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)
