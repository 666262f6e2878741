"""A query that copies a topic into a table or another topic, by our connectors or Spark's own, and the fault in it.

The fault is a step of the query (`mapInArrow`), so it strikes both at the same record: rows before it are on their way
to the sink, rows after it are not. The step reaches a crash point twice, as batches 0 and 1: at the first it waits
until rows have been seen in the output topic, at the second it fails as the supervisor has decided by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lab.verify.pipelines import COLUMNS, Pipeline, into_table, into_topic, read
from lab.verify.records import make
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STEP = SourcePoint.READ
HELD_PARTITION = 0
VALUE_BYTES = 300
PRODUCER_BATCH_BYTES = 16384
"""`batch.size` of both producers, Java's default: with ours, the few rows of a task would be sent at its end."""


@dataclass(frozen=True, slots=True)
class Copy(Pipeline):
    """One query."""

    by_spark: bool = field(default=False, kw_only=True)
    from_store: bool = field(default=True, kw_only=True)
    """Whether our source begins at the stored offsets."""
    held_at: int | None = field(default=None, kw_only=True)
    """The offset at which a task of `HELD_PARTITION` fails."""
    is_endless: bool = field(default=False, kw_only=True)
    """Whether it goes on when it has read all available records."""
    checkpoint_name: str = field(default="checkpoint", kw_only=True)

    @property
    def checkpoint(self) -> str:
        """See `Locations`; always in the local folder."""
        return f"{self.folder}/{self.checkpoint_name}"

    @property
    def app_id_of_step(self) -> str:
        """What crash plans call the fault's step, apart from the crash points of our source."""
        return f"{self.app_id}.step"

    def records(self, numbers: Sequence[int]) -> list[tuple[int, bytes, bytes]]:
        """See `Pipeline`; large enough that some thousands fill the buffers between the steps of a query."""
        return [(partition, key, value.ljust(VALUE_BYTES)) for partition, key, value in make(numbers)]


def start(spark: SparkSession, copy: Copy) -> StreamingQuery:
    """Start the query."""
    # The fault's step needs the offsets, too, and leaves them out.
    columns = ("key", "value") if copy.output_topic is not None and copy.held_at is None else COLUMNS
    if copy.by_spark:
        rows = _read_by_spark(spark, copy).select(*columns)
    else:
        store = f"delta:{copy.table}" if copy.output_topic is None else f"group:{copy.app_id}"
        rows = read(spark, copy, store if copy.from_store else None, columns)
    if copy.held_at is not None:
        rows = rows.mapInArrow(failing(copy.app_id_of_step, copy.held_at), "key binary, value binary")
    writer = _writer(rows, copy)
    if not copy.is_endless:
        writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", copy.checkpoint).start()


def _read_by_spark(spark: SparkSession, copy: Copy) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", copy.bootstrap_servers)
    reader = reader.option("subscribe", copy.topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", str(copy.records_per_batch)).load()


def _writer(rows: DataFrame, copy: Copy) -> DataStreamWriter:
    if copy.output_topic is None:
        return rows.writeStream.format("delta").option("path", copy.table) if copy.by_spark else into_table(rows, copy)
    writer = rows.writeStream.format("kafka") if copy.by_spark else into_topic(rows, copy)
    writer = writer.option("kafka.bootstrap.servers", copy.bootstrap_servers).option("topic", copy.output_topic)
    return writer.option("kafka.batch.size", str(PRODUCER_BATCH_BYTES))


def failing(app_id: str, held_at: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the step: it passes key and value on, and reaches the crash point at the record with this offset."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            offsets = batch["offset"].filter(pc.equal(batch["partition"], HELD_PARTITION))
            if len(offsets) and offsets[0].as_py() <= held_at <= offsets[-1].as_py():
                reach(STEP, 0, app_id)
                reach(STEP, 1, app_id)
            yield batch.select(["key", "value"])

    return step
