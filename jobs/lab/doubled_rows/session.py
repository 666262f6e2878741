"""One Spark session in a process of its own, and the supervisor's hold on it.

Started as ``python -m sparkonce.jobs.lab.doubled_rows.session CONF_JSON``, as the leader of a process session, so that
the driver, its JVM and every Python worker can be killed as one. Requests are JSON lines on the standard input, a query
each; when it has ended, a line on what was the standard output tells its error, or that it has none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from sparkonce.connectors.session import spark_session
from sparkonce.jobs.demo.supervisor import kill_session
from sparkonce.jobs.lab.doubled_rows.copying import Copy, start
from sparkonce.jobs.lab.verify.session import essence

STOP_LIMIT_S = 60.0
LOG_TAIL_CHARACTERS = 2000


class SessionError(RuntimeError):
    """A Spark session that ended unexpectedly, or a query that failed or took too long; the message says which."""


class Session:
    """A Spark session with ``conf``; its log goes to ``log``. A context manager: it is gone at the end.

    Raises:
        SessionError: if it does not start.
    """

    def __init__(self, conf: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "sparkonce.jobs.lab.doubled_rows.session", json.dumps(dict(conf))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=log.parent,  # for what Spark leaves in its working directory
                start_new_session=True,  # all that it starts can be killed with it
            )
        try:
            self._answer()
        except BaseException:
            self.kill()
            raise

    def start(self, copy: Copy) -> None:
        """Have a query started."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asdict(copy)).encode() + b"\n")
        self._child.stdin.flush()

    def has_answered(self, within_s: float) -> bool:
        """Wait until the query has ended, or the session has, but not for longer than this; returns whether it has."""
        assert self._child.stdout is not None
        return bool(select.select([self._child.stdout], [], [], within_s)[0])

    def wait(self, limit_s: float) -> None:
        """Wait until the query that was started has ended.

        Raises:
            SessionError: if it ended with an error, or not in time.
        """
        if not self.has_answered(limit_s):
            raise SessionError(f"the query did not end within {limit_s:g} s; Spark's log ends with:\n{self._tail()}")
        error = self._answer()["error"]
        if error is not None:
            raise SessionError(f"the query stopped: {error}")

    def kill(self) -> int:
        """SIGKILL the driver and all that it started; returns how many processes that were."""
        killed = kill_session(self._child.pid)
        self._child.wait()
        self._release()
        return killed

    def close(self) -> None:
        """Wait for it to end, or kill it if it does not; a second call does nothing."""
        assert self._child.stdin is not None
        if self._child.stdin.closed:
            return
        self._child.stdin.close()
        try:
            self._child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
        kill_session(self._child.pid)  # Python workers that did not notice
        self._child.wait()
        self._release()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise SessionError(f"the Spark session ended by itself; its log ends with:\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _release(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what was still to be sent
            self._child.stdin.close()
        self._child.stdout.close()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]


def main() -> None:
    """Start Spark, and run queries one after another until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Spark's own chatter goes to the log
    spark = spark_session("doubled rows", **json.loads(sys.argv[1]))
    spark.sparkContext.setLogLevel("ERROR")

    def tell(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    tell(ready=spark.version)
    for line in sys.stdin:
        try:
            start(spark, Copy(**json.loads(line))).awaitTermination()
        except Exception as error:  # the supervisor decides what it means
            tell(error=essence(str(error) or type(error).__name__))
        else:
            tell(error=None)
    spark.stop()


if __name__ == "__main__":
    main()
