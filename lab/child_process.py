"""A process that answers requests, and can be killed with all its descendants.

The child leads a process session (setsid), whose members include its JVM and Python workers in any process
group: so all can be stopped or killed together. Requests are JSON lines on its standard input; it ends when that
ends. Events are JSON lines on its original standard output (`event_writer`); all other output goes to its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import psutil

STOP_LIMIT_S = 60.0
LOG_TAIL_CHARACTERS = 2000
_POLL_S = 0.05
_READ_BYTES = 65536


class ChildEndedError(RuntimeError):
    """The child has ended and sent no further event."""


class ChildProcess:
    """``python -m module ARGUMENT``, the argument as JSON; it works in the folder of its log. A context manager."""

    def __init__(
        self,
        module: str,
        argument: object,
        log: Path,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [python, "-m", module, json.dumps(argument)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                cwd=log.parent,  # Spark leaves files in its working directory
                start_new_session=True,
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._requests, self._events = self._child.stdin, self._child.stdout
        self._readable = select.poll()
        self._readable.register(self._events)
        self._unread = b""
        self._cpu_s = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU seconds of it and all its descendants, up to its end."""
        if not self._requests.closed:
            self._cpu_s = max(self._cpu_s, sum(_cpu_s(process) for process in session_members(self.pid)))
        return self._cpu_s

    @property
    def pid(self) -> int:
        """The process id, which all processes of its session have as their session id."""
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._child.poll() is None

    def send(self, request: object) -> None:
        """Send a request; if the child has just died, `receive` raises."""
        with contextlib.suppress(OSError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()

    def receive(self, within_s: float | None = None) -> dict[str, Any] | None:
        """Return the next event, or None if there is none in time; by default without a limit.

        Raises:
            ChildEndedError: if the child has ended.
        """
        while b"\n" not in self._unread:
            if self._events.closed:
                raise ChildEndedError
            if not self._readable.poll(None if within_s is None else within_s * 1000):
                return None
            received = os.read(self._events.fileno(), _READ_BYTES)
            if not received:
                raise ChildEndedError
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def first_event(self, within_s: float) -> dict[str, Any] | None:
        """Return its first event, which reports that it has started; without one in time, kill it and return None."""
        with contextlib.suppress(ChildEndedError):
            if (event := self.receive(within_s)) is not None:
                return event
        self.kill()
        return None

    def kill(self) -> int:
        """SIGKILL it and all its descendants, and return how many processes; its events can still be received."""
        _ = self.cpu_s
        killed = kill_session(self.pid)
        self._child.wait()
        if not self._events.closed:
            self._unread += self._events.read()
            self._events.close()
        with contextlib.suppress(OSError):  # requests that were not sent yet
            self._requests.close()
        return killed

    def close(self) -> None:
        """Wait for its end, kill it if it does not end, and its descendants; a second call does nothing."""
        if self._requests.closed:
            return
        _ = self.cpu_s
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._requests.close()
            self._child.wait(STOP_LIMIT_S)
        self.kill()

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kill_session(leader: int) -> int:
    """SIGKILL every process of the session of ``leader``, wait until none runs, return how many."""
    return kill_processes(session_members(leader))


def kill_processes(processes: Iterable[psutil.Process]) -> int:
    """SIGKILL processes, wait until none runs, return how many."""
    victims = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
            victims.append(process)
    while any(_runs(process) for process in victims):
        time.sleep(_POLL_S)
    return len(victims)


def session_members(leader: int) -> Iterator[psutil.Process]:
    """Yield every process of the session of ``leader``, including itself, except those that have ended."""
    import psutil  # in an extra; the child works without

    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader and _runs(process):
                yield process


def processes_with(variable: str, value: str) -> Iterator[psutil.Process]:
    """Yield every process with this variable in the environment that it was started with, except what has ended."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(variable) == value and _runs(process):
                yield process


def _cpu_s(process: psutil.Process) -> float:
    import psutil

    try:
        return float(sum(process.cpu_times()[:4]))  # the last two are of children that were waited for
    except psutil.NoSuchProcess:
        return 0.0


def _runs(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def event_writer() -> Callable[..., None]:
    """Return a function that sends an event to the parent; all other output then goes to the log."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**event: object) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    return tell
