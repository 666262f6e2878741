"""The engine's control of a Spark session: start it, run queries there, wait for their ends, kill it.

The process is a leader of its own process session (`jobs.lab.verify.session`). A thread reads its events; everything
else happens in the engine's thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sparkonce.exactly_once.crash_points import FOLDER_VARIABLE
from sparkonce.jobs.demo.supervisor import kill_session
from sparkonce.jobs.lab import class_archive
from sparkonce.jobs.lab.verify.pipelines import Pipeline
from sparkonce.jobs.lab.verify.setback.queries import Setup

START_LIMIT_S = 180.0
STOP_LIMIT_S = 60.0
LOG_TAIL_CHARACTERS = 2000
SESSION_ENDED = "the Spark session ended by itself"


class SessionError(RuntimeError):
    """Spark did not start; the message holds the end of its log."""


class SparkProcess:
    """A Spark session in a process of its own, with crash plans from ``crash_folder``.

    Raises:
        SessionError: if it does not start.
    """

    def __init__(self, conf: Mapping[str, str], crash_folder: Path, log: Path) -> None:
        self._log = log
        self._ended: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "sparkonce.jobs.lab.verify.session", json.dumps(dict(conf))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={class_archive.VARIABLE: class_archive.options(), **os.environ, FOLDER_VARIABLE: str(crash_folder)},
                cwd=log.parent,  # for what Spark leaves in its working directory
                start_new_session=True,  # all that it starts can be killed with it
            )
        self._reader = threading.Thread(target=self._read, name="spark events", daemon=True)
        self._reader.start()
        if not self._ready.wait(START_LIMIT_S) or self._child.poll() is not None:
            self.kill()
            raise SessionError(f"Spark did not start; its log ends with:\n{self._tail()}")

    @property
    def is_alive(self) -> bool:
        """Whether queries can be sent there."""
        return self._child.poll() is None

    def start(self, name: str, pipeline: Pipeline | Setup) -> None:
        """Start a query; `ended` returns whether it is over. Names are used once."""
        assert self._child.stdin is not None
        try:
            request = {"name": name, "kind": type(pipeline).__name__, "pipeline": asdict(pipeline)}
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except OSError:  # it has just died
            with self._lock:
                self._ended[name] = SESSION_ENDED

    def ended(self, name: str) -> tuple[bool, str | None]:
        """Whether a query is over, and its error if it ended with one."""
        with self._lock:
            if name in self._ended:
                return True, self._ended[name]
        if not self._reader.is_alive():
            return True, SESSION_ENDED
        return False, None

    def kill(self) -> int:
        """SIGKILL the driver and everything it started; returns how many processes that were."""
        killed = kill_session(self._child.pid)
        self._child.wait()
        self._release()
        return killed

    def close(self) -> None:
        """Wait for it to end, or kill it if it does not; a second call does nothing."""
        assert self._child.stdin is not None
        if self._child.stdin.closed:
            return
        try:
            self._child.stdin.close()
            self._child.wait(STOP_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
        kill_session(self._child.pid)  # Python workers that did not notice
        self._release()

    def _release(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what was still to be sent
                continue
        self._reader.join(STOP_LIMIT_S)

    def _read(self) -> None:
        assert self._child.stdout is not None
        try:
            for line in self._child.stdout:
                event = json.loads(line)
                if "ready" in event:
                    self._ready.set()
                else:
                    with self._lock:
                        self._ended[event["ended"]] = event["error"]
        except ValueError:  # closed, or killed in the middle of a line
            pass
        finally:
            self._ready.set()  # a dead process must not block waiters

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
