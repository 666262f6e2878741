"""Copy a topic into a Delta table: the job of docs/deployment, for spark-submit.

Everything that differs between places is an argument, or an environment variable where it is a secret.
"""

from __future__ import annotations

import argparse
import os
import sys

from sparkonce import spark_session


def main(arguments: list[str]) -> None:
    """Run until it is stopped; with ``--once`` until it has read what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--table", required=True, help="path or URI of the table")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--storage", action="append", default=[], metavar="NAME=VALUE", help="an option storage.*")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args(arguments)

    spark = spark_session("orders")
    kafka = {"kafka.bootstrap.servers": options.bootstrap_servers}
    if "KAFKA_JAAS" in os.environ:
        kafka |= {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": os.environ["KAFKA_JAAS"]}
    storage = {f"storage.{name}": value for name, _, value in (each.partition("=") for each in options.storage)}
    orders = (
        spark.readStream.format("kafka_once")
        .options(**kafka, **storage)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("offsetStore", f"delta:{options.table}")  # a new checkpoint begins where the table ends
        .option("appId", "orders")
        .load()
    )
    writer = (
        orders.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        .writeStream.format("delta_once")
        .options(**storage)
        .option("appId", "orders")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime="10 seconds")
    trigger.start(options.table).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
