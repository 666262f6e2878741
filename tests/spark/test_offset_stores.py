"""`offsetStore` on sink and source, from Kafka into Delta: offsets beside the rows, apart from them, or copied."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lab.peers import missing_kafka_reason, run_tool
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store import open_store
from sparkonce.offset_store.errors import RowsWithoutOffsetsError
from sparkonce.offset_store.offsets import TopicPartition
from tests.spark.source_support import DEADLINE_S, Topics, values

pytestmark = pytest.mark.spark

APART = [
    ("delta", "at-least-once"),
    ("group", "at-most-once"),
    # Apache Kafka's tool looks at such a group, below.
    pytest.param("group", "at-least-once", marks=pytest.mark.lab),
]


def spec_of(kind: str, folder: Path) -> str:
    return f"delta:{folder / 'offsets'}" if kind == "delta" else f"group:{folder.name}-{uuid.uuid4().hex[:8]}"


def copy(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    folder: Path,
    *,
    sink: str,
    source: str,
    guarantee: str,
    **more: str,
) -> None:
    servers = {"kafka.bootstrap.servers": topics.bootstrap_servers}
    reader = spark.readStream.format("kafka_once").options(**servers, appId="copy", offsetStore=source)
    stream = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
    writer = stream.writeStream.format("delta_once").options(
        appId="copy", offsetStore=sink, deliveryGuarantee=guarantee
    )
    writer = writer.options(**{**(servers if sink.startswith("group:") else {}), **more})
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query.start(str(folder / "table")).awaitTermination()


def stored(folder: Path) -> Counter[bytes]:
    return Counter(DeltaTable(str(folder / "table")).to_pyarrow_table(columns=["value"])["value"].to_pylist())


def in_table(topics: Topics, topic: str, folder: Path) -> dict[int, int]:
    return in_store(topics, topic, f"delta:{folder / 'table'}")


def in_store(topics: Topics, topic: str, spec: str) -> dict[int, int]:
    """Read what the Delta table ``spec`` holds."""
    client = Client(read_settings({"kafka.bootstrap.servers": topics.bootstrap_servers}))
    found = client.topics([topic])[topic]
    client.close()
    partitions = [TopicPartition(topic, found.topic_id, number) for number in found.partitions]
    return {tp.partition: offset for tp, offset in open_store(spec, "copy").read("kafka", partitions).items()}


def in_group(topics: Topics, spec: str) -> dict[int, int]:
    """Ask as a lag tool does."""
    group_id = spec.removeprefix("group:")
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id]
    return {each.partition: each.offset for each in asked.result(DEADLINE_S).topic_partitions}


@pytest.mark.parametrize(("kind", "guarantee"), APART)
def test_offsets_live_apart_and_outlive_the_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path, kind: str, guarantee: str
) -> None:
    topic, spec = topics.create(2), spec_of(kind, tmp_path)
    topics.produce(topic, values("a", 30))
    copy(spark, topics, topic, tmp_path, sink=spec, source=spec, guarantee=guarantee)
    shutil.rmtree(tmp_path / "checkpoint")
    topics.produce(topic, values("b", 10))
    topics.produce(topic, values("c", 10), partition=1)
    copy(spark, topics, topic, tmp_path, sink=spec, source=spec, guarantee=guarantee)
    assert stored(tmp_path) == Counter(values("a", 30) + values("b", 10) + values("c", 10))
    found = in_store(topics, topic, spec) if kind == "delta" else in_group(topics, spec)
    assert found == {0: 40, 1: 10}
    commits = [
        entry["sparkonce"]["writes"] for entry in DeltaTable(tmp_path / "table").history() if "sparkonce" in entry
    ]
    assert commits == [["rows"]] * len(commits)
    with pytest.raises(
        RowsWithoutOffsetsError, match=r"set on source and sink the offsetStore .* that it was written with"
    ):
        in_table(topics, topic, tmp_path)


@pytest.mark.parametrize("kind", ["delta", "group"])
def test_exactly_once_keeps_them_in_the_table_and_copies_them(
    spark: SparkSession, topics: Topics, tmp_path: Path, kind: str
) -> None:
    topic, spec = topics.create(2), spec_of(kind, tmp_path)
    topics.produce(topic, values("a", 30))
    truth = f"delta:{tmp_path / 'table'}"
    copy(spark, topics, topic, tmp_path, sink=spec, source=truth, guarantee="exactly-once")
    assert in_table(topics, topic, tmp_path) == {0: 30}
    assert (in_store(topics, topic, spec) if kind == "delta" else in_group(topics, spec)) == {0: 30}
    assert stored(tmp_path) == Counter(values("a", 30))


def test_a_copy_that_fails_costs_no_batch_and_is_made_good(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, spec = topics.create(2), f"delta:{tmp_path / 'in-the-way' / 'offsets'}"
    truth = f"delta:{tmp_path / 'table'}"
    (tmp_path / "in-the-way").write_text("a file, where the store wants a folder")
    topics.produce(topic, values("a", 30))
    topics.produce(topic, values("b", 5), partition=1)
    copy(spark, topics, topic, tmp_path, sink=spec, source=truth, guarantee="exactly-once")
    assert stored(tmp_path) == Counter(values("a", 30) + values("b", 5))
    (tmp_path / "in-the-way").unlink()
    topics.produce(topic, values("c", 5))
    copy(spark, topics, topic, tmp_path, sink=spec, source=truth, guarantee="exactly-once")
    assert in_store(topics, topic, spec) == in_table(topics, topic, tmp_path) == {0: 35, 1: 5}


def test_a_copy_that_was_behind_leads_to_an_error_and_not_to_duplicates(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The source was given the copy rather than the table, and the copy missed the last batch."""
    topic, behind = topics.create(1), f"delta:{tmp_path / 'offsets'}"
    topics.produce(topic, values("a", 20))
    copy(spark, topics, topic, tmp_path, sink=behind, source=behind, guarantee="exactly-once")
    topics.produce(topic, values("b", 10))
    copy(spark, topics, topic, tmp_path, sink="table", source=behind, guarantee="exactly-once")
    shutil.rmtree(tmp_path / "checkpoint")
    topics.produce(topic, values("c", 5))
    with pytest.raises(StreamingQueryException) as error:
        copy(spark, topics, topic, tmp_path, sink="table", source=behind, guarantee="exactly-once")
    assert "an overlap with the table's offsets" in str(error.value)
    shutil.rmtree(tmp_path / "checkpoint")
    copy(spark, topics, topic, tmp_path, sink="table", source=f"delta:{tmp_path / 'table'}", guarantee="exactly-once")
    assert stored(tmp_path) == Counter(values("a", 20) + values("b", 10) + values("c", 5))


