"""Run the Spark job in a separate process, and kill it with all its descendants at a named point.

The armed point writes its mark file and waits; the supervisor sees the mark and kills the job's whole session:
the driver, its JVM and every Python worker. So the crash happens exactly at the point, whichever process reached it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.child_process import kill_session
from lab.crash_plans import point_named
from lab.job_process import JobFailedError, log_tail, start_job
from sparkonce.crash_points import CRASH_VARIABLE, MARK_VARIABLE, CrashAction, CrashPoint

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended: at a kill point (with the batch it named), or normally."""

    killed_at: CrashPoint | None
    batch_id: int | None
    processes: int


@dataclass(frozen=True, slots=True)
class Job:
    """A command, and the folder of its output and marks."""

    command: Sequence[str]
    log: Path
    time_limit_s: float

    def run(
        self,
        kill: tuple[CrashPoint, int | None] | None,
        watch: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run the command to its end, or to the kill point; ``watch`` is called repeatedly meanwhile.

        Raises:
            JobFailedError: if it failed, took too long, or never reached the point.
        """
        mark = self.log.with_suffix(".mark")
        environment = dict(os.environ)
        if kill is not None:
            point, batch = kill
            where = point.value if batch is None else f"{point.value}@{batch}"
            environment[CRASH_VARIABLE] = f"{where}={CrashAction.HOLD.value}"
            environment[MARK_VARIABLE] = str(mark)
        process = start_job(self.command, self.log, environment)
        try:
            self._wait(process, mark, watch)
            if mark.exists():
                record = json.loads(mark.read_text())
                return Outcome(point_named(record["point"]), record["batch_id"], kill_session(process.pid))
            if kill is not None:
                raise JobFailedError(f"the job ended before it reached {kill[0].value}\n{log_tail(self.log)}")
            return Outcome(None, None, 0)
        finally:
            kill_session(process.pid)
            process.wait()

    def _wait(self, process: subprocess.Popen[bytes], mark: Path, watch: Callable[[], None]) -> None:
        deadline = time.monotonic() + self.time_limit_s
        while process.poll() is None and not _complete(mark):
            watch()
            if time.monotonic() > deadline:
                raise JobFailedError(f"the job took more than {self.time_limit_s:g} s\n{log_tail(self.log)}")
            time.sleep(POLL_S)
        if process.returncode:
            raise JobFailedError(f"the job ended with exit code {process.returncode}\n{log_tail(self.log)}")


def _complete(mark: Path) -> bool:
    # The mark is created first and written then: it counts when its line is complete.
    return mark.exists() and mark.read_bytes().endswith(b"\n")
