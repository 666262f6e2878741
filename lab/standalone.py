"""Spark's standalone cluster manager on one machine: a Master, and two Workers that look like two machines.

They are Spark's processes, from PySpark's jars. Each Worker has its own loopback address (Spark starts no
speculative attempt on a machine that runs the task already), working directory, home, temporary directory and
user name, which its executors inherit: they share with a driver only paths that are equal for all, as
a cluster shares the table's store.

Every process here leads a process session; a Worker's executors and their Python workers are in the Worker's, so one
machine can be killed, or stopped and continued, as a whole. The Master stores its state in files
(``spark.deploy.recoveryMode``), so that it can be started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import pyspark

from lab import class_archive
from lab.child_process import kill_session, session_members
from sparkonce.crash_points import FOLDER_VARIABLE

LIMIT_S = 120.0
"""The time limit for a process to be ready, or for the Master to report a state."""
MASTER_ANSWERS_WITHIN_S = 10.0
POLL_S = 0.05
WORKER_TIMEOUT_S = 6
"""`spark.worker.timeout`: after how long without a heartbeat the Master counts a Worker as lost; by default 60."""
MASTER_ADDRESS = "127.0.0.1"
WORKER_ADDRESSES = ("127.0.0.1", "127.0.0.2")
CORES = 16
"""Per Worker. CPU time is shared; the number limits how many tasks run or wait at a time."""
MEMORY = "4g"
DRIVER_HOST = "driver.internal"
"""The driver's name, which has another address for executors than for all others (`hosts_file`)."""
DRIVER_ADDRESS, PROXY_ADDRESS = "127.0.0.3", "127.0.0.4"
"""The addresses where a driver listens, and where the proxy between it and its executors does, on the same ports."""
FoundT = TypeVar("FoundT")
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LOG_TAIL = 3000
_LOGGING = """rootLogger.level=info
rootLogger.appenderRef.stderr.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n
"""
"""Processes in the foreground log to standard error; at INFO, with the line that they are ready."""


class StandaloneError(RuntimeError):
    """The cluster did not start, or did not reach a state in time; the message says which."""


