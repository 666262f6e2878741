"""Our connectors beside the JVM's: one topic in one broker, two Spark sessions of the same settings.

Each side is a process of its own with a session that stays, so that its JVM, its Python workers and its compiled code
are warm; the sides take turns. Every query reads the whole topic from its beginning with Trigger.AvailableNow and is
timed from `readStream` to the end of the query. Tables and checkpoints are new for each query.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from broker_lite import EmbeddedBroker
from jobs.bench.load import create_topic, fill
from jobs.bench.progress import say
from jobs.bench.results import Comparison, Missing, Results
from jobs.bench.settings import MICRO_BATCH_ROWS, PARTITIONS, SPARK_BENCHMARKS, TARGETS, Settings
from jobs.bench.spark_side import Outcome, Query
from jobs.peers import PeerMissingError, jvm_session

OURS = "sparkonce"
JVM = "Spark's JVM"
VALUE_BYTES = 100
WARM_UP_BATCHES = 5
_TUNED = {"spark.databricks.delta.snapshotPartitions": "1"}
_FORMATS = {OURS: ("kafka_once", "delta_once"), JVM: ("kafka", "delta")}
SESSION = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
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
        command = [sys.executable, "-m", "jobs.bench.spark_side", json.dumps(dict(conf))]
        root = Path(__file__).resolve().parents[2]
        with open(self._log, "wb") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=root
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

    def run(self, query: Query) -> Outcome:
        """Run one query there.

        Raises:
            SideError: if it fails.
        """
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asdict(query)) + "\n")
        self._child.stdin.flush()
        outcome = Outcome(**self._answer())  # type: ignore[arg-type]
        return Outcome(outcome.wall_s, outcome.rows, tuple(outcome.batches_s))

    def close(self) -> None:
        """End the session: its input ends, and it stops by itself."""
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


def run(settings: Settings, results: Results) -> None:
    """Run the Spark benchmarks that were asked for."""
    names = [name for name in SPARK_BENCHMARKS if name in settings.names]
    if not names:
        return
    conf, with_jvm = _session(results)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(EmbeddedBroker(process=True)).bootstrap_servers
        say("starting the Spark sessions")
        sides = [
            stack.enter_context(SparkSide(name, conf, directory)) for name in ((OURS, JVM) if with_jvm else (OURS,))
        ]
        bench = _Bench(broker, sides, settings, results)
        if "source-noop" in names or "pipeline-delta" in names:
            bench.fill("rows", settings.rows)
        for name in names:
            if name == "micro-batch-400":
                bench.micro_batches()
            else:
                bench.throughput(name, into_table=name == "pipeline-delta")


def _session(results: Results) -> tuple[dict[str, str], bool]:
    """Give the settings of both sessions, alike, and whether the JVM's side can run."""
    try:
        return {**SESSION, **jvm_session()}, True
    except PeerMissingError as error:
        remedy = (
            "where the registry has all artifacts, Maven fetches them by itself; else set SPARK_KAFKA_JARS to a comma "
            "list of jars with spark-sql-kafka-0-10_2.13, spark-token-provider-kafka-0-10_2.13, kafka-clients, "
            "commons-pool2 and scala-parallel-collections_2.13"
        )
        results.missing.append(Missing("spark-jvm-kafka-and-delta", str(error), remedy))
        return dict(SESSION), False


class _Bench:
    """The Spark benchmarks over the same sides and broker."""

    def __init__(self, broker: str, sides: list[SparkSide], settings: Settings, results: Results) -> None:
        self._broker = broker
        self._sides = sides
        self._settings = settings
        self._results = results

    def fill(self, topic: str, rows: int) -> None:
        """Make a topic and produce ``rows`` records of 100 bytes to it."""
        say(f"filling topic {topic} with {rows:,} records of {VALUE_BYTES} bytes")
        create_topic(self._broker, topic, PARTITIONS)
        fill(self._broker, topic, rows, VALUE_BYTES, PARTITIONS)

    def throughput(self, name: str, into_table: bool) -> None:
        """Compare rows a second over a whole query, the first of each side apart as its warm-up."""
        figures: dict[str, list[float]] = {side.name: [] for side in self._sides}
        for number in range(self._settings.rounds + 1):
            for side in self._sides:
                outcome = side.run(self._query(side.name, "rows", into_table))
                self._expect(side, outcome, self._settings.rows)
                per_second = outcome.rows / outcome.wall_s
                round_name = f"round {number}/{self._settings.rounds}" if number else "warm-up"
                say(f"{name}: {round_name}, {side.name} {per_second:,.0f} rows/s")
                if number:
                    figures[side.name].append(per_second)
        ours, peer = tuple(figures[OURS]), tuple(figures.get(JVM, ()))
        self._results.comparisons.append(Comparison(name, "rows/s", ours, peer, JVM, TARGETS[name]))

    def micro_batches(self) -> None:
        """Compare the time of a micro-batch, also with Delta's snapshot tuned for small tables."""
        name = "micro-batch-400"
        passes = self._settings.micro_passes
        batches = self._settings.micro_batches // passes + WARM_UP_BATCHES
        rows = batches * MICRO_BATCH_ROWS
        self.fill("micro", rows)
        times: dict[str, list[float]] = {}
        for number in range(passes):
            for side in self._sides:
                variants = {"": {}, "tuned": _TUNED} if side.name == JVM else {"": {}}
                for variant, conf in variants.items():
                    outcome = side.run(self._query(side.name, "micro", True, MICRO_BATCH_ROWS, conf))
                    self._expect(side, outcome, rows)
                    measured = outcome.batches_s[WARM_UP_BATCHES:]
                    times.setdefault(side.name + variant, []).extend(measured)
                    shown = sorted(measured)[len(measured) // 2]
                    say(f"{name}: pass {number + 1}/{passes}, {side.name} {variant} median {shown:.3f} s")
        ours = tuple(times[OURS])
        self._results.comparisons.extend(
            [
                Comparison(name, "s", ours, tuple(times.get(JVM, ())), JVM, TARGETS[name], less_is_better=True),
                Comparison(
                    f"{name}-tuned", "s", ours, tuple(times.get(JVM + "tuned", ())), f"{JVM}, snapshotPartitions=1",
                    less_is_better=True,
                ),
            ]
        )  # fmt: skip

    def _query(
        self,
        side: str,
        topic: str,
        into_table: bool,
        rows_per_batch: int | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> Query:
        source, sink = _FORMATS[side]
        return Query(source, sink if into_table else "noop", self._broker, topic, rows_per_batch, conf or {})

    def _expect(self, side: SparkSide, outcome: Outcome, rows: int) -> None:
        if outcome.rows != rows:
            raise SideError(f"{side.name} read {outcome.rows} of {rows} rows")
