"""A real ZooKeeper for tests: Debian's package, on a free port, which can be killed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import pytest

from lab.network import free_port
from lab.peers import QUICK_JVM

JAR: Final = Path(os.environ.get("ZOOKEEPER_JAR", "/usr/share/java/zookeeper.jar"))
MISSING: Final = f"needs ZooKeeper ({JAR}): apt-get install zookeeper"
TICK_MS: Final = 100
"""Sessions last two ticks at least; 20 at most, unless it is set."""
MAX_SESSION_MS: Final = 60_000
CHROOT: Final = "/cluster"
START_TIMEOUT_S: Final = 60.0


class ZooKeeper:
    """One server, from construction to `close`; a context manager.

    `host` is the address that it listens on. With several `hosts` it is one of as many servers, all started at a time.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1", hosts: Sequence[str] = ()) -> None:
        self._folder = folder
        self._host = host
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": host,
            "tickTime": TICK_MS,
            "maxSessionTimeout": MAX_SESSION_MS,
            "admin.enableServer": "false",
            "fsync.warningthresholdms": 60_000,
        }
        if hosts:
            settings |= {f"server.{number}": f"{each}:2888:3888" for number, each in enumerate(hosts, 1)}
            settings |= {"initLimit": 100, "syncLimit": 10}
            (folder / "data").mkdir()
            (folder / "data" / "myid").write_text(f"{hosts.index(host) + 1}")
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.start()

    @property
    def address(self) -> str:
        """Where it is reached."""
        return f"{self._host}:{self.port}"

    @property
    def place(self) -> str:
        """A cluster's `coordination`."""
        return f"zookeeper://{self.address}{CHROOT}"

    def start(self) -> None:
        """Start on the same port and data."""
        command = ["java", *QUICK_JVM, "-Xmx128m", "-cp", str(JAR)]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._folder / "zoo.cfg")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        waiting, tries = threading.Event(), int(START_TIMEOUT_S / 0.05)
        for _ in range(tries):
            assert self._process.poll() is None, (self._folder / "log").read_text()
            if _answers(self._host, self.port):
                return
            waiting.wait(0.05)
        raise AssertionError(f"ZooKeeper does not answer: {(self._folder / 'log').read_text()}")

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    close = kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answers(host: str, port: int) -> bool:
    """Whether it serves: it answers `srvr`, the one command that is allowed by default."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in connection.recv(4096)
    except OSError:
        return False


def need_zookeeper() -> None:
    """Skip the test, with the reason, where there is none."""
    if not JAR.is_file() or shutil.which("java") is None:
        pytest.skip(MISSING)


@contextmanager
def server_for(coordination: str, folder: Path) -> Iterator[ZooKeeper | None]:
    """Start what a cluster of this kind rests on: `files` nothing, `zookeeper` a server of its own."""
    if coordination == "files":
        yield None
        return
    need_zookeeper()
    with ZooKeeper(folder) as server:
        yield server
