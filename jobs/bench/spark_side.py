"""One Spark session in a process of its own, which runs queries as the benchmark asks for them.

Started by `jobs.bench.pipelines` as ``python -m jobs.bench.spark_side SESSION_JSON``. Requests come as JSON lines on
the standard input, answers go as JSON lines to what was the standard output: Spark's own chatter is sent to stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TOPIC_SINKS = ("kafka", "kafka_once")
_TABLE_SINKS = ("delta", "delta_once")


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query from the earliest to the latest offset of a topic, into nothing, a new table or a topic.

    A topic, and where it is, are named by ``sink_options``; it gets keys and values, a table all columns.
    ``rows_per_batch`` None reads the topic in one micro-batch; ``conf`` is set on the session for its length.
    """

    source: str
    sink: str
    bootstrap_servers: str
    topic: str
    rows_per_batch: int | None
    conf: Mapping[str, str]
    sink_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a query took: all of it by the clock, and each micro-batch with rows by Spark's progress, in seconds."""

    wall_s: float
    rows: int
    batches_s: tuple[float, ...]


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
    began = time.perf_counter()
    reader = (
        spark.readStream.format(query.source)
        .option("kafka.bootstrap.servers", query.bootstrap_servers)
        .option("subscribe", query.topic)
        .option("startingOffsets", "earliest")
    )
    if query.rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(query.rows_per_batch))
    rows = reader.load()
    if query.sink in _TOPIC_SINKS:
        rows = rows.select("key", "value")
    writer = (
        rows.writeStream.format(query.sink)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .options(**query.sink_options)
        .trigger(availableNow=True)
    )
    if query.sink in _TABLE_SINKS:
        writer = writer.option("path", str(directory / "table"))
    if query.sink == "delta_once":
        writer = writer.option("appId", "bench")
    running = writer.start()
    running.awaitTermination()
    wall_s = time.perf_counter() - began
    progress = [json.loads(one.json) for one in running.recentProgress]
    with_rows = [one for one in progress if one["numInputRows"]]
    return Outcome(
        wall_s,
        sum(one["numInputRows"] for one in with_rows),
        tuple(one["durationMs"]["triggerExecution"] / 1000 for one in with_rows),
    )


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    conf: dict[str, str] = json.loads(sys.argv[1])
    spark = spark_session("sparkonce bench", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    _answer(answers, {"ready": spark.version})
    for line in sys.stdin:
        try:
            _answer(answers, asdict(run_query(spark, Query(**json.loads(line)))))
        except Exception as error:  # the parent decides what a failed query means
            _answer(answers, {"error": f"{type(error).__name__}: {error}"})
    spark.stop()


def _answer(answers: Any, document: Mapping[str, object]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
