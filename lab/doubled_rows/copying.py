"""A query that copies a topic to another, through Spark's own connector or ours, and the fault in it.

The fault is a step of the query (`mapInArrow`), so it affects both sinks at the same record. The first attempt that
reaches this record writes a mark, and waits: rows before it are on their way to the sink, rows after it are not. The
supervisor (`lab.doubled_rows.kills`) decides what happens to the task, once it has seen the task's rows
in the output topic. Later attempts find the mark and continue.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JVM, OURS = "jvm", "sparkonce"
HOLD_LIMIT_S = 120.0
PRODUCER_BATCH_BYTES = 16384
"""`batch.size` of both producers, Java's default: with ours, the few rows of a task would be sent at its end."""
_LOOK_EVERY_S = 0.02
_MARK, _VERDICT = "mark.json", "verdict"
_COLUMNS = "key binary, value binary"


class InjectedError(RuntimeError):
    """The requested failure of a task."""


class End(Enum):
    """What happens to a waiting task."""

    RAISE = "raise"
    DIE = "die"
    """SIGKILL of the Python process that runs this step."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a waiting task: input partition, first offset read, and current offset."""

    partition: int
    first: int
    at: int


@dataclass(frozen=True, slots=True)
class Copy:
    """One query; ``pipeline`` is `JVM` or `OURS`."""

    pipeline: str
    bootstrap_servers: str
    source: str
    target: str
    app_id: str
    checkpoint: str
    records_per_batch: int
    fault_folder: str | None
    fault_partition: int
    fault_offset: int


def start(spark: SparkSession, copy: Copy) -> StreamingQuery:
    """Start the query; it ends when it has read all available records."""
    ours = copy.pipeline == OURS
    at_group = {"offsetStore": f"group:{copy.app_id}", "appId": copy.app_id} if ours else {}
    records = (
        spark.readStream.format("kafka_once" if ours else "kafka")
        .option("kafka.bootstrap.servers", copy.bootstrap_servers)
        .option("subscribe", copy.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(copy.records_per_batch))
        .options(**at_group)
        .load()
        .select("key", "value", "partition", "offset")
    )
    guarantee = {"deliveryGuarantee": "exactly-once", "appId": copy.app_id} if ours else {}
    return (
        records.mapInArrow(fault(copy), _COLUMNS)
        .writeStream.format("kafka_once" if ours else "kafka")
        .option("kafka.bootstrap.servers", copy.bootstrap_servers)
        .option("topic", copy.target)
        .option("kafka.batch.size", str(PRODUCER_BATCH_BYTES))
        .option("checkpointLocation", copy.checkpoint)
        .options(**guarantee)
        .trigger(availableNow=True)
        .start()
    )


def fault(copy: Copy) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the step of the query: it passes key and value on, and waits once at the record that ``copy`` names."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = None
        for batch in batches:
            if copy.fault_folder is not None:
                offsets = batch["offset"].filter(pc.equal(batch["partition"], copy.fault_partition))
                if len(offsets):
                    first = offsets[0].as_py() if first is None else first
                    if first <= copy.fault_offset <= offsets[-1].as_py():
                        _hold_once(Path(copy.fault_folder), Mark(copy.fault_partition, first, offsets[0].as_py()))
            yield batch.select(["key", "value"])

    return step


def mark_in(folder: Path) -> Mark | None:
    """Return the mark of a task; None if no task has reached the record yet."""
    path = folder / _MARK
    return Mark(**json.loads(path.read_text())) if path.exists() else None


def pronounce(folder: Path, end: End) -> None:
    """Decide what happens to the waiting task."""
    (folder / _VERDICT).write_text(end.value)


def _hold_once(folder: Path, mark: Mark) -> None:
    draft = folder / f"mark.{os.getpid()}"
    draft.write_text(json.dumps({"partition": mark.partition, "first": mark.first, "at": mark.at}))
    try:
        os.link(draft, folder / _MARK)  # the file is complete when it is seen, and the first one wins
    except FileExistsError:
        return
    deadline = time.monotonic() + HOLD_LIMIT_S
    while not (text := _verdict(folder)):
        if time.monotonic() > deadline:
            raise InjectedError(f"nobody said within {HOLD_LIMIT_S:g} s what becomes of this task")
        time.sleep(_LOOK_EVERY_S)
    if End(text) is End.DIE:
        os.kill(os.getpid(), signal.SIGKILL)
    raise InjectedError(f"injected failure at record {mark.at} of partition {mark.partition}")


def _verdict(folder: Path) -> str:
    path = folder / _VERDICT
    return path.read_text() if path.exists() else ""
