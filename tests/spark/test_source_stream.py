"""`spark.readStream.format("kafka_once")`: limits, restarts, replays, and what ends a query with a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.source_support import Topics, copied, run, start, values

pytestmark = pytest.mark.spark
EARLIEST = {"startingOffsets": "earliest"}


def failure(spark: SparkSession, topics: Topics, topic: str, folder: Path, **options: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        run(spark, topics, topic, folder, **options)
    return str(caught.value)


def offset_line(folder: Path, batch_id: int) -> dict[str, Any]:
    return json.loads((folder / "checkpoint" / "offsets" / str(batch_id)).read_text().splitlines()[-1])


def write_offset_line(folder: Path, batch_id: int, line: dict[str, Any]) -> None:
    path = folder / "checkpoint" / "offsets" / str(batch_id)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], json.dumps(line, separators=(",", ":"))]))
    path.with_name(f".{batch_id}.crc").unlink(missing_ok=True)


def forget_commit(folder: Path, batch_id: int) -> None:
    """Leave the checkpoint as a crash between planning a batch and committing it would."""
    for name in (str(batch_id), f".{batch_id}.crc"):
        (folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


def test_a_restart_goes_on_where_the_checkpoint_says(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.produce(topic, values("a", 100), codec="zstd")
    run(spark, topics, topic, tmp_path, **EARLIEST)
    before = sorted(path.name for path in (tmp_path / "checkpoint" / "offsets").iterdir())
    assert run(spark, topics, topic, tmp_path, **EARLIEST) == [], "without new records nothing is read"
    assert sorted(path.name for path in (tmp_path / "checkpoint" / "offsets").iterdir()) == before
    topics.produce(topic, values("b", 50), partition=1)
    progress = run(spark, topics, topic, tmp_path, **EARLIEST)
    assert sum(each["numInputRows"] for each in progress) == 50
    assert copied(spark, tmp_path) == sorted(values("a", 100) + values("b", 50))


def test_a_limit_is_shared_out_by_backlog(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.produce(topic, values("a", 90))
    topics.produce(topic, values("b", 10), partition=1)
    progress = run(spark, topics, topic, tmp_path, maxOffsetsPerTrigger="50", **EARLIEST)
    assert [each["numInputRows"] for each in progress] == [50, 50]
    first = offset_line(tmp_path, 0)["topics"][topic]["partitions"]
    assert (first["0"]["next"], first["1"]["next"]) == (45, 5)
    assert copied(spark, tmp_path) == sorted(values("a", 90) + values("b", 10))


def test_latest_is_where_a_stream_begins_by_default(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("old", 10))
    assert run(spark, topics, topic, tmp_path) == []
    topics.produce(topic, values("new", 3))
    run(spark, topics, topic, tmp_path)
    assert copied(spark, tmp_path) == sorted(values("new", 3))


def test_batch_0_is_replayed_alike_though_latest_has_moved(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """A crash after batch 0 was planned: Spark asks for the initial offset again, and the topic has grown."""
    topic = topics.create(1)
    topics.produce(topic, values("old", 10))
    query_options = {"startingOffsets": "latest"}
    run(spark, topics, topic, tmp_path, **query_options)
    (tmp_path / "checkpoint" / "commits").mkdir(exist_ok=True)
    topics.produce(topic, values("first", 5))
    run(spark, topics, topic, tmp_path, **query_options)
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "offsets").iterdir() if path.name.isdigit())
    for batch_id in range(last):  # as if the batch that read "first" had been the checkpoint's first
        for name in (str(batch_id), f".{batch_id}.crc"):
            (tmp_path / "checkpoint" / "offsets" / name).unlink(missing_ok=True)
            (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    (tmp_path / "checkpoint" / "offsets" / str(last)).rename(tmp_path / "checkpoint" / "offsets" / "0")
    (tmp_path / "checkpoint" / "offsets" / f".{last}.crc").unlink(missing_ok=True)
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink(missing_ok=True)
    forget_commit(tmp_path, last)
    topics.produce(topic, values("later", 7))
    progress = run(spark, topics, topic, tmp_path, out="replayed", **query_options)
    assert [each["numInputRows"] for each in progress] == [5, 7]
    assert copied(spark, tmp_path, "replayed") == sorted(values("first", 5) + values("later", 7))


def test_a_checkpoint_of_spark_s_own_connector_is_carried_on(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(2)
    topics.produce(topic, values("a", 10))
    run(spark, topics, topic, tmp_path, **EARLIEST)
    write_offset_line(tmp_path, 0, {topic: {"0": 10, "1": 0}})
    topics.produce(topic, values("b", 5))
    progress = run(spark, topics, topic, tmp_path)
    assert [each["numInputRows"] for each in progress] == [5]
    assert copied(spark, tmp_path) == sorted(values("a", 10) + values("b", 5))


def test_new_partitions_are_read_from_their_start(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """The checkpoint does not know partition 1, as if it had been added since."""
    topic = topics.create(2)
    topics.produce(topic, values("a", 3))
    run(spark, topics, topic, tmp_path, **EARLIEST)
    line = offset_line(tmp_path, 0)
    del line["topics"][topic]["partitions"]["1"]
    write_offset_line(tmp_path, 0, line)
    topics.produce(topic, values("b", 4), partition=1)
    run(spark, topics, topic, tmp_path, startingOffsets="latest")
    assert copied(spark, tmp_path) == sorted(values("a", 3) + values("b", 4))


def test_a_recreated_topic_is_an_error_not_a_silent_skip(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("a", 3))
    run(spark, topics, topic, tmp_path, **EARLIEST)
    topics.delete(topic)
    topics.create(1, topic)
    topics.produce(topic, values("b", 9))
    text = failure(spark, topics, topic, tmp_path, **EARLIEST)
    assert f"topic {topic} was deleted and created again" in text
    assert "checkpointLocation" in text


def test_a_log_that_ends_before_the_checkpoint_is_lost_data(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("a", 3))
    run(spark, topics, topic, tmp_path, **EARLIEST)
    line = offset_line(tmp_path, 0)
    line["topics"][topic]["partitions"]["0"]["next"] = 30
    write_offset_line(tmp_path, 0, line)
    text = failure(spark, topics, topic, tmp_path, **EARLIEST)
    assert f"records [3, 30) of {topic}-0 that this query has read are gone" in text
    assert "failOnDataLoss" in text
    assert run(spark, topics, topic, tmp_path, failOnDataLoss="false") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"subscribe": "absent"}, "topic 'absent' does not exist"),
        ({"offsetStore": "delta:/nowhere"}, "offsetStore needs appId"),
    ],
)
def test_errors_come_at_the_start(
    spark: SparkSession, topics: Topics, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    assert message in failure(spark, topics, topics.create(1), tmp_path, **options)


def test_a_missing_store_stores_nothing(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("a", 4))
    run(spark, topics, topic, tmp_path, offsetStore=f"delta:{tmp_path}/absent", appId="app", **EARLIEST)
    assert copied(spark, tmp_path) == sorted(values("a", 4))


def test_progress_tells_the_latest_offset(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("a", 8))
    query = start(spark, topics, topic, tmp_path, {**EARLIEST, "maxOffsetsPerTrigger": "4"})
    query.awaitTermination()
    (source,) = query.recentProgress[0]["sources"]
    assert json.loads(source["latestOffset"])["topics"][topic]["partitions"]["0"]["next"] == 8
