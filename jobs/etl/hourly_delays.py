"""How late flights leave, by airport and hour: a windowed aggregation, each batch merged into a Delta table.

A group changes as its flights come in, in update mode: so rows are updated in place, by `MergeWriter`. Its offsets lie
in a table of their own, inside the result's folder. The query keeps state, which lives in its checkpoint: unlike that
of a stateless query, this checkpoint must be kept.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, expr, from_json, window
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.connectors.delta_spark.merge import MergeWriter
from sparkonce.jobs.etl.enrich_flights import flight_columns
from sparkonce.jobs.etl.job_settings import JobSettings, run_job


def start(spark: SparkSession, settings: JobSettings, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Start the query."""
    writer = MergeWriter(
        settings.result,
        app_id=settings.app_id,
        checkpoint=settings.checkpoint,
        keys=["origin", "hour"],
        guarantee=settings.delivery_guarantee,
        storage_options=settings.storage,
    )
    records = (
        spark.readStream.format("kafka_once")
        .options(**settings.kafka, **settings.storage_options)
        .option("offsetStore", writer.offset_store)
        .option("appId", settings.app_id)
        .load()
    )
    return (
        hourly(records, settings.own["window"], settings.own["watermark"])
        .writeStream.foreachBatch(writer)
        .outputMode("update")
        .option("checkpointLocation", settings.checkpoint)
        .trigger(**trigger)
        .start()
    )


def hourly(records: DataFrame, window_length: str, watermark: str) -> DataFrame:
    """Count the flights that left each airport in each window of time, and average their delay in minutes.

    Times are those of New York's clocks, as they are in the records; cancelled flights have none and are left out.
    """
    flights = records.select(from_json(col("value").cast("string"), flight_columns()).alias("flight")).select(
        "flight.*"
    )
    scheduled = "make_timestamp(year, month, day, sched_dep_time div 100, sched_dep_time % 100, 0)"
    departed = expr(f"{scheduled} + make_interval(0, 0, 0, 0, 0, dep_delay, 0)")
    return (
        flights.where("dep_delay IS NOT NULL")
        .withColumn("departed", departed)
        .withWatermark("departed", watermark)
        .groupBy("origin", window("departed", window_length))
        .agg(count("*").alias("flights"), avg("dep_delay").alias("mean_delay"))
        .select("origin", col("window.start").alias("hour"), "flights", "mean_delay")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    description = str(__doc__).partition("\n")[0]
    return run_job(description, "hourly_delays", start, ("window", "watermark"), arguments, needs_delta_spark=True)


if __name__ == "__main__":
    sys.exit(main())