@dataclass(slots=True)
class Daemon:
    """A Master or Worker, which can be killed, stopped and started again with the same arguments."""

    name: str
    command: Sequence[str]
    ready: str
    """The line of its log that reports readiness, as a regular expression with one group."""
    environment: Mapping[str, str]
    folder: Path
    """Its working directory, with its log."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _said_before: int = field(default=0, init=False)
    """The log's length at its start."""

    @property
    def log(self) -> Path:
        """The log of it and its executors' launchers, over all its runs."""
        return self.folder / "log"

    @property
    def pid(self) -> int:
        """The process id, which is the session id of all its descendants."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is stopped."""
        return self._process is not None and self._process.poll() is None

    def start(self, *more: str) -> None:
        """Start it; `await_ready` waits until it serves."""
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(_SPARK_CLASS), *self.command, *more],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_ready(self) -> str:
        """Wait until it serves; return the group of `ready`.

        Raises:
            StandaloneError: if it ends, or is not ready in time.
        """

        def said() -> str | None:
            if not self.is_alive:
                raise StandaloneError(f"{self.name} ended: {self.log_tail()}")
            found = re.search(self.ready, self.log.read_bytes()[self._said_before :].decode(errors="replace"))
            return found[1] if found else None

        return wait_for(said, lambda: f"{self.name} is not ready: {self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL the process, without its descendants."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_all(self) -> int:
        """SIGKILL the process and all its descendants, as a loss of power; return how many."""
        if self._process is None:
            return 0
        killed = kill_session(self.pid)
        self._process.wait()
        return killed

    def pause(self) -> None:
        """SIGSTOP the process and all its descendants."""
        for process in session_members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT all of them."""
        for process in session_members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:]


class StandaloneCluster:
    """A Master and two Workers; a context manager.

    Raises:
        StandaloneError: if they do not start; the message has the end of a log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(_LOGGING)
        self.hosts = hosts_file(folder / "hosts", DRIVER_ADDRESS)
        """Where this cluster's JVMs look up host names."""
        self.master = self._daemon(
            "master",
            MASTER_ADDRESS,
            [_MASTER, "--host", MASTER_ADDRESS],
            r"started at (http://\S+)[\s\S]*?elected leader",
        )
        self.workers = list[Daemon]()
        try:
            self.master.start("--port", "0", "--webui-port", "0")
            self._page = self.master.await_ready().rstrip("/")
            self.url: str = self._state()["url"]
            self.workers = [self._worker(number) for number in (1, 2)]
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                worker.await_ready()
        except BaseException:
            self.close()
            raise

    def restart_master(self) -> None:
        """Restart the killed Master at its old address; it reads its state and waits for Workers and applications."""
        ports = [self.url.rpartition(":")[2], self._page.rpartition(":")[2]]
        self.master.start("--port", ports[0], "--webui-port", ports[1])
        self.master.await_ready()

    def live_workers(self) -> set[str]:
        """Return the addresses of the Workers that the Master reports as alive; none while it does not answer."""
        return {each["host"] for each in self._state()["workers"] if each["state"] == "ALIVE"}

    def applications(self) -> dict[str, int]:
        """Return the cores of each running or waiting application, by id; none while the Master does not answer."""
        return {each["id"]: each["cores"] for each in self._state()["activeapps"] if each["state"] != "UNKNOWN"}

    def restore(self) -> None:
        """Start what does not run, continue what is stopped, and wait until the Master knows both Workers.

        Raises:
            StandaloneError: if that takes too long.
        """
        if not self.master.is_alive:
            self.restart_master()
        for worker in self.workers:
            if worker.is_alive:
                worker.resume()
            else:
                worker.kill_all()  # descendants that are left
                worker.start()
                worker.await_ready()
        self.wait(lambda: len(self.live_workers()) == len(self.workers), "both Workers are alive")

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for a condition.

        Raises:
            StandaloneError: if it takes too long.
        """
        wait_for(lambda: happened() or None, lambda: f"not within {LIMIT_S:g} s: {what}; {self.master.log_tail()}")

    def close(self) -> None:
        """SIGKILL everything."""
        for daemon in (*self.workers, self.master):
            daemon.kill_all()

    def _worker(self, number: int) -> Daemon:
        host = WORKER_ADDRESSES[number - 1]
        command = [_WORKER, "--host", host, "--cores", str(CORES), "--memory", MEMORY, "--webui-port", "0"]
        name = f"worker-{number}"
        ready = r"(Successfully registered) with master"
        return self._daemon(name, host, [*command, "--work-dir", "work", self.url], ready)

    def _daemon(self, name: str, host: str, command: Sequence[str], ready: str) -> Daemon:
        folder = self._folder / name
        own = {each: folder / each for each in ("home", "tmp", "local")}
        for path in own.values():
            path.mkdir(parents=True, exist_ok=True)
        java = [
            f"-Dlog4j2.configurationFile=file:{self._folder / 'log4j2.properties'}",
            f"-Dspark.worker.timeout={WORKER_TIMEOUT_S}",
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={self._folder / 'recovery'}",
            "-Dspark.deploy.maxExecutorRetries=-1",  # executors are killed repeatedly
            f"-Djdk.net.hosts.file={self.hosts}",
            class_archive.options(),
        ]
        environment = {
            **{key: value for key, value in os.environ.items() if key not in (FOLDER_VARIABLE, "PYTHONPATH")},
            "HOME": str(own["home"]), "USER": name, "LOGNAME": name, "TMPDIR": str(own["tmp"]),
            "SPARK_LOCAL_DIRS": str(own["local"]), "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": " ".join(java),
        }  # fmt: skip
        return Daemon(name, command, ready, environment, folder)

    def _state(self) -> dict[str, Any]:
        """Return the Master's page as JSON; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self._page}/json/", timeout=LIMIT_S) as answer:  # noqa: S310 - of ours
                state: dict[str, Any] = json.load(answer)
                return state
        except OSError:
            return {"workers": [], "activeapps": []}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_master(url: str) -> None:
    """Check that a Master listens at ``spark://HOST:PORT``, or at one of several, comma-separated.

    Raises:
        StandaloneError: if none does. Spark itself would try for a minute.
    """
    reasons = []
    for address in url.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=MASTER_ANSWERS_WITHIN_S).close()
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise StandaloneError(f"no Spark Master listens at {url} ({'; '.join(reasons)}): start one, or use --cluster")


def hosts_file(path: Path, driver: str) -> Path:
    """Write a file that a JVM uses in place of the system's names (``jdk.net.hosts.file``); return the path.

    Executors of a standalone cluster and its Master reach the driver under one name. To break one connection and
    not the other, the name has a different address for each.
    """
    path.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n{driver} {DRIVER_HOST}\n")
    return path


def wait_for(happened: Callable[[], FoundT | None], trouble: Callable[[], str], limit_s: float = LIMIT_S) -> FoundT:
    """Wait for a result and return it.

    Raises:
        StandaloneError: if it takes too long; ``trouble`` returns the message.
    """
    deadline = time.monotonic() + limit_s
    while (found := happened()) is None:
        if time.monotonic() > deadline:
            raise StandaloneError(trouble())
        time.sleep(POLL_S)
    return found
