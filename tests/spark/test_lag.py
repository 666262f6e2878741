"""The lag listener on real queries, and group offsets after the last batch of a run, as lag tools see them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce import LagListener
from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark
DEADLINE_S = 60


@pytest.fixture
def group() -> str:
    return f"lag-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[LagListener]:
    with LagListener(spark).start() as running:
        yield running


def stream(spark: SparkSession, topics: Topics, topic: str, form: str = "kafka_once", **options: str) -> DataFrame:
    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def run(frame: DataFrame, folder: Path, name: str, **trigger: bool) -> StreamingQuery:
    writer = frame.writeStream.format("noop").queryName(name).option("checkpointLocation", str(folder))
    query = writer.trigger(**trigger).start()  # type: ignore[arg-type]
    assert query.awaitTermination(DEADLINE_S)
    return query


def committed(topics: Topics, group: str) -> dict[int, int]:
    admin = KafkaAdminClient(bootstrap_servers=topics.bootstrap_servers)
    try:
        answer = admin.list_group_offsets(group)
        return {tp.partition: entry.offset for tp, entry in answer.get(group, answer).items()}
    finally:
        admin.close()


def figures(listener: LagListener, name: str) -> tuple[int, int, list[tuple[int, int, int | None]]]:
    (query,) = [each for each in listener.queries() if each.name == name]
    (source,) = query.sources
    return query.batches, query.rows, [(each.partition, each.next, each.latest) for each in source.partitions]


def test_lag_of_each_batch_and_the_last_ones_offsets_in_the_group(
    spark: SparkSession, topics: Topics, tmp_path: Path, listener: LagListener, group: str
) -> None:
    topic = topics.create(2)
    topics.produce(topic, values("a", 6), partition=0)
    topics.produce(topic, values("b", 2), partition=1)
    name = f"run-{group}"
    limited = stream(spark, topics, topic, commitGroup=group, maxOffsetsPerTrigger="4")
    query = run(limited, tmp_path, name, availableNow=True)
    assert committed(topics, group) == {0: 6, 1: 2}, "the source commits its last batch by itself"
    assert listener.wait(query, DEADLINE_S)
    assert figures(listener, name) == (2, 8, [(0, 6, 6), (1, 2, 2)])
    first = query.recentProgress[0].sources[0]
    assert first.latestOffset != first.endOffset
    text = listener.metrics_text()
    assert f'sparkonce_rows_total{{query="{name}",query_id="{query.id}"}} 8.0' in text
    assert f'sparkonce_query_active{{query="{name}",query_id="{query.id}"}} 0.0' in text
    assert "sparkonce_listener_errors_total 0.0" in text


def test_the_listener_commits_the_one_batch_of_trigger_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, listener: LagListener, group: str
) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("a", 5))
    name = f"run-{group}"
    listener.commit_group(group, {"kafka.bootstrap.servers": topics.bootstrap_servers}, query=name)
    query = run(stream(spark, topics, topic), tmp_path, name, once=True)
    assert listener.wait(query, DEADLINE_S)
    assert committed(topics, group) == {0: 5}


def test_lag_of_sparks_own_connector(
    jvm_kafka_spark: SparkSession, topics: Topics, tmp_path: Path, listener: LagListener, group: str
) -> None:
    topic = topics.create(2)
    topics.produce(topic, values("a", 6), partition=0)
    name = f"run-{group}"
    listener.commit_group(group, {"kafka.bootstrap.servers": topics.bootstrap_servers}, query=name)
    query = run(stream(jvm_kafka_spark, topics, topic, "kafka"), tmp_path, name, availableNow=True)
    assert listener.wait(query, DEADLINE_S)
    assert figures(listener, name) == (1, 6, [(0, 6, 6), (1, 0, 0)])
    (source,) = next(each for each in listener.queries() if each.name == name).sources
    theirs = query.recentProgress[0].sources[0].metrics
    assert {figure: float(theirs[figure]) for figure in source.metrics} == source.metrics
    assert committed(topics, group) == {0: 6, 1: 0}


def test_a_listener_that_fails_does_not_stop_a_query(
    spark: SparkSession, topics: Topics, tmp_path: Path, listener: LagListener, group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def broken(*_: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr("sparkonce.connectors.lag.listener.read_batch", broken)
    topic = topics.create(1)
    topics.produce(topic, values("a", 5))
    query = run(stream(spark, topics, topic), tmp_path, f"run-{group}", availableNow=True)
    assert listener.wait(query, DEADLINE_S)
    assert query.exception() is None
    assert "sparkonce_listener_errors_total 1.0" in listener.metrics_text()
