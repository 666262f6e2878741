"""Many topics into Delta tables by Spark's own connectors: a query for each topic, or one with a loop in foreachBatch.

Started by `lab.bench.many` as ``python -m lab.bench.many_spark JOB_JSON``; runs until it is terminated.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkonce.connectors.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True)
class Job:
    """What is to run."""

    conf: Mapping[str, str]
    bootstrap_servers: str
    topics: Sequence[str]
    folder: str
    """Where tables and checkpoints go."""
    trigger_s: int
    is_loop: bool
    """Whether one query writes all tables, one after the other, and not each a query."""

    def start(self, spark: SparkSession) -> None:
        """Start the queries."""
        if self.is_loop:
            self._writer(self._rows(spark, self.topics), "all").foreachBatch(self._write_each).start()
            return
        for topic in self.topics:
            writer = self._writer(self._rows(spark, [topic]), topic).format("delta")
            writer.option("path", f"{self.folder}/tables/{topic}").start()

    def _rows(self, spark: SparkSession, topics: Sequence[str]) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap_servers)
        return reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest").load()

    def _writer(self, rows: DataFrame, name: str) -> DataStreamWriter:
        writer = rows.writeStream.option("checkpointLocation", f"{self.folder}/checkpoints/{name}")
        return writer.trigger(processingTime=f"{self.trigger_s} seconds")

    def _write_each(self, rows: DataFrame, _batch_id: int) -> None:
        from pyspark.sql import functions

        rows.persist()
        for topic in self.topics:
            of_topic = rows.where(functions.col("topic") == topic)
            of_topic.write.format("delta").mode("append").save(f"{self.folder}/tables/{topic}")
        rows.unpersist()


def main() -> None:
    """Run the job of the command line."""
    job = Job(**json.loads(sys.argv[1]))
    spark = spark_session("many", **job.conf)
    job.start(spark)
    threading.Event().wait()


if __name__ == "__main__":
    main()
