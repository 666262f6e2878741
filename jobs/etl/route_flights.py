"""Flights from Kafka to Kafka: those that left, into a topic for each airport; the others among the dead letters.

Each flight comes out once, for ``read_committed`` readers, and so does each record that could not be used: rows, dead
letters and the offsets that they were read from are decided in one transaction. Kill the job at any moment, delete its
checkpoint too: with `offsetStore` on the source it goes on where the decided batches end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, concat, expr, lit, struct, to_json
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.connectors.sinks import dead_letters
from sparkonce.connectors.values.letters import COLUMN
from sparkonce.jobs.etl import dataset
from sparkonce.jobs.etl.enrich_flights import flight_columns
from sparkonce.jobs.etl.job_settings import JobSettings, run_job
from sparkonce.kafka.client.settings import COMMON, SECURITY
from sparkonce.options import KAFKA_PREFIX

OWN = ("dead_letters", "compression", "latest_minutes_early")
"""The additional entries of its configuration."""
RESULT = "topics"
"""The entry with the result's location."""
ORIGIN = "{origin}"
"""The placeholder of the airport in a topic's name."""


def start(spark: SparkSession, settings: JobSettings, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("kafka_once")
        .options(**settings.kafka)
        .option("offsetStore", f"group:{settings.app_id}")
        .option("appId", settings.app_id)
        .load()
    )
    return (
        routed(spark, records, settings.result, int(settings.own["latest_minutes_early"]))
        .writeStream.format("kafka_once")
        .options(**connection(settings.kafka), **settings.storage_options)
        .option("kafka.compression.type", settings.own["compression"])
        .option("appId", settings.app_id)
        .option("deliveryGuarantee", settings.delivery_guarantee)
        .option("deadLetters", settings.own["dead_letters"])
        .option("checkpointLocation", settings.checkpoint)
        .trigger(**trigger)
        .start()
    )


def routed(spark: SparkSession, records: DataFrame, topics: str, latest_minutes_early: int) -> DataFrame:
    """Return topic, key and value of each flight that left: the key is its route, the value JSON with its airline.

    Args:
        spark: the session.
        records: flights as JSON, with the columns of ``kafka_once``.
        topics: the name of the topic; ``{origin}`` in it stands for the airport.
        latest_minutes_early: a flight that left earlier than that is considered wrong.
    """
    marked = dead_letters.mark(records, json=flight_columns(), rules=rules(latest_minutes_early))
    named = marked.join(broadcast(spark.createDataFrame(dataset.airlines())), "carrier", "left")
    route = concat("origin", lit("-"), "dest")
    scheduled = expr("make_timestamp_ntz(year, month, day, sched_dep_time div 100, sched_dep_time % 100, 0)")
    flight = struct(
        "flight_id", "carrier", "airline", "flight", "tailnum", route.alias("route"), "distance",
        scheduled.alias("scheduled"), "dep_delay", "arr_delay",
    )  # fmt: skip
    return named.select(
        topic_of(topics).alias("topic"),
        route.cast("binary").alias("key"),
        to_json(flight).cast("binary").alias("value"),
        COLUMN,
    )


def rules(latest_minutes_early: int) -> dict[str, Column]:
    """Return the conditions for dead letters, by their reason."""
    return {
        "the flight has no number or no airports": expr("flight_id IS NULL OR origin IS NULL OR dest IS NULL"),
        "the flight was cancelled: it has no departure": col("dep_time").isNull(),
        f"the flight left more than {latest_minutes_early} minutes early": col("dep_delay") < -latest_minutes_early,
    }


def topic_of(topics: str) -> Column:
    """Return the topic of a row."""
    before, found, after = topics.partition(ORIGIN)
    return concat(lit(before), col("origin"), lit(after)) if found else lit(topics)


def connection(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options for cluster and authentication: the sink uses them too."""
    known = {KAFKA_PREFIX + name for name in (*COMMON, *SECURITY)}
    return {name: value for name, value in kafka.items() if name in known}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_job(str(__doc__).partition("\n")[0], "route_flights", start, OWN, arguments, result=RESULT)


if __name__ == "__main__":
    sys.exit(main())
