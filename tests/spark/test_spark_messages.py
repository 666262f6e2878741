"""What docs/spark_messages.md says of Spark's own messages: they come as written there, and the ways out lead out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from sparkonce import explain, register, spark_session, write_stream
from tests.spark.sink_support import NumbersSource, numbers, run

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).resolve().parents[2] / "docs/spark_messages.md").read_text()


@pytest.fixture(autouse=True)
def source(spark: SparkSession) -> None:
    spark.dataSource.register(NumbersSource)


def test_update_mode(spark: SparkSession, tmp_path: Path) -> None:
    message = "delta_once does not support Update mode"
    counts = numbers(spark, end=5).groupBy("value").count()
    with pytest.raises(StreamingQueryException, match=message):
        run(counts, tmp_path / "table", tmp_path / "checkpoint", mode="update")
    assert f"requirement failed: {message}" in PAGE


def in_a_thread(work: Any) -> str:
    """What it raised in a new thread, or ""."""
    said: list[str] = []

    def attempt() -> None:
        try:
            work()
            said.append("")
        except Exception as error:
            said.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return said[0]


def test_a_query_from_another_thread(spark: SparkSession, tmp_path: Path) -> None:
    frame = numbers(spark, end=5)

    def start() -> None:
        run(frame, tmp_path / "table", tmp_path / "checkpoint")

    def start_by_write_stream() -> None:
        writer = write_stream(frame).trigger(availableNow=True).option("appId", "app")
        writer.option("checkpointLocation", str(tmp_path / "by")).start(str(tmp_path / "written")).awaitTermination()

    def start_after_asking_for_the_session() -> None:
        assert spark_session("tests")._jsparkSession.equals(spark._jsparkSession)
        with pytest.raises(AnalysisException, match="delta_once only writes"):  # so it is found, without a query
            spark.read.format("delta_once").load()

    def start_in_a_session_that_is_registered() -> None:
        other = spark.newSession()
        register(other)
        other.dataSource.register(NumbersSource)
        run(numbers(other, end=5), tmp_path / "other", tmp_path / "registered")

    message = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta_once"
    said = in_a_thread(start)
    assert message in said
    assert message in PAGE
    assert "sparkonce.register(spark)" in explain(RuntimeError(said))
    for way_out in (
        start_by_write_stream,
        start_after_asking_for_the_session,
        start_in_a_session_that_is_registered,
    ):
        assert in_a_thread(way_out) == "", way_out.__name__
