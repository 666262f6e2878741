"""The Spark job of the demo: flights from Kafka, parsed, enriched, into a Delta table.

With ``--direct`` the sink reads and parses them, and Spark never sees a flight; then nothing can be joined, so they are
written as they are.

A process of its own (``python -m sparkonce.jobs.demo.pipeline``), so that it can be killed like any other. It knows
nothing of kills: those are switched on from outside, by the environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from sparkonce.connectors.session import spark_session
from sparkonce.jobs.etl.enrich_flights import enriched, flight_columns


def run(arguments: argparse.Namespace) -> None:
    """Run the query until all current records of the topic are in the table."""
    spark = spark_session(
        "flights", **{"spark.master": arguments.master, "spark.driver.memory": arguments.driver_memory}
    )
    source, rows, sink = _direct() if arguments.direct else _through_spark(spark)
    records = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.max_offsets_per_trigger)
        .option("offsetStore", f"delta:{arguments.table}")
        .option("appId", arguments.app_id)
        .options(**source)
        .load()
    )
    query = (
        rows(records)
        .writeStream.format("delta_once")
        .options(**sink)
        .option("checkpointLocation", arguments.checkpoint)
        .option("appId", arguments.app_id)
        .option("deliveryGuarantee", "exactly-once")
        .option("partitionBy", arguments.partition_by)
        .trigger(availableNow=True)
        .start(arguments.table)
    )
    query.awaitTermination()
    spark.stop()


_Way = tuple[Mapping[str, str], Callable[[DataFrame], DataFrame], Mapping[str, str]]
"""Options of the source, the transformation of its rows, and options of the sink."""


def _through_spark(spark: SparkSession) -> _Way:
    return {}, lambda records: enriched(spark, records), {}


def _direct() -> _Way:
    source = {"handOver": "ranges", "valueFormat": "json", "valueSchema": flight_columns()}
    sql = "SELECT value.*, partition AS kafka_partition, offset AS kafka_offset FROM records"
    return source, lambda ranges: ranges, {"sql": sql}


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
    parser.add_argument("--direct", action="store_true", help="let the sink read the records")
    return parser.parse_args()


if __name__ == "__main__":
    run(_arguments())
