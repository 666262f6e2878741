"""A job that is restarted whenever it ends, as by systemd or Kubernetes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from lab.child_process import kill_session
from lab.job_process import JobFailedError, log_tail, start_job

END_LIMIT_S = 600.0
"""The time limit of a run that only checks whether anything is left."""


class SupervisedJob:
    """``python ARGUMENTS`` in a separate process session; a context manager.

    Args:
        arguments: of Python.
        log: the output of all its runs.
        environment: of the process.
    """

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._log = log
        self._environment = environment or {}
        self._killed = False
        self.failures = 0
        """How often it ended without being killed."""
        self._start()

    @property
    def pid(self) -> int:
        """The process id of its current run, which leads the session."""
        return self._process.pid

    def keep_up(self) -> bool:
        """Restart it if it has ended; return whether it had."""
        if self._process.poll() is None:
            return False
        if not self._killed:
            self.failures += 1
        kill_session(self._process.pid)  # workers that live on
        self._start()
        return True

    def kill(self) -> int:
        """SIGKILL it and all its descendants; return how many processes, 0 if it had ended before."""
        killed = kill_session(self._process.pid)
        self._killed = self._process.wait() == -signal.SIGKILL
        return killed if self._killed else 0

    def log_tail(self) -> str:
        """Return the end of its log."""
        return log_tail(self._log)

    def _start(self) -> None:
        self._killed = False
        self._process = _start(self._arguments, self._log, self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def run_to_end(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Run the job once more to its end: rows that a start after the last kill writes again are then in the table.

    Raises:
        JobFailedError: if it fails, or takes too long.
    """
    process = _start(arguments, log, environment)
    try:
        code = process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise JobFailedError(f"the last run did not end in {END_LIMIT_S:.0f} s; {log_tail(log)}") from None
    finally:
        kill_session(process.pid)
        process.wait()
    if code:
        raise JobFailedError(f"the last run ended with {code}; {log_tail(log)}")


def _start(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return start_job(arguments, log, {**os.environ, **environment}, log.parent)
