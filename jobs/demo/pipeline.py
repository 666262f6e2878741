"""The Spark job of the demo: flights from Kafka, parsed, enriched, into a Delta table.

A process of its own (``python -m sparkonce.jobs.demo.pipeline``), so that it can be killed like any other. It knows
nothing of kills: those are switched on from outside, by the environment.
"""

from __future__ import annotations

import argparse

from sparkonce.connectors.session import spark_session
from sparkonce.jobs.etl.enrich_flights import enriched


def run(arguments: argparse.Namespace) -> None:
    """Run the query until everything that is in the topic now is in the table."""
    spark = spark_session(
        "flights", **{"spark.master": arguments.master, "spark.driver.memory": arguments.driver_memory}
    )
    records = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.max_offsets_per_trigger)
        .option("offsetStore", f"delta:{arguments.table}")
        .option("appId", arguments.app_id)
        .load()
    )
    query = (
        enriched(spark, records)
        .writeStream.format("delta_once")
        .option("checkpointLocation", arguments.checkpoint)
        .option("appId", arguments.app_id)
        .option("deliveryGuarantee", "exactly-once")
        .option("partitionBy", arguments.partition_by)
        .trigger(availableNow=True)
        .start(arguments.table)
    )
    query.awaitTermination()
    spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sparkonce.jobs.demo.pipeline", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="folder of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="folder of Spark's checkpoint")
    parser.add_argument("--app-id", required=True)
    parser.add_argument("--partition-by", default="origin")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=30_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--driver-memory", default="1g")
    return parser.parse_args()


if __name__ == "__main__":
    run(_arguments())
