"""A job that is started again whenever it ends, as systemd or Kubernetes does it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkonce.jobs.shared.child_process import kill_session

LOG_TAIL_LINES = 25


class JobFailedError(RuntimeError):
    """The job failed again and again; the message holds the end of its log."""


class SupervisedJob:
    """``python ARGUMENTS`` in a process session of its own; a context manager.

    Args:
        arguments: what Python runs.
        log: what all its runs print.
        environment: of the process.
    """

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = [sys.executable, *arguments]
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._killed = False
        self.failures = 0
        """How often it ended without being killed."""
        self._start()

    def keep_up(self) -> bool:
        """Start it again if it has ended; return whether it had."""
        if self._process.poll() is None:
            return False
        if not self._killed:
            self.failures += 1
        kill_session(self._process.pid)  # workers that live on
        self._start()
        return True

    def kill(self) -> int:
        """SIGKILL it and everything that it started; return how many processes that were."""
        self._killed = True
        killed = kill_session(self._process.pid)
        self._process.wait()
        return killed

    def log_tail(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _start(self) -> None:
        self._killed = False
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> SupervisedJob:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()
