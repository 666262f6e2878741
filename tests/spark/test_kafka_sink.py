"""`kafka_once` as the sink of a stream: all at once, with a table of dead letters, from two sources."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lab.crash_plans import arm, fired
from sparkonce.connectors.kafka_sink.transactions import TransactionClient, transactional_prefix
from sparkonce.connectors.sinks.dead_letters import mark
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from tests.spark.source_support import Topics, batch

pytestmark = pytest.mark.spark

RECORDS, PARTITIONS = 20, 2


def fill(topics: Topics) -> str:
    topic = topics.create(PARTITIONS)
    for partition in range(PARTITIONS):
        topics.produce(topic, [b"%d-%d" % (partition, number) for number in range(RECORDS)], partition=partition)
    return topic


EVERY = [b"%d-%d" % (partition, number) for partition in range(PARTITIONS) for number in range(RECORDS)]


def read(spark: SparkSession, topics: Topics, topic: str, app_id: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    reader = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="24")
    return reader.options(**{"appId": app_id, "offsetStore": f"group:{app_id}", **options}).load()


def write(rows: DataFrame, topics: Topics, topic: str, app_id: str, folder: Path, **options: str) -> None:
    writer = rows.writeStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    writer = writer.options(**{"topic": topic, "appId": app_id, **options})
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def committed(spark: SparkSession, topics: Topics, topic: str) -> Counter[bytes]:
    options = {"kafka.isolation.level": "read_committed"}
    return Counter(bytes(row.value) for row in batch(spark, topics, topic, **options).select("value").collect())


def open_transactions(topics: Topics, app_id: str) -> list[str]:
    client = Client(read_settings({"kafka.bootstrap.servers": topics.bootstrap_servers}))
    try:
        return TransactionClient(client).open_transactions(transactional_prefix(app_id))
    finally:
        client.close()


def values(rows: DataFrame) -> DataFrame:
    return rows.select("key", "value")


def test_all_at_once_through_a_crash_and_a_deleted_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path, crash_folder: Path
) -> None:
    topic, out, app_id = fill(topics), topics.create(3), f"at-once-{uuid.uuid4().hex[:8]}"
    plan = arm(crash_folder, app_id, f"{app_id}:transaction.deciding@1=raise")
    rows = values(read(spark, topics, topic, app_id))
    with pytest.raises(StreamingQueryException, match=r"transaction\.deciding, batch 1"):
        write(rows, topics, out, app_id, tmp_path, atomicVisibility="true")
    assert fired(plan)
    assert sum(committed(spark, topics, out).values()) == 24
    assert not (tmp_path / "checkpoint" / "sparkonce-spool").exists()
    shutil.rmtree(tmp_path / "checkpoint")
    write(rows, topics, out, app_id, tmp_path, atomicVisibility="true")
    assert committed(spark, topics, out) == Counter(EVERY)
    assert open_transactions(topics, app_id) == []


def test_dead_letters_in_a_table(spark: SparkSession, topics: Topics, tmp_path: Path, crash_folder: Path) -> None:
    topic, out, app_id = fill(topics), topics.create(1), f"letters-{uuid.uuid4().hex[:8]}"
    arm(crash_folder, app_id, f"{app_id}:sink.between_targets@1=raise")
    marked = mark(read(spark, topics, topic, app_id), rules={"partition 1": f.col("partition") == 1})
    rows = marked.select("key", "value", "_dead_letter")
    letters = {"deadLetters": f"table:{tmp_path / 'letters'}"}
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        write(rows, topics, out, app_id, tmp_path, **letters)
    shutil.rmtree(tmp_path / "checkpoint")
    write(rows, topics, out, app_id, tmp_path, **letters)
    assert committed(spark, topics, out) == Counter(value for value in EVERY if value.startswith(b"0"))
    dead = DeltaTable(tmp_path / "letters").to_pyarrow_table()
    assert Counter(dead["value"].to_pylist()) == Counter(value for value in EVERY if value.startswith(b"1"))
    assert open_transactions(topics, app_id) == []


def test_two_sources_and_a_weaker_guarantee_before(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    first, second, out = fill(topics), fill(topics), topics.create(2)
    app_id = f"two-{uuid.uuid4().hex[:8]}"
    rows = values(read(spark, topics, first, app_id, source="first")).union(
        values(read(spark, topics, second, app_id, source="second"))
    )
    write(rows, topics, out, app_id, tmp_path, deliveryGuarantee="at-least-once")
    topics.produce(first, [b"more"])
    write(rows, topics, out, app_id, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    topics.produce(second, [b"and more"])
    write(rows, topics, out, app_id, tmp_path)
    assert committed(spark, topics, out) == Counter([*EVERY, *EVERY, b"more", b"and more"])
    assert open_transactions(topics, app_id) == []
