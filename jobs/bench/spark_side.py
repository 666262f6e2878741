"""One Spark session in a process of its own, which runs queries as the benchmark asks for them.

Started by `jobs.bench.sessions` as ``python -m sparkonce.jobs.bench.spark_side SESSION_JSON``. Requests come as JSON
lines on the standard input, answers go as JSON lines to what was the standard output: Spark's own chatter is sent to
stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from sparkonce.connectors.session import spark_session
from sparkonce.jobs.shared.child_process import event_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


PLANNER = "python_streaming_source_runner"
"""A word of the command of the process in which a Python source plans, on the driver."""
PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit")
"""Parts of a micro-batch in Spark's progress: from asking for offsets to the plan, and the log of what was planned."""
_TOPIC_SINKS = ("kafka", "kafka_once")
_TABLE_SINKS = ("delta", "delta_once")
_WATCH_EVERY_S = 1
_MOST_OF_AN_ERROR = 1500


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query from the earliest to the latest offset of a topic, into nothing, a table or a topic.

    A topic, and where it is, are named by ``sink_options``; it gets keys and values, a table all columns that the
    ``selections`` leave, which are applied one after another. ``rows_per_batch`` None reads the topic in one
    micro-batch; ``conf`` is set on the session for its length. ``table`` None makes a table that is removed afterwards.
    """

    source: str
    sink: str
    bootstrap_servers: str
    topic: str
    rows_per_batch: int | None
    conf: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    source_options: Mapping[str, str] = field(default_factory=dict)
    selections: Sequence[Sequence[str]] = ()
    """SQL expressions, as of ``selectExpr``."""
    table: str | None = None
    app_id: str = "bench"
    count_table: bool = False
    """Whether to count what has arrived in the table."""
    watch_memory: bool = False
    """Whether to look at the memory of the planning process while the query runs."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch with rows, by Spark's progress, in seconds."""

    trigger_s: float
    """From the trigger to the end of the commit."""
    planning_s: float


@dataclass(frozen=True, slots=True)
class Counted:
    """What the log of a table says."""

    rows: int
    nulls: Mapping[str, int]
    """By column, where the statistics have it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a query took: all of it by the clock, the CPU time of the whole session, and each micro-batch with rows."""

    wall_s: float
    rows: int
    batches: tuple[Batch, ...]
    cpu_s: float = 0.0
    table: Mapping[str, Any] | None = None
    """The fields of `Counted`, if that was asked for."""
    memory_mb: Sequence[tuple[int, float]] = ()
    """The number of batches done, and the resident memory of the planning process then."""


def run_query(spark: SparkSession, query: Query) -> Outcome:
    """Run a query to its end and remove what it wrote."""
    for name, value in query.conf.items():
        spark.conf.set(name, value)
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        return _timed(spark, query, directory)
    finally:
        for name in query.conf:
            spark.conf.unset(name)
        shutil.rmtree(directory, ignore_errors=True)


def _timed(spark: SparkSession, query: Query, directory: Path) -> Outcome:
    table = query.table or str(directory / "table")
    cpu_before_s, began = cpu_s(os.getpid()), time.perf_counter()
    running = _start(spark, query, directory, table)
    memory = _watch(running) if query.watch_memory else []
    running.awaitTermination()
    wall_s = time.perf_counter() - began
    spent_s = cpu_s(os.getpid()) - cpu_before_s
    progress = [json.loads(one.json) for one in running.recentProgress]
    with_rows = [one for one in progress if one["numInputRows"]]
    return Outcome(
        wall_s,
        sum(one["numInputRows"] for one in with_rows),
        tuple(_batch(one["durationMs"]) for one in with_rows),
        spent_s,
        asdict(count(table)) if query.count_table else None,
        memory,
    )


def _start(spark: SparkSession, query: Query, directory: Path, table: str) -> StreamingQuery:
    reader = (
        spark.readStream.format(query.source)
        .option("kafka.bootstrap.servers", query.bootstrap_servers)
        .option("subscribe", query.topic)
        .option("startingOffsets", "earliest")
        .options(**query.source_options)
    )
    if query.rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(query.rows_per_batch))
    rows = reader.load()
    for selection in query.selections:
        rows = rows.selectExpr(*selection)
    if query.sink in _TOPIC_SINKS:
        rows = rows.select("key", "value")
    writer = (
        rows.writeStream.format(query.sink)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .options(**query.sink_options)
        .trigger(availableNow=True)
    )
    if query.sink in _TABLE_SINKS:
        writer = writer.option("path", table)
    if query.sink == "delta_once":
        writer = writer.option("appId", query.app_id)
    return writer.start()


def _batch(durations_ms: Mapping[str, int]) -> Batch:
    planning_ms = sum(durations_ms.get(part, 0) for part in PLANNING)
    return Batch(durations_ms["triggerExecution"] / 1000, planning_ms / 1000)


def _watch(running: StreamingQuery) -> list[tuple[int, float]]:
    found = []
    while not running.awaitTermination(_WATCH_EVERY_S):
        last = running.lastProgress
        used = _memory_mb(os.getpid(), PLANNER)
        if last is not None and used:
            found.append((last.batchId + 1, sum(used.values())))
    return found


def count(table: str) -> Counted:
    """Count the rows of a table, and the nulls of its columns, by its log."""
    import pyarrow as pa
    from deltalake import DeltaTable

    files = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    sums = {
        name: sum(number or 0 for number in files.column(name).to_pylist())
        for name in files.schema.names
        if name == "num_records" or name.startswith("null_count.")
    }
    return Counted(sums.pop("num_records", 0), {name.partition(".")[2]: found for name, found in sums.items()})


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, that a process and its descendants have taken, the ended ones too."""
    total = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # the last two are of children that were waited for
        except psutil.NoSuchProcess:
            continue
    return total


def _memory_mb(pid: int, word: str) -> dict[int, float]:
    """Return the resident memory of the descendants of a process whose command has ``word`` in it, by process id."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if any(word in part for part in process.cmdline()):
                found[process.pid] = process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return found


def main() -> None:
    """Answer requests until the input ends."""
    answer = event_writer()
    conf: dict[str, str] = json.loads(sys.argv[1])
    spark = spark_session("sparkonce bench", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    answer(ready=spark.version)
    for line in sys.stdin:
        try:
            answer(**asdict(run_query(spark, Query(**json.loads(line)))))
        except Exception as error:  # the parent decides what a failed query means
            answer(error=f"{type(error).__name__}: {error}"[:_MOST_OF_AN_ERROR])
    spark.stop()


if __name__ == "__main__":
    main()
