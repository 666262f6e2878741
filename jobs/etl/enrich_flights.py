"""Flights from Kafka, joined with their airlines and planes, appended to a Delta table: each flight once.

The rows, and the offsets that they were read from, go into the table in one commit. So the query may be killed at any
moment, and even its checkpoint may be deleted: with `offsetStore` on the source, a new one begins where the table ends.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, from_json
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.jobs.etl import dataset
from sparkonce.jobs.etl.job_settings import JobSettings, run_job


def start(spark: SparkSession, settings: JobSettings, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("kafka_once")
        .options(**settings.kafka, **settings.storage_options)
        .option("offsetStore", f"delta:{settings.result}")
        .option("appId", settings.app_id)
        .load()
    )
    return (
        enriched(spark, records)
        .writeStream.format("delta_once")
        .options(**settings.storage_options)
        .option("appId", settings.app_id)
        .option("deliveryGuarantee", settings.delivery_guarantee)
        .option("partitionBy", settings.own["partition_by"])
        .option("checkpointLocation", settings.checkpoint)
        .trigger(**trigger)
        .start(settings.result)
    )


def enriched(spark: SparkSession, records: DataFrame) -> DataFrame:
    """Parse the JSON of each record and look up its airline and its plane."""
    parsed = records.select(
        from_json(col("value").cast("string"), flight_columns()).alias("flight"),
        col("partition").alias("kafka_partition"),
        col("offset").alias("kafka_offset"),
    ).select("flight.*", "kafka_partition", "kafka_offset")
    return parsed.join(broadcast(spark.createDataFrame(dataset.airlines())), "carrier", "left").join(
        broadcast(spark.createDataFrame(dataset.planes())), "tailnum", "left"
    )


def flight_columns() -> str:
    """Return the columns of a flight as Spark SQL declares them."""
    names = {pa.int32(): "INT", pa.string(): "STRING"}
    return ", ".join(f"{field.name} {names[field.type]}" for field in dataset.FLIGHTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_job(str(__doc__).partition("\n")[0], "enrich_flights", start, ("partition_by",), arguments)


if __name__ == "__main__":
    sys.exit(main())
