"""A Spark session in a separate process, which runs queries side by side until it is killed.

On a cluster its executors descend from other processes; the crash folder in their environment identifies them.

`SparkProcess` starts it as ``python -m lab.spark_process CONF_JSON``. A query is a dataclass whose
module has ``start(spark, query)``; a request holds its name, module, class and fields. Events: ``ready`` once, then
``ended`` with the name of each query that has ended, and its error if it has one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import class_archive
from lab.child_process import (
    ChildEndedError,
    ChildProcess,
    event_writer,
    kill_processes,
    processes_with,
    session_members,
)
from sparkonce.crash_points import FOLDER_VARIABLE

if TYPE_CHECKING:
    import psutil
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START_LIMIT_S = 180.0
SESSION_ENDED = "the Spark session ended unexpectedly"
LOOK_EVERY_S = 0.05
"""How late the end of a query may be noticed; each check of each query is a call into the JVM."""
ERROR_CHARACTERS = 2000
_READ_BYTES = 65536
_NAMED_ERROR = re.compile(r"^(?:[\w.]*\.)?\w*(?:Error|Exception|Interrupt)\b")


class SessionError(RuntimeError):
    """Spark did not start, or a query did not finish; the message says why."""


@dataclass(frozen=True, slots=True)
class Login:
    """The user and folder with which a driver starts: what may change when it is started again."""

    folder: Path
    """Its working directory, with its log."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that differ from this process's."""
    python: str = sys.executable
    """The path of the Python interpreter."""


class SparkProcess(ChildProcess):
    """A Spark session in a separate process, with crash plans from ``crash_folder``.

    Raises:
        SessionError: if it does not start; the message holds the end of its log.
    """

    def __init__(self, conf: Mapping[str, str], crash_folder: Path, login: Login) -> None:
        self._crash_folder = str(crash_folder)
        variables = {
            class_archive.VARIABLE: class_archive.options(),
            **os.environ,
            **login.environment,
            FOLDER_VARIABLE: self._crash_folder,
        }
        settings = {**conf, f"spark.executorEnv.{FOLDER_VARIABLE}": self._crash_folder}
        log = login.folder / "spark.log"
        super().__init__("lab.spark_process", settings, log, variables, login.python)
        self._ends: dict[str, str | None] = {}
        if self.first_event(START_LIMIT_S) is None:
            raise SessionError(f"Spark did not start; its log ends with:\n{self.log_tail()}")

    def kill(self) -> int:
        """SIGKILL the session, its executors and all their descendants; return how many processes."""
        killed = self.kill_driver()
        while left := list(self.executor_processes()):
            killed += kill_processes(left)
        return killed

    def kill_driver(self) -> int:
        """SIGKILL the session and its descendants; executors on a cluster notice that it is gone."""
        return super().kill()

    def pause(self) -> None:
        """Stop the session and its descendants (SIGSTOP); returns when all are stopped."""
        while running := [each for each in session_members(self.pid) if not _is_stopped(each)]:
            _signal(running, signal.SIGSTOP)
            time.sleep(LOOK_EVERY_S)  # again for processes forked meanwhile

    def resume(self) -> None:
        """Continue them (SIGCONT)."""
        _signal(session_members(self.pid), signal.SIGCONT)

    def executor_processes(self) -> Iterator[psutil.Process]:
        """Yield the session's processes on this machine outside it: executors, Python workers."""
        for process in processes_with(FOLDER_VARIABLE, self._crash_folder):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(process.pid) != self.pid:
                    yield process

    def start(self, name: str, query: Any) -> None:
        """Start a query; `ended` returns whether it has ended. A name is used once."""
        kind = type(query)
        self.send({"name": name, "module": kind.__module__, "class": kind.__name__, "fields": asdict(query)})

    def run(self, name: str, query: Any) -> str | None:
        """Run a query to its end; return its error if it failed."""
        self.start(name, query)
        while not (ended := self.ended(name))[0]:
            time.sleep(LOOK_EVERY_S)
        return ended[1]

    def ended(self, name: str) -> tuple[bool, str | None]:
        """Whether a query has ended, and its error if it failed."""
        try:
            while name not in self._ends and (event := self.receive(0)):
                self._ends[event["ended"]] = event["error"]
        except ChildEndedError:
            return True, SESSION_ENDED
        return name in self._ends, self._ends.get(name)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _is_stopped(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return True


class _Session:
    """The requests and events of one Spark session, in its process.

    Queries are started from the main thread, the only one in which Spark finds Python data sources; it also checks
    from time to time which of them have ended.
    """

    def __init__(self, spark: SparkSession, tell: Callable[..., None]) -> None:
        self._spark = spark
        self._tell = tell
        self._running: dict[str, StreamingQuery] = {}
        self._unread = b""

    def serve(self) -> None:
        """Answer requests until the input ends."""
        while True:
            readable, _, _ = select.select([0], [], [], LOOK_EVERY_S if self._running else None)
            if readable:
                received = os.read(0, _READ_BYTES)
                if not received:
                    return
                *lines, self._unread = (self._unread + received).split(b"\n")
                for line in lines:
                    self._start(json.loads(line))
            self._tell_ended()

    def _start(self, request: dict[str, Any]) -> None:
        try:
            module = import_module(request["module"])
            query = getattr(module, request["class"])(**request["fields"])
            self._running[request["name"]] = module.start(self._spark, query)
        except Exception as error:  # the parent decides what the error means
            self._tell(ended=request["name"], error=essence(str(error) or type(error).__name__))

    def _tell_ended(self) -> None:
        for name, query in list(self._running.items()):
            if not query.isActive:
                del self._running[name]
                error = query.exception()
                self._tell(ended=name, error=None if error is None else essence(str(error)))


def essence(text: str) -> str:
    """Return the line of a Spark error with the cause: the last one with an exception of Python's or ours."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _NAMED_ERROR.match(line) and "StreamingQueryException" not in line]
    return (named[-1] if named else lines[0] if lines else "no message")[:ERROR_CHARACTERS]


def main() -> None:
    """Start Spark and serve."""
    from sparkonce.connectors.session import spark_session  # loaded only by this process

    tell = event_writer()
    spark = spark_session("sparkonce lab", **json.loads(sys.argv[1]))
    spark.sparkContext.setLogLevel("ERROR")
    tell(ready=spark.version)
    _Session(spark, tell).serve()
    spark.stop()


if __name__ == "__main__":
    main()
