"""Spark sessions under measurement: each a process of its own that stays, so that all in it is warm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from sparkonce.jobs.bench.results import Missing, Results
from sparkonce.jobs.bench.spark_side import Batch, Outcome, Query
from sparkonce.jobs.shared.peers import PeerMissingError, jvm_session

OURS = "sparkonce"
JVM = "Spark's JVM"
WARM_UP_BATCHES = 5
SESSION = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


class SideError(RuntimeError):
    """A Spark session of the benchmark failed; the message holds its error, or the end of its log."""


class SparkSide:
    """A `jobs.bench.spark_side` process."""

    def __init__(self, name: str, conf: Mapping[str, str], directory: Path) -> None:
        self.name = name
        self._directory = directory / name.replace(" ", "-").replace("'", "")
        self._directory.mkdir()
        self._log = self._directory / "spark.log"
        command = [sys.executable, "-m", "sparkonce.jobs.bench.spark_side", json.dumps(dict(conf))]
        with open(self._log, "wb") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._directory
            )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The driver's process, which all others of the session descend from."""
        return self._child.pid

    @property
    def directory(self) -> Path:
        """A directory for what this side writes."""
        return self._directory

    def run(self, query: Query) -> Outcome:
        """Run one query there.

        Raises:
            SideError: if it fails.
        """
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asdict(query)) + "\n")
        self._child.stdin.flush()
        answer = self._answer()
        batches = answer.pop("batches")
        assert isinstance(batches, list)
        return Outcome(**answer, batches=tuple(Batch(**batch) for batch in batches))  # type: ignore[arg-type]

    def close(self) -> None:
        """End the session: its input ends, and it stops."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        try:
            self._child.wait(60)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def __enter__(self) -> SparkSide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, object]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise SideError(f"the Spark session of {self.name} ended; its log ends with:\n{tail}")
        answer: dict[str, object] = json.loads(line)
        if "error" in answer:
            raise SideError(f"{self.name}: {answer['error']}")
        return answer


def session_settings(results: Results) -> tuple[dict[str, str], bool]:
    """Return the settings of both sides' sessions, alike, and whether the JVM's side can run."""
    try:
        return {**SESSION, **jvm_session()}, True
    except PeerMissingError as error:
        remedy = (
            "install Maven, which fetches them; for the Kafka connector's, SPARK_KAFKA_JARS names a comma list of jars"
        )
        results.missing.append(Missing("spark-jvm-kafka-and-delta", str(error), remedy))
        return dict(SESSION), False
