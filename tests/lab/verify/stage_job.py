"""A query with a shuffle into a topic, on two executors: its settings as JSON are the only argument."""

from __future__ import annotations

import json
import sys

from sparkonce.connectors.session import spark_session


def main() -> None:
    """Run until everything that was there is sent."""
    settings = json.loads(sys.argv[1])
    spark = spark_session("a stage that is run again", **settings["conf"])
    common = {"kafka.bootstrap.servers": settings["servers"], "appId": settings["app_id"]}
    records = (
        spark.readStream.format("kafka_once")
        .options(**common)
        .options(subscribe=settings["topic"], startingOffsets="earliest", offsetStore=f"group:{settings['app_id']}")
        .options(minPartitions="2", maxOffsetsPerTrigger=str(settings["records_per_batch"]))
        .load()
    )
    query = (
        records.select("key", "value")
        .repartition(2, "key")
        .writeStream.format("kafka_once")
        .options(**common)
        .options(topic=settings["output"], deliveryGuarantee=settings["guarantee"])
        .option("checkpointLocation", settings["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
