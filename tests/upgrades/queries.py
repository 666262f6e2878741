"""Queries that an older version of the code left behind: their checkpoints, tables, and the broker's files.

``python tests/upgrades/queries.py ARCHIVE`` makes them, with whichever code is on the path:

    git worktree add ../older COMMIT
    PYTHONPATH=../older python tests/upgrades/queries.py tests/upgrades/COMMIT.tar.xz

Each query has written two batches, and the process died before Spark noted the end of the second.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

TOPIC, COPY = "orders", "orders-copy"
BATCHES = ((0, 5), (5, 9))
"""The numbers that the records of each of the batches have; even ones are in partition 0, odd ones in 1."""
BROKER, QUERIES = "broker", "queries"


def value(number: int) -> bytes:
    """Return the value of a record."""
    return f"order-{number}".encode()


def _orders(spark: SparkSession, servers: str) -> DataFrame:
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", servers)
    stream = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    return stream.selectExpr("CAST(value AS STRING) AS value")


def _delta(spark: SparkSession, servers: str) -> DataStreamWriter:
    return _orders(spark, servers).writeStream.format("delta_once").option("appId", "upgrade-delta")


def _stateful(spark: SparkSession, servers: str) -> DataStreamWriter:
    distinct = _orders(spark, servers).dropDuplicates(["value"])
    return distinct.writeStream.format("delta_once").option("appId", "upgrade-stateful")


def _kafka(spark: SparkSession, servers: str) -> DataStreamWriter:
    writer = _orders(spark, servers).writeStream.format("kafka_once").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", COPY).option("appId", "upgrade-kafka")


WRITERS: Mapping[str, Callable[[SparkSession, str], DataStreamWriter]] = {
    "delta": _delta,
    "stateful": _stateful,
    "kafka": _kafka,
}


def run(name: str, spark: SparkSession, servers: str, folder: Path) -> None:
    """Run one of the queries on what is in the topic; ``folder`` is where all of them have their files."""
    writer = WRITERS[name](spark, servers).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
    query = writer.start() if name == "kafka" else writer.start(str(folder / name / "table"))
    query.awaitTermination()


def produce(servers: str, numbers: range) -> None:
    """Put records into the topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce(TOPIC, value(number), partition=number % 2)
    assert producer.flush(60) == 0


def make(archive: Path) -> None:
    """Run all queries, and pack what they leave behind."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from sparkonce import EmbeddedBroker, spark_session

    settings: dict[str, Any] = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": "false"}
    spark = spark_session("upgrade", **settings)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
        with EmbeddedBroker(data_dir=folder / BROKER, config=small) as broker:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            for future in admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(COPY, 2, 1)]).values():
                future.result(60)
            for numbers in BATCHES:
                produce(servers, range(*numbers))
                for name in WRITERS:
                    run(name, spark, servers, folder / QUERIES)
        spark.stop()
        for name in WRITERS:
            for suffix in ("1", ".1.crc"):
                (folder / QUERIES / name / "checkpoint/commits" / suffix).unlink(missing_ok=suffix != "1")
        with tarfile.open(archive, "w:xz") as packed:
            for part in (BROKER, QUERIES):
                packed.add(folder / part, arcname=part, filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    make(Path(sys.argv[1]))
