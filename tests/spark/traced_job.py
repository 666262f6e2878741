"""Run by test_traces.py in a process of its own: what is traced is a matter of a process' environment."""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from sparkonce import LagListener, spark_session

RUNS = (("rows", 6), ("ranges", 6), ("refused", 11))
"""The names of queries, and the most records of a batch. The last writes to the table of the first, with another
checkpoint, when there are more records: a part of its first batch is in the table."""


def main(bootstrap_servers: str, topic: str, folder: Path) -> None:
    spark = spark_session("traced", **{"spark.master": "local[2]"})
    with LagListener(spark).start(port=None) as lag:
        for name, most in RUNS:
            if name == "refused":
                produce(bootstrap_servers, topic)
            hand_over = "ranges" if name == "ranges" else "rows"
            source = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", bootstrap_servers)
            source = source.option("subscribe", topic).option("startingOffsets", "earliest")
            rows = source.option("maxOffsetsPerTrigger", most).option("handOver", hand_over).load()
            sink = rows.writeStream.format("delta_once").queryName(name).option("appId", hand_over)
            sink = sink.option("checkpointLocation", str(folder / f"checkpoint-{name}")).trigger(availableNow=True)
            query = sink.start(str(folder / hand_over))
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if name != "refused" or "OffsetMismatchError" not in str(error):
                    raise
            lag.wait(query)
            print(name, query.id, query.runId)
    spark.stop()


def produce(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, b"one more")
    assert producer.flush(60) == 0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
