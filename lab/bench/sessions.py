"""Spark sessions of benchmarks: each a long-lived process, so that all in it is warm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.bench.results import Missing, Results
from lab.bench.spark_side import Batch, Outcome, Query
from lab.child_process import ChildEndedError, ChildProcess
from lab.peers import jvm_session
from sparkonce.jobs.shared.jars import PeerMissingError

OURS = "sparkonce"
JVM = "Spark's JVM"
LOOP = "loop"
WARM_UP_BATCHES = 5
SESSION = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


class SideError(RuntimeError):
    """A Spark session of the benchmark failed; the message holds its error, or the end of its log."""


class SparkSide(ChildProcess):
    """A `lab.bench.spark_side` process, or another one with the same protocol."""

    def __init__(
        self,
        name: str,
        conf: Mapping[str, str],
        directory: Path,
        module: str = "lab.bench.spark_side",
    ) -> None:
        self.name = name
        self.directory = directory / name.replace(" ", "-").replace("'", "")
        """The folder of this side's output."""
        self.directory.mkdir()
        super().__init__(module, dict(conf), self.directory / "spark.log")
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def run(self, query: Query) -> Outcome:
        """Run one query in it.

        Raises:
            SideError: if it fails.
        """
        self.send(asdict(query))
        answer = self._answer()
        batches = tuple(Batch(**batch) for batch in answer.pop("batches"))
        return Outcome(**answer, batches=batches)

    def _answer(self) -> dict[str, Any]:
        try:
            answer = self.receive()
        except ChildEndedError as error:
            tail = self.log_tail()
            raise SideError(f"the process of {self.name} ended; its log ends with:\n{tail}") from error
        assert answer is not None
        if "error" in answer:
            raise SideError(f"{self.name}: {answer['error']}")
        return answer


def loop_side(directory: Path) -> SparkSide:
    """Start the program without Spark, `lab.bench.loop`."""
    return SparkSide(LOOP, {}, directory, "lab.bench.loop")


def session_settings(results: Results) -> tuple[dict[str, str], bool]:
    """Return the settings of both sides' sessions, which are equal, and whether the JVM's side can run."""
    try:
        return {**SESSION, **jvm_session()}, True
    except PeerMissingError as error:
        remedy = (
            "install Maven, which fetches them; for the Kafka connector's, SPARK_KAFKA_JARS names a comma list of jars"
        )
        results.missing.append(Missing("spark-jvm-kafka-and-delta", str(error), remedy))
        return dict(SESSION), False
