"""One table under two names: an application that is another by its appId, and a checkpoint that is another table's."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sparkonce import IngestError, ingest
from sparkonce.jobs.cli.main import main
from tests.spark.sink_support import NumbersSource, numbers, run
from tests.spark.source_support import DEADLINE_S, Topics, values

pytestmark = pytest.mark.spark

GUARANTEES = (
    "exactly-once",
    *(pytest.param(weaker, marks=pytest.mark.lab) for weaker in ("at-least-once", "at-most-once")),
)


@pytest.fixture(scope="module", autouse=True)
def source(spark: SparkSession) -> None:
    spark.dataSource.register(NumbersSource)


def offsets(table: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(table).to_pyarrow_table().select(["partition", "offset"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def each(end: int, start: int = 0, times: int = 1) -> list[tuple[int, int]]:
    return sorted([(partition, offset) for partition in (0, 1) for offset in range(start, end)] * times)


def audited(table: Path, *arguments: str) -> tuple[int, list[str]]:
    stdout = io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(io.StringIO()):
        status = main(["audit", str(table), "--json", *arguments])
    return status, [finding["problem"] for finding in json.loads(stdout.getvalue())["findings"]]


def ingested(spark: SparkSession, broker: Topics, folder: Path, **entries: Any) -> None:
    made = ingest(
        spark,
        app_id="shop",
        checkpoint=str(folder / "checkpoints"),
        kafka={"bootstrap.servers": broker.bootstrap_servers},
        trigger="availableNow",
        columns="value,partition,offset",
        **entries,
    )
    assert made.awaitTermination(DEADLINE_S)


@pytest.mark.parametrize("way_out", ["table_app_id", pytest.param("coveredTwice", marks=pytest.mark.lab)])
def test_a_folder_of_an_ingestion_that_moves(spark: SparkSession, topics: Topics, tmp_path: Path, way_out: str) -> None:
    """Its appId is named after the folder: it wrote all rows a second time, and the audit called that proven."""
    topic = topics.create(2)
    for partition in (0, 1):
        topics.produce(topic, values("v", 10), partition=partition)
    ingested(spark, topics, tmp_path, topics=topic, path=str(tmp_path / "before"))
    moved = tmp_path / "after"
    shutil.move(tmp_path / "before", moved)
    with pytest.raises(
        IngestError, match=r"another appId, 'shop\.before', up to offset 10.*table_app_id.*coveredTwice"
    ):
        ingested(spark, topics, tmp_path, topics=topic, path=str(moved))
    assert offsets(moved) == each(10)
    topics.produce(topic, values("v", 5, 10), partition=0)
    if way_out == "table_app_id":
        ingested(spark, topics, tmp_path, topics=topic, path=str(moved), table_app_id="shop.before")
        assert offsets(moved) == sorted([*each(10), *((0, offset) for offset in range(10, 15))])
    else:
        ingested(spark, topics, tmp_path, topics=topic, path=str(moved), sink={"coveredTwice": "true"})
        assert len(offsets(moved)) == 10 * 2 + 25
    rows = ("--coordinates", "partition,offset", "--expect-all-rows", "--strict")
    assert audited(moved, *rows) == (0, [])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_checkpoint_that_is_another_tables(spark: SparkSession, tmp_path: Path, guarantee: str) -> None:
    """The new table silently began where the checkpoint was."""
    old, new, checkpoint, kind = tmp_path / "a", tmp_path / "b", tmp_path / "c", {"deliveryGuarantee": guarantee}
    run(numbers(spark, end=10, perBatch=5), old, checkpoint, **kind)
    with pytest.raises(
        StreamingQueryException, match=r"has read records \[0, 10\).*new checkpointLocation.*beginsLate"
    ):
        run(numbers(spark, end=15), new, checkpoint, **kind)
    assert offsets(new) == []
    run(numbers(spark, end=15), new, tmp_path / "c2", **kind)
    assert offsets(new) == each(15)
    run(numbers(spark, end=15), tmp_path / "late", checkpoint, beginsLate="true", **kind)
    assert offsets(tmp_path / "late") == each(15, 10)
    assert audited(tmp_path / "late", "--strict") == (0, [])


def test_a_table_that_was_deleted_under_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    run(numbers(spark, end=10), table, checkpoint)
    shutil.rmtree(table)
    with pytest.raises(StreamingQueryException, match=r"the table was deleted and created again"):
        run(numbers(spark, end=15), table, checkpoint)
    shutil.rmtree(checkpoint)
    run(numbers(spark, end=15), table, checkpoint)
    assert offsets(table) == each(15)


def test_a_query_that_began_at_the_newest_records_may_begin_there(spark: SparkSession, tmp_path: Path) -> None:
    """Its batch 0 had no records, and so no commit: batch 1 is the first."""
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    run(numbers(spark, begin=10, end=10), table, checkpoint)
    run(numbers(spark, begin=10, end=15), table, checkpoint)
    assert offsets(table) == each(15, 10)
    assert audited(table, "--strict") == (0, [])


def test_a_name_that_changes_under_the_same_checkpoint_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    run(numbers(spark, end=10, perBatch=4), table, checkpoint, appId="old")
    run(numbers(spark, end=15), table, checkpoint, appId="new")
    assert offsets(table) == each(15)
    assert audited(table, "--strict") == (0, [])


def test_a_name_that_is_handed_over_and_goes_on_covers_records_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing overlaps when the new name begins; what the old one writes then is for the audit to find."""
    table = tmp_path / "t"
    run(numbers(spark, end=10), table, tmp_path / "old", appId="old")
    run(numbers(spark, begin=10, end=15), table, tmp_path / "new", appId="new")
    assert audited(table, "--strict") == (0, [])
    run(numbers(spark, end=12), table, tmp_path / "old", appId="old")
    assert audited(table) == (1, ["covered-twice"] * 2)
    run(numbers(spark, begin=10, end=20), table, tmp_path / "new", appId="new", coveredTwice="true")
    assert audited(table, "--strict") == (0, [])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_queries_that_divide_a_topic_say_so(spark: SparkSession, tmp_path: Path, guarantee: str) -> None:
    table, kind = tmp_path / "t", {"deliveryGuarantee": guarantee}
    run(numbers(spark, end=10).where("offset % 2 = 0"), table, tmp_path / "even", appId="even", **kind)
    odd = numbers(spark, end=10).where("offset % 2 = 1")
    with pytest.raises(StreamingQueryException, match="another appId, 'even', up to offset 10"):
        run(odd, table, tmp_path / "odd", appId="odd", **kind)
    run(odd, table, tmp_path / "odd", appId="odd", coveredTwice="true", **kind)
    run(numbers(spark, end=12).where("offset % 2 = 1"), table, tmp_path / "odd", appId="odd", **kind)
    assert offsets(table) == sorted([*each(10), (0, 11), (1, 11)])
    assert audited(table)[0] == 0


