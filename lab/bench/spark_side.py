"""One Spark session in a separate process, which runs queries on request.

Started by `lab.bench.sessions` as ``python -m lab.bench.spark_side SESSION_JSON``. Requests are JSON
lines on the standard input, answers JSON lines on the original standard output: Spark's own output goes to
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

from lab.bench.processes import cpu_s, memory_mb, peak_worker_mb
from lab.child_process import event_writer
from sparkonce.connectors.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


PLANNER = "python_streaming_source_runner"
"""A word in the command of the process in which a Python source plans, on the driver."""
PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit")
"""Parts of a micro-batch in Spark's progress: from asking for offsets to the write-ahead log."""
_TOPIC_SINKS = ("kafka", "kafka_once")
_TABLE_SINKS = ("delta", "delta_once")
_WATCH_EVERY_S = 1
_MOST_OF_AN_ERROR = 1500


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query from the earliest to the latest offset of a topic, into nothing, a table or a topic.

    ``sink_options`` name an output topic and its broker; it gets keys and values, a table all columns of the
    ``selections``, which are applied one after another. ``rows_per_batch`` None reads the topic in one
    micro-batch; ``conf`` is set on the session during the query. ``table`` None makes a table that is deleted later.
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
    """SQL expressions, as in ``selectExpr``."""
    where: str | None = None
    """A condition on the columns after the selections."""
    table: str | None = None
    app_id: str = "bench"
    count_table: bool = False
    """Whether to count the rows of the table."""
    java_functions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By its SQL name, the Java class of a function, and its return type as DDL."""
    watch_memory: bool = False
    """Whether to sample the planning process's memory during the query."""

    @property
    def is_direct(self) -> bool:
        """Whether Spark passes ranges of records, and not the records."""
        return self.source_options.get("handOver") == "ranges"


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch with rows, by Spark's progress, in seconds."""

    trigger_s: float
    """From the trigger to the end of the commit."""
    planning_s: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts by a table's log."""

    rows: int
    nulls: Mapping[str, int]
    """Nulls by column, where the statistics have them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a query: total time, the CPU time of the whole session, and each micro-batch with rows."""

    wall_s: float
    rows: int | None
    """Records read by Spark's count; None for a direct query, for which Spark counts the ranges."""
    batches: tuple[Batch, ...]
    cpu_s: float = 0.0
    table: Mapping[str, Any] | None = None
    """The fields of `Counted`, if requested."""
    memory_mb: Sequence[tuple[int, float]] = ()
    """The number of batches done, and the planning process's resident memory then."""
    peak_worker_mb: float = 0.0
    """The peak resident memory of the session's Python workers since their start."""


def run_query(spark: SparkSession, query: Query) -> Outcome:
    """Run a query to its end and delete its output."""
    for name, value in query.conf.items():
        spark.conf.set(name, value)
    for name, (java_class, returns) in query.java_functions.items():
        spark.udf.registerJavaFunction(name, java_class, returns)
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
        None if query.is_direct else sum(one["numInputRows"] for one in with_rows),
        tuple(_batch(one["durationMs"]) for one in with_rows),
        spent_s,
        asdict(count(table, read_files=query.is_direct)) if query.count_table else None,
        memory,
        peak_worker_mb(os.getpid()),
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
    if query.where is not None:
        rows = rows.where(query.where)
    if query.sink in _TOPIC_SINKS and not query.is_direct:
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
        used = memory_mb(os.getpid(), PLANNER)
        if last is not None and used:
            found.append((last.batchId + 1, sum(used.values())))
    return found


def count(table: str, *, read_files: bool = False) -> Counted:
    """Count the rows of a table, and the nulls of its columns, by its log.

    Raises:
        ValueError: if ``read_files``, and the files hold another number of rows than the log.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    files = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    sums = {
        name: sum(number or 0 for number in files.column(name).to_pylist())
        for name in files.schema.names
        if name == "num_records" or name.startswith("null_count.")
    }
    rows = sums.pop("num_records", 0)
    if read_files:
        held = sum(pq.read_metadata(str(Path(table, path))).num_rows for path in files.column("path").to_pylist())
        if held != rows:
            raise ValueError(f"the log of {table} says {rows} rows, and its files hold {held}")
    return Counted(rows, {name.partition(".")[2]: found for name, found in sums.items()})


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
