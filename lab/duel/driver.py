"""One of the two drivers: a Spark session that runs the pipeline until it is killed.

A query that fails is followed by the next one, with a new checkpoint: the remedy that the error names.
The session is kept, since only a cold start of Spark is slow.

Started by `lab.duel.rival` as ``python -m lab.duel.driver SETTINGS_JSON``. Events: ``started`` with
Spark's id of each query, ``ended`` with that id and the error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from lab.child_process import event_writer
from lab.spark_process import essence
from lab.verify.cells import RecordPath
from sparkonce.connectors.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SESSION = {"spark.master": "local[2]", "spark.driver.memory": "1g"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of both drivers, equal except for the folder of the checkpoints."""

    bootstrap_servers: str
    topic: str
    table: str | None
    """The target table; None if `output_topic` is the target."""
    output_topic: str | None
    app_id: str
    checkpoints: str
    """A folder; each query gets a new one in it."""
    records_per_batch: int
    storage_options: Mapping[str, str]
    """The options with which delta-rs reaches the table."""
    path: str = RecordPath.SPARK.value
    """The value of a `RecordPath`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the target."""
        return ("key", "value") if self.table is None else ("key", "value", "partition", "offset")


def start(spark: SparkSession, settings: Settings, number: int) -> StreamingQuery:
    """Start a query at the stored offsets; it runs until it fails."""
    offset_store = f"group:{settings.app_id}" if settings.table is None else f"delta:{settings.table}"
    reader = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("subscribe", settings.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.records_per_batch))
        .option("offsetStore", offset_store)
        .option("appId", settings.app_id)
        .options(**_of_store(settings))
    )
    if RecordPath(settings.path) is RecordPath.DIRECT:
        records = reader.option("handOver", "ranges").option("columns", ",".join(settings.columns)).load()
    else:
        records = reader.load().select(*settings.columns)
    writer = _into_topic(records, settings) if settings.table is None else _into_table(records, settings)
    return (
        writer.option("checkpointLocation", str(Path(settings.checkpoints) / str(number)))
        .option("appId", settings.app_id)
        .option("deliveryGuarantee", "exactly-once")
        .start()
    )


def _into_table(records: DataFrame, settings: Settings) -> DataStreamWriter:
    writer = records.writeStream.format("delta_once")
    return writer.option("path", settings.table).options(**_of_store(settings))


def _of_store(settings: Settings) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in settings.storage_options.items()}


def _into_topic(records: DataFrame, settings: Settings) -> DataStreamWriter:
    writer = records.writeStream.format("kafka_once")
    return writer.option("kafka.bootstrap.servers", settings.bootstrap_servers).option("topic", settings.output_topic)


def _end_with_input() -> None:
    """End this process, and Spark with it, when its parent is gone."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    """Run queries until the process is killed."""
    threading.Thread(target=_end_with_input, name="watch the input", daemon=True).start()
    tell = event_writer()
    settings = Settings(**json.loads(sys.argv[1]))
    spark = spark_session("python -m lab.duel", **SESSION)
    spark.sparkContext.setLogLevel("OFF")
    for number in count():
        query = start(spark, settings, number)
        tell(started=str(query.id))
        error = "the query ended without an error"
        try:
            query.awaitTermination()
        except StreamingQueryException as failure:
            error = essence(str(failure))
        tell(ended=str(query.id), error=error)


if __name__ == "__main__":
    main()
