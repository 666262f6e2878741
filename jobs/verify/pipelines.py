"""The pipeline that is made to fail: a topic into a Delta table, appended or merged, three small batches.

This module is what the session's process runs and the engine describes. The engine side sends a `Pipeline` as JSON; the
session side builds the query from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.verify.cells import Result

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COLUMNS = ("key", "value", "partition", "offset")
COUNT_COLUMN = "n"
"""Of a merged table: how often the record with this partition and offset was merged."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One query: from the topic's stored or earliest offsets to what is there now, then it ends."""

    app_id: str
    bootstrap_servers: str
    topic: str
    folder: str
    """Holds the table and the checkpoint."""
    guarantee: str
    result: str
    records_per_batch: int

    @property
    def table(self) -> Path:
        """Where the rows go."""
        return Path(self.folder) / "table"

    @property
    def checkpoint(self) -> Path:
        """What Spark remembers of the query."""
        return Path(self.folder) / "checkpoint"


def start(spark: SparkSession, pipeline: Pipeline) -> StreamingQuery:
    """Start the query; it ends by itself."""
    build = _merging if Result(pipeline.result) is Result.MERGE else _appending
    return (
        build(spark, pipeline).option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()
    )


def _records(spark: SparkSession, pipeline: Pipeline, offset_store: str) -> DataFrame:
    return (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", pipeline.bootstrap_servers)
        .option("subscribe", pipeline.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(pipeline.records_per_batch))
        .option("offsetStore", offset_store)
        .option("appId", pipeline.app_id)
        .load()
        .select(*COLUMNS)
    )


def _appending(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    return (
        _records(spark, pipeline, f"delta:{pipeline.table}")
        .writeStream.format("delta_once")
        .option("path", str(pipeline.table))
        .option("appId", pipeline.app_id)
        .option("deliveryGuarantee", pipeline.guarantee)
    )


def _merging(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    from connectors.delta_once.merge import MergeWriter

    writer = MergeWriter(
        str(pipeline.table), pipeline.app_id, str(pipeline.checkpoint), merge=_count, guarantee=pipeline.guarantee
    )
    records = _records(spark, pipeline, writer.offset_store).selectExpr("*", f"1 AS {COUNT_COLUMN}")
    return records.writeStream.foreachBatch(writer)


def _count(target: DeltaTable, rows: DataFrame) -> DeltaMergeBuilder:
    """Insert a record that is new, and count one that is known: what comes twice is to be seen."""
    same = "t.partition = s.partition AND t.offset = s.offset"
    again = {COUNT_COLUMN: f"t.{COUNT_COLUMN} + s.{COUNT_COLUMN}"}
    merge = target.alias("t").merge(rows.alias("s"), same)
    return merge.whenMatchedUpdate(set=again).whenNotMatchedInsertAll()