@pytest.mark.java
def test_kafka_s_own_tool_shows_the_lag_and_moves_the_offsets(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    reason = missing_kafka_reason()
    if reason:
        pytest.skip(reason)
    topic, spec = topics.create(1), spec_of("group", tmp_path)
    topics.produce(topic, values("a", 30))
    copy(spark, topics, topic, tmp_path, sink=spec, source=spec, guarantee="at-least-once")
    topics.produce(topic, values("b", 12))
    assert group_tool(topics, spec, "--describe")[1:6] == [topic, "0", "30", "42", "12"]
    # Its --reset-offsets is a rewind: after it, and without the old checkpoint, the records come again.
    group_tool(topics, spec, "--reset-offsets", "--topic", topic, "--to-offset", "25", "--execute")
    shutil.rmtree(tmp_path / "checkpoint")
    copy(spark, topics, topic, tmp_path, sink=spec, source=spec, guarantee="at-least-once")
    again = values("a", 5, start=25)
    assert stored(tmp_path) == Counter(values("a", 30) + values("b", 12) + again)


def group_tool(topics: Topics, spec: str, *args: str) -> list[str]:
    """Run `kafka-consumer-groups.sh`, and give the words of its table's only row."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    group_id = spec.removeprefix("group:")
    done = run_tool(tool, "--bootstrap-server", topics.bootstrap_servers, "--group", group_id, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(group_id)]
    return row.split()