def test_a_source_whose_name_changes(spark: SparkSession, tmp_path: Path) -> None:
    """With a new checkpoint all rows were written a second time, and the audit called that proven."""
    table = tmp_path / "t"
    run(numbers(spark, end=10), table, tmp_path / "one")
    renamed = numbers(spark, end=10, source="renamed")
    with pytest.raises(StreamingQueryException, match=r"another source of this appId, .*set its name again: source="):
        run(renamed, table, tmp_path / "two")
    assert offsets(table) == each(10)
    run(renamed, table, tmp_path / "two", coveredTwice="true")
    assert offsets(table) == each(10, times=2)
    assert audited(table, "--strict") == (0, [])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_topic_that_is_added_and_that_another_wrote(spark: SparkSession, tmp_path: Path, guarantee: str) -> None:
    """Only the first batch of an appId was compared."""
    table, kind = tmp_path / "t", {"deliveryGuarantee": guarantee}
    run(numbers(spark, end=10), table, tmp_path / "a", appId="a", **kind)
    first = numbers(spark, end=5, topicid="B" * 22, source="first")
    run(first, table, tmp_path / "b", appId="b", **kind)
    added = numbers(spark, end=10, source="added")
    for rows in (added, numbers(spark, begin=5, end=7, topicid="B" * 22, source="first").union(added)):
        with pytest.raises(StreamingQueryException, match="another appId, 'a', up to offset 10"):
            run(rows, table, tmp_path / "c", appId="b", **kind)
        shutil.rmtree(tmp_path / "c")
    assert offsets(table) == sorted([*each(10), *each(5)])


def test_a_restore_leaves_the_offsets_and_the_audit_says_so(delta_spark: SparkSession, tmp_path: Path) -> None:
    """What the sink logs then is in `tests/unit/sink/test_two_names.py`."""
    delta_spark.dataSource.register(NumbersSource)
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    run(numbers(delta_spark, end=10, perBatch=5), table, checkpoint)
    delta_spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 1")
    run(numbers(delta_spark, end=15), table, checkpoint)
    assert offsets(table) == sorted([*each(5), *each(15, 10)])
    assert audited(table) == (0, ["rows-restored"])
