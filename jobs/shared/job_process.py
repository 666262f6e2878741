"""A job that runs as a process of its own, with all that it starts in one process session, and prints to a log.

It is not asked anything while it runs; a process that answers is a `ChildProcess`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG_TAIL_LINES = 25


class JobFailedError(RuntimeError):
    """A job that ended in another way than it should have; the message holds the end of its log."""


def start_job(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start ``python ARGUMENTS`` in a folder, by default this process's own; what it prints is added to the log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # everything it starts can be found by its session
        )


def log_tail(log: Path) -> str:
    """Return the end of a log, after a line that names it."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return f"the end of {log}:\n" + "\n".join(lines)
