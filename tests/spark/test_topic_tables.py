"""One query, a table for each topic: each table has its records once, whichever of the commits had landed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lab.crash_plans import arm, disarm
from sparkonce import OptionError, write_stream
from tests.spark.sink_support import run
from tests.spark.source_support import PARTITIONS, PER_PARTITION, Topics, assert_each_record_once, fill, values

pytestmark = pytest.mark.spark


def test_rows_that_do_not_say_their_topic_are_refused(spark: SparkSession, topics: Topics, topic: str) -> None:
    rows = all_of(spark, topics, topic, handOver="rows")
    with pytest.raises(OptionError, match="is a table for each topic, and the rows do not say which"):
        write_stream(rows).start("/nowhere/{topic}", appId="app", checkpointLocation="/nowhere/checkpoint")


def all_of(spark: SparkSession, topics: Topics, prefix: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    given = {"subscribePattern": f"^{prefix}", "startingOffsets": "earliest", "handOver": "ranges", **options}
    return reader.options(**given).load()


def filled(topics: Topics, topic: str) -> None:
    topics.create(name=topic)
    fill(topics, topic, 0)


def test_each_topic_has_its_table_and_a_new_topic_gets_one(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    tables, checkpoint, names = tmp_path / "tables" / "{topic}", tmp_path / "checkpoint", ["each.a", "each.b", "each.c"]
    for name in names[:2]:
        filled(topics, name)
    run(all_of(spark, topics, "each[.]", maxOffsetsPerTrigger=250), tables, checkpoint)
    filled(topics, names[2])
    topics.produce(names[0], values("more", 1), partition=0)
    run(all_of(spark, topics, "each[.]"), tables, checkpoint)
    for name in names[1:]:
        assert_each_record_once(tmp_path / "tables" / name, PER_PARTITION)
    first = DeltaTable(tmp_path / "tables" / names[0])
    assert first.to_pyarrow_table().num_rows == PARTITIONS * PER_PARTITION + 1
    commits = [each["sparkonce"] for each in first.history() if "sparkonce" in each]
    assert {each["appId"] for each in commits} == {f"app.{names[0]}"}
    assert {topic for each in commits for named in each["ranges"].values() for topic in named} == {names[0]}
    moved = len(DeltaTable(tmp_path / "tables" / names[1]).history())
    topics.produce(names[2], values("more", 1), partition=0)
    run(all_of(spark, topics, "each[.]"), tables, checkpoint)
    assert len(DeltaTable(tmp_path / "tables" / names[1]).history()) == moved, "nothing of its topic has moved"


def test_without_its_checkpoint_each_topic_begins_where_its_table_ends(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    tables, names = tmp_path / "{topic}", ["ends.a", "ends.b"]
    for name in names:
        filled(topics, name)
    run(all_of(spark, topics, "ends[.]"), tables, tmp_path / "first", appId="of.{topic}.once")
    fill(topics, names[0], PER_PARTITION)
    store = {"offsetStore": f"delta:{tables}", "appId": "of.{topic}.once"}
    run(all_of(spark, topics, "ends[.]", **store), tables, tmp_path / "second", appId="of.{topic}.once")
    assert_each_record_once(tmp_path / names[0], 2 * PER_PARTITION)
    assert_each_record_once(tmp_path / names[1], PER_PARTITION)


@pytest.mark.parametrize("anew", [False, True], ids=["gone", "anew"])
def test_a_logged_batch_goes_on_without_a_topic_that_is_gone_or_made_anew(
    spark: SparkSession, topics: Topics, tmp_path: Path, crash_folder: Path, anew: bool
) -> None:
    prefix = f"gone-{anew}"
    tables, names = tmp_path / "{topic}", [f"{prefix}.{each}" for each in "abc"]
    options = {"offsetStore": f"delta:{tables}", "appId": "app", "isolateTables": "true"}
    for name in names:
        filled(topics, name)
    arm(crash_folder, "gone", f"app.{names[1]}:sink.begun=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        run(all_of(spark, topics, f"{prefix}[.]", **options), tables, tmp_path / "checkpoint")
    disarm(crash_folder, "gone")
    topics.delete(names[1])
    if anew:
        filled(topics, names[1])
    for start in (PER_PARTITION, 2 * PER_PARTITION):
        fill(topics, names[0], start)
        run(all_of(spark, topics, f"{prefix}[.]", **options), tables, tmp_path / "checkpoint")
    assert_each_record_once(tmp_path / names[0], 3 * PER_PARTITION)
    assert_each_record_once(tmp_path / names[2], PER_PARTITION)
    assert DeltaTable(tmp_path / names[1]).to_pyarrow_table().num_rows == anew * PARTITIONS * PER_PARTITION
