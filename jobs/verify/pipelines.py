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
    records = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", pipeline.bootstrap_servers)
        .option("subscribe", pipeline.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(pipeline.records_per_batch))
        .option("offsetStore", f"delta:{pipeline.table}")
        .option("appId", pipeline.app_id)
        .load()
        .select(*COLUMNS)
    )
    build = _merging if Result(pipeline.result) is Result.MERGE else _appending
    writer = build(spark, records, pipeline)
    return writer.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()


def _appending(_spark: SparkSession, records: DataFrame, pipeline: Pipeline) -> DataStreamWriter:
    return (
        records.writeStream.format("delta_once")
        .option("path", str(pipeline.table))
        .option("appId", pipeline.app_id)
        .option("deliveryGuarantee", pipeline.guarantee)
    )


def _merging(spark: SparkSession, records: DataFrame, pipeline: Pipeline) -> DataStreamWriter:
    raise NotImplementedError
