"""The verifiable producer and consumer as processes whose output a test can wait for."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

DEADLINE_S = 120.0


class Client:
    """One process; its events go to `file`, as a shell's redirection would put them there.

    Args:
        module: which client.
        file: its output.
        arguments: its command line.
        patch: Python that runs before it.
    """

    def __init__(self, module: str, file: Path, *arguments: str, patch: str = "") -> None:
        self.file = file
        self.counts: dict[str, int] = {}
        """How many events of each name have come."""
        self._news = threading.Condition()
        self._ended = False
        module = f"sparkonce.jobs.verifiable.{module.removeprefix('verifiable_')}"
        program = f"import sys\n{patch}\nfrom {module} import main\nsys.exit(main(sys.argv[1:]))"
        self._child = subprocess.Popen(
            [sys.executable, *(["-c", program] if patch else ["-m", module]), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.errors = b""
        self._threads = [threading.Thread(target=self._copy), threading.Thread(target=self._collect_errors)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._finish()

    def wait_for(self, name: str, count: int = 1) -> None:
        """Wait until that many events of a name have come."""
        with self._news:
            came = self._news.wait_for(lambda: self.counts.get(name, 0) >= count or self._ended, DEADLINE_S)
        if not came:
            only = dict(self.counts)
            self.kill()
            raise AssertionError(f"no {count} {name} within {DEADLINE_S} s, only {only}: {self.errors.decode()}")
        assert self.counts.get(name, 0) >= count, f"it ended with {self.counts}: {self.errors.decode()}"

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        self._child.wait(DEADLINE_S)
        self._finish()
        return self._child.returncode

    def stop(self) -> int:
        """Ask for an orderly end by SIGTERM; returns the exit status."""
        self._child.terminate()
        return self.wait()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._child.kill()
        self.wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it has said, once it has ended."""
        return [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]

    def values(self, name: str, where: Callable[[dict[str, Any]], bool] = lambda _: True) -> list[str]:
        """The values of its events of a name."""
        return [event["value"] for event in self.events if event["name"] == name and where(event)]

    def _copy(self) -> None:
        assert self._child.stdout is not None
        with open(self.file, "wb") as file:
            for line in self._child.stdout:
                file.write(line)
                if line.endswith(b"\n"):
                    with self._news:
                        name = json.loads(line)["name"]
                        self.counts[name] = self.counts.get(name, 0) + 1
                        self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _collect_errors(self) -> None:
        assert self._child.stderr is not None
        self.errors = self._child.stderr.read()

    def _finish(self) -> None:
        self._child.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._child.stdout, self._child.stderr):
            assert stream is not None
            stream.close()
