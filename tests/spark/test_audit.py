"""The audit of tables that Spark filled, from Kafka to Delta, and the history as a DataFrame."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from sparkonce.jobs.cli.main import main
from sparkonce.offset_store import open_store
from sparkonce.offset_store.frame import history_frame
from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).resolve().parents[2]
GUARANTEES = (
    "exactly-once",
    *(pytest.param(weaker, marks=pytest.mark.lab) for weaker in ("at-least-once", "at-most-once")),
)
RECORDS = 40


def copy(spark: SparkSession, topics: Topics, topic: str, folder: Path, **sink: str) -> None:
    """Run a query that keeps coordinates, in several batches, until all is copied."""
    servers = {"kafka.bootstrap.servers": topics.bootstrap_servers}
    reader = spark.readStream.format("kafka_once").options(**servers, subscribe=topic, startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", "15").load().select("topic", "partition", "offset", "value")
    writer = rows.writeStream.format("delta_once").options(appId="orders", **sink)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start(str(folder / "table")).awaitTermination()


def audit(*arguments: object) -> tuple[int, dict[str, Any], str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        status = main(["audit", *map(str, arguments), "--json"])
    return status, json.loads(stdout.getvalue() or "{}"), stderr.getvalue()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_spark_wrote_is_proven_down_to_its_rows(
    spark: SparkSession, topics: Topics, tmp_path: Path, guarantee: str
) -> None:
    topic = topics.create(2)
    for run in range(2):
        topics.produce(topic, values(f"run {run}", RECORDS // 2), partition=0)
        topics.produce(topic, values(f"run {run}", RECORDS // 2), partition=1)
        copy(spark, topics, topic, tmp_path, deliveryGuarantee=guarantee)
    servers = ("--bootstrap-servers", topics.bootstrap_servers)
    rows = ("--coordinates", "partition,offset,topic", "--expect-all-rows")
    status, report, errors = audit(tmp_path / "table", "--strict", *servers, *rows)
    assert status == 0, report.get("findings", errors)
    assert [each["guarantee"] for each in report["guarantees"]] == [guarantee]
    assert sum(each["rows"]["total"] for each in report["partitions"]) == 2 * RECORDS
    assert [each["broker"]["lag"] for each in report["partitions"]] == [0, 0]
    topics.produce(topic, values("late", 3))
    status, report, _ = audit(tmp_path / "table", *servers)
    assert status == 0
    assert sum(each["broker"]["lag"] for each in report["partitions"]) == 3


def test_offsets_in_a_table_of_their_own_are_audited_there(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("record", RECORDS))
    store = f"delta:{tmp_path / 'offsets'}"
    copy(spark, topics, topic, tmp_path, deliveryGuarantee="at-least-once", offsetStore=store)
    status, report, errors = audit(tmp_path / "offsets", "--strict")
    assert status == 0, report.get("findings", errors)
    assert [each["ranges"] for each in report["partitions"]] == [[[0, RECORDS]]]
    status, _, errors = audit(tmp_path / "table")
    assert status == 1
    assert "holds no offsets. If they live in another place" in errors


@pytest.mark.timeout(600)
def test_what_delta_spark_does_to_a_table_is_passed_over(
    delta_spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.produce(topic, values("record", RECORDS))
    copy(delta_spark, topics, topic, tmp_path)
    table = f"delta.`{tmp_path / 'table'}`"
    delta_spark.sql(f"OPTIMIZE {table}")
    delta_spark.sql(f"DELETE FROM {table} WHERE offset = 3")
    topics.produce(topic, values("record", RECORDS))
    copy(delta_spark, topics, topic, tmp_path)
    rows = ("--coordinates", "partition,offset")
    status, report, errors = audit(tmp_path / "table", *rows)
    assert status == 0, report.get("findings", errors)
    assert {"OPTIMIZE", "DELETE"} <= report["commits"]["passedOver"].keys()
    assert report["partitions"][0]["rows"]["missingAt"] == [[3, 4]]
    delta_spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    status, report, errors = audit(tmp_path / "table")
    assert status == 0, report.get("findings", errors)
    assert [finding["problem"] for finding in report["findings"]] == ["rows-removed", "rows-restored"]
    assert report["partitions"][0]["stored"] == 2 * RECORDS


def test_the_history_is_a_data_frame_and_the_example_of_the_guide_runs(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(2)
    topics.produce(topic, values("record", RECORDS))
    copy(spark, topics, topic, tmp_path)
    history = history_frame(spark, open_store(f"delta:{tmp_path / 'table'}", "orders"))
    assert isinstance(history.schema["committed_at"].dataType, t.TimestampType)
    assert history.schema["writes"].dataType == t.ArrayType(t.StringType(), containsNull=False)
    moved = history.selectExpr("sum(end_offset - start_offset)", "count(distinct version)").head()
    assert moved is not None
    assert moved[0] == RECORDS
    assert moved[1] >= 3
    example, from_python = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "audit.md").read_text(), re.DOTALL)
    exec(
        from_python.replace("/data/orders", str(tmp_path / "table")).replace(
            "partition,offset", "partition,offset,topic"
        )
    )
    names: dict[str, Any] = {"spark": spark}
    with redirect_stdout(io.StringIO()) as shown:
        exec(example.replace("/data/tables/orders", str(tmp_path / "table")), names)
    assert sum(row["records"] for row in names["per_hour"].collect()) == RECORDS
    assert names["newest"].num_rows > 0
    assert "records" in shown.getvalue()
