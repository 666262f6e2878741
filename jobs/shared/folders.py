"""The folder that a command works in: one that its user names and keeps, or one that is removed at the end.

And the files that it writes its results to: what can be known of them is asked for before the work begins; and the
folder of the jobs' configurations.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONF = Path(__file__).parents[1] / "conf"
"""The folder `conf` at the top of a checkout, which is linked here and installed here."""


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


def result_file(text: str) -> Path:
    """Read an option that names a file to write at the end, and see now whether that can be.

    Raises:
        argparse.ArgumentTypeError: if its folder is missing, it is a folder itself, or it may not be written.
    """
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist: make it first, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} may not be written: name another place")
    return path


@contextmanager
def working_folder(kept: Path | None, prefix: str) -> Iterator[Path]:
    """Yield the absolute path of ``kept``, made if missing, or of a temporary folder whose name has ``prefix``."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)
