"""A job in a separate process, with all its descendants in one process session, which prints to a log.

It receives no requests; a process that answers is a `ChildProcess`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG_TAIL_LINES = 25


class JobFailedError(RuntimeError):
    """A job that did not end as it should; the message has the end of its log."""


def start_job(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start ``python ARGUMENTS`` in a folder, by default this process's own; its output is appended to the log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its descendants are found by their session
        )


def log_tail(log: Path) -> str:
    """Return the end of a log, after a line that names it."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return f"the end of {log}:\n" + "\n".join(lines)
