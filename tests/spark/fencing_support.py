"""What the tests of fencing share: a driver in a process of its own, and crash points armed while it runs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from deltalake import DeltaTable

from lab.crash_plans import arm, disarm, fired
from sparkonce.crash_points import FOLDER_VARIABLE, CrashPlan
from tests.spark.fencing_job import ANSWER
from tests.spark.sink_support import PROJECT

DEADLINE_S = 120


class Driver:
    """`fencing_job.py` in a process group of its own."""

    def __init__(self, folder: Path, **conf: str) -> None:
        self.plans = folder / "plans"
        self.plans.mkdir(parents=True)
        self._numbers = itertools.count()
        self._scratch = folder / "scratch"
        self.stage_attempts = 0
        """How often the query waited for last had to try one of its stages."""
        self._log = folder / "driver.log"
        environment = {**os.environ, FOLDER_VARIABLE: str(self.plans), "PYTHONPATH": str(PROJECT)}
        settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
        settings |= {"spark.local.dir": str(self._scratch), **conf}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.fencing_job", json.dumps(settings)],
                env=environment,
                cwd=PROJECT,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(
        self, name: str, table: Path, checkpoint: Path, source: dict[str, Any], guarantee: str = "exactly-once"
    ) -> None:
        sink = {"appId": "app", "deliveryGuarantee": guarantee}
        told = {"start": name, "table": str(table), "checkpoint": str(checkpoint), "source": source, "sink": sink}
        self._tell(told)

    def wait(self, name: str) -> str | None:
        """Wait for the end of a query, and give its error, if it ended by one."""
        answer = self._tell({"wait": name})
        self.stage_attempts = answer["stage_attempts"]
        return answer.get("error")

    def run(self, table: Path, checkpoint: Path, source: dict[str, Any], guarantee: str = "exactly-once") -> str | None:
        self.start("one", table, checkpoint, source, guarantee)
        return self.wait("one")

    def arm(self, plan: str) -> CrashPlan:
        return arm(self.plans, f"plan-{next(self._numbers)}", plan)  # a name used again would have its mark already

    def await_firing(self, plan: CrashPlan) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        while (mark := fired(plan)) is None:
            assert time.monotonic() < deadline, f"{plan} did not fire: {self._log.read_text()[-3000:]}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=0.02)
            assert self._process.poll() is None, self._log.read_text()[-3000:]
        return mark

    def lose_shuffle_output(self) -> int:
        """Delete what map tasks have written, as when their machine is gone; returns how many files there were."""
        files = list(self._scratch.rglob("shuffle_*_*"))
        for path in files:
            path.unlink()
        return len(files)

    def disarm_all(self) -> None:
        for path in self.plans.glob("*.plan"):
            disarm(self.plans, path.stem)

    def _tell(self, told: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise AssertionError(f"the driver ended: {self._log.read_text()[-3000:]}")

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def rows(table: Path) -> Counter[str]:
    found = DeltaTable(table).to_pyarrow_table(columns=["value"]).column("value").to_pylist()
    return Counter(value.decode() if isinstance(value, bytes) else value for value in found)


def expected(end: int, partitions: int = 2, begin: int = 0) -> Counter[str]:
    return Counter(f"{index}-{offset}" for index in range(partitions) for offset in range(begin, end))


def orphans(table: Path) -> int:
    """Count the data files that the table does not name."""
    return len(list(table.rglob("*.parquet"))) - len(DeltaTable(table).file_uris())


def query_id(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])
