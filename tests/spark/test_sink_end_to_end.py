"""From a broker to a table: `kafka_once` into `delta_once`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sink_support import run
from tests.spark.source_support import PER_PARTITION, Topics, assert_each_record_once, fill, stream

pytestmark = pytest.mark.spark


def rows_of(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    return stream(spark, topics, topic, **options).select("partition", "offset", "value")


def test_records_arrive_once_over_restarts_and_a_lost_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    run(rows_of(spark, topics, topic, maxOffsetsPerTrigger=250), table, checkpoint)
    assert_each_record_once(table, PER_PARTITION)
    fill(topics, topic, PER_PARTITION)
    run(rows_of(spark, topics, topic), table, checkpoint)
    assert_each_record_once(table, 2 * PER_PARTITION)
    fill(topics, topic, 2 * PER_PARTITION)
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match=f"overlap .*stored {2 * PER_PARTITION}, batch start 0"):
        run(rows_of(spark, topics, topic), table, checkpoint)
    assert_each_record_once(table, 2 * PER_PARTITION)
    shutil.rmtree(checkpoint)
    run(rows_of(spark, topics, topic, offsetStore=f"delta:{table}", appId="app"), table, checkpoint)
    assert_each_record_once(table, 3 * PER_PARTITION)
