"""`delta_once` with a real Spark and a real delta-rs."""

from __future__ import annotations

import datetime as dt
import shutil
import time
import uuid
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lab.crash_plans import arm, disarm, fired
from lab.store.s3 import open_s3
from sparkonce import explain
from tests.spark.sink_support import NumbersSource, numbers, run, start

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _numbers(spark: SparkSession) -> None:
    spark.dataSource.register(NumbersSource)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def rows(table: Path) -> Counter[str]:
    return Counter(DeltaTable(table).to_pyarrow_table(columns=["value"]).column("value").to_pylist())


def expected(end: int, partitions: int = 2, begin: int = 0) -> Counter[str]:
    return Counter(f"{index}-{offset}" for index in range(partitions) for offset in range(begin, end))


def failure(error: pytest.ExceptionInfo[BaseException]) -> str:
    return str(error.value)


def test_rows_and_offsets_come_in_one_commit(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    run(numbers(spark, end=25, perBatch=10), table, checkpoint)
    assert rows(table) == expected(25)
    made = DeltaTable(table).history()
    assert [entry["operation"] for entry in made] == ["WRITE", "WRITE", "WRITE", "CREATE TABLE"]
    assert [entry["sparkonce"]["batchId"] for entry in made[:3]] == [2, 1, 0]
    newest = made[0]["sparkonce"]
    assert newest["ranges"]["default"]["numbers"]["partitions"] == {"0": [20, 25], "1": [20, 25]}
    assert newest["writes"] == ["rows", "offsets"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_the_weaker_guarantees_without_a_crash(
    spark: SparkSession, table: Path, checkpoint: Path, guarantee: str
) -> None:
    run(numbers(spark, end=20, perBatch=10), table, checkpoint, deliveryGuarantee=guarantee)
    assert rows(table) == expected(20)


def test_offset_log_of_version_2(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    try:
        run(numbers(spark, end=20, perBatch=10), table, checkpoint)
    finally:
        spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    assert (checkpoint / "offsets" / "0").read_text().startswith("v2")
    shutil.rmtree(checkpoint)
    run(numbers(spark, end=30, offsetStore=f"delta:{table}", appId="app"), table, checkpoint)
    assert rows(table) == expected(30)


def test_a_restart_and_a_lost_checkpoint_with_the_same_batches(
    spark: SparkSession, table: Path, checkpoint: Path
) -> None:
    run(numbers(spark, end=10), table, checkpoint)
    run(numbers(spark, end=10), table, checkpoint)
    run(numbers(spark, end=20), table, checkpoint)
    assert rows(table) == expected(20)
    before = DeltaTable(table).version()
    shutil.rmtree(checkpoint)
    run(numbers(spark, end=30, perBatch=10), table, checkpoint)
    assert rows(table) == expected(30)
    assert DeltaTable(table).version() == before + 1


def test_a_new_query_over_what_is_there_writes_nothing(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Its only batch ends before the stored offsets, or at them: neither a commit nor a data file is made."""
    run(numbers(spark, end=20, perBatch=10), table, tmp_path / "first")
    before, files = DeltaTable(table).version(), sorted(table.glob("*.parquet"))
    for end in (10, 20):
        fresh = tmp_path / f"fresh-{end}"
        run(numbers(spark, end=end), table, fresh)
        assert (fresh / "commits" / "0").exists()
        assert DeltaTable(table).version() == before, end
        assert sorted(table.glob("*.parquet")) == files, end
        assert rows(table) == expected(20), end


def test_exactly_once_never_stands_between_two_writes(spark: SparkSession, tmp_path: Path, crash_folder: Path) -> None:
    """The armed point is not reached; at-least-once, with the very same batches, fails there."""
    plan = arm(crash_folder, "between", "sink.between_writes=raise")
    try:
        run(numbers(spark, end=20, perBatch=10), tmp_path / "one", tmp_path / "checkpoint-one")
        assert fired(plan) is None
        assert rows(tmp_path / "one") == expected(20)
        source, other = numbers(spark, end=20, perBatch=10), tmp_path / "two"
        with pytest.raises(StreamingQueryException, match=r"injected failure at sink\.between_writes, batch 0"):
            run(source, other, tmp_path / "checkpoint-two", deliveryGuarantee="at-least-once")
        assert fired(plan)
    finally:
        disarm(crash_folder, "between")


def test_a_lost_checkpoint_with_the_stored_offsets(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    run(numbers(spark, end=20, perBatch=12), table, checkpoint)
    shutil.rmtree(checkpoint)
    run(numbers(spark, end=50, offsetStore=f"delta:{table}", appId="app"), table, checkpoint)
    assert rows(table) == expected(50)


def test_an_overlap_and_a_gap_stop_and_name_the_way_out(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    run(numbers(spark, end=20), table, tmp_path / "first")
    with pytest.raises(StreamingQueryException) as error:
        run(numbers(spark, end=30), table, tmp_path / "overlap")
    for part in ("overlap", "numbers-0", "stored 20", "batch start 0", "batch end 30", "offsetStore=delta:"):
        assert part in failure(error)
    with pytest.raises(StreamingQueryException) as error:
        run(numbers(spark, begin=25, end=30), table, tmp_path / "gap")
    assert "records [20, 25) are in neither the table nor this batch" in failure(error)
    assert rows(table) == expected(20)


def test_a_recreated_topic_and_a_second_application_have_lives_of_their_own(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    run(numbers(spark, end=10), table, tmp_path / "one", appId="one/1")
    run(numbers(spark, end=10, topicId="BBBBBBBBBBBBBBBBBBBBBB"), table, tmp_path / "recreated", appId="one/1")
    assert rows(table) == expected(10) + expected(10)
    run(numbers(spark, end=15), table, tmp_path / "two", appId="one%2F1", coveredTwice="true")
    assert rows(table) == expected(10) + expected(10) + expected(15)


def test_the_checkpoint_of_another_query_is_refused(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """The option names one directory, and Spark is told another by its own configuration."""
    run(numbers(spark, end=10, source="a"), table, tmp_path / "one")
    with pytest.raises(StreamingQueryException) as error:
        run(numbers(spark, end=20, source="b"), table, tmp_path / "one")
    assert "was named 'a' in batch 0 and is 'b'" in failure(error)


def test_a_self_union_and_two_named_sources(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    one = numbers(spark, end=10, perBatch=4)
    run(one.union(one), table, tmp_path / "self")
    assert rows(table) == expected(10) + expected(10)
    left, right = numbers(spark, end=10, source="l"), numbers(spark, end=20, source="r")
    run(left.union(right), table, tmp_path / "two", appId="two", coveredTwice="true")
    assert rows(table) == expected(10) + expected(10) + expected(10) + expected(20)


def test_two_sources_of_one_name_that_differ_are_refused(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    with pytest.raises(StreamingQueryException) as error:
        run(numbers(spark, end=10).union(numbers(spark, end=20)), table, checkpoint)
    assert "both named 'default'" in failure(error)


def test_a_stateful_query_that_lost_its_checkpoint_is_refused(
    spark: SparkSession, table: Path, checkpoint: Path
) -> None:
    counts = numbers(spark, end=10).dropDuplicates(["value"])
    run(counts, table, checkpoint)
    run(numbers(spark, end=20).dropDuplicates(["value"]), table, checkpoint)
    assert rows(table) == expected(20)
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException) as error:
        run(numbers(spark, end=20).dropDuplicates(["value"]), table, checkpoint)
    assert "stateful query with a new checkpoint" in failure(error)


def test_a_source_of_another_kind_is_known_by_its_batches(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 1).load()
    writer = rate.writeStream.format("delta_once").option("checkpointLocation", str(checkpoint)).option("appId", "app")
    query = writer.trigger(processingTime="0 seconds").start(str(table))
    deadline = time.monotonic() + 120
    while not (checkpoint / "commits" / "3").exists() and query.isActive and time.monotonic() < deadline:
        query.awaitTermination(0.05)  # type: ignore[arg-type]
    query.stop()
    values = DeltaTable(table).to_pyarrow_table().column("value").to_pylist()
    assert len(values) >= 20
    assert sorted(values) == list(range(len(values)))
    assert DeltaTable(table).history(1)[0]["sparkonce"]["ranges"] == {}


def test_partitions(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    frame = numbers(spark, end=20, perBatch=10).select(
        "value",
        f.when(f.col("offset") % 5 == 0, None).when(f.col("offset") % 5 == 1, "a/b=c %é").otherwise("x").alias("kind"),
        f.to_date(f.lit("2024-02-29")).alias("day"),
    )
    run(frame, table, checkpoint, partitionBy="kind,day")
    assert rows(table) == expected(20)
    back = DeltaTable(table).to_pyarrow_table()
    assert Counter(back.column("kind").to_pylist()) == {None: 8, "a/b=c %é": 8, "x": 24}
    assert set(back.column("day").to_pylist()) == {dt.date(2024, 2, 29)}
    assert DeltaTable(table).metadata().partition_columns == ["kind", "day"]


EVERY_TYPE = """
    cast(offset as byte) as b, cast(offset as short) as s, cast(offset as int) as i, offset as l,
    cast(offset as float) / 3 as f, cast(offset as double) / 7 as d, cast(offset as decimal(30, 4)) as m,
    value as t, cast(value as binary) as bin, offset % 2 = 0 as flag,
    date_add(date'1969-12-31', cast(offset as int)) as day,
    timestamp_micros(offset * 1000001 - 3000000) as at, timestamp_ntz'2024-02-29 01:02:03.456789' as ntz,
    array(offset, null) as ls, map(value, offset) as mp,
    named_struct('x', offset, 'y', array(named_struct('z', value))) as st,
    if(offset % 2 = 0, null, named_struct('at', timestamp_micros(offset))) as maybe, cast(value as varchar(20)) as vc
"""


def test_every_type_comes_back(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        run(numbers(spark, end=6, partitions=1).selectExpr(*_split(EVERY_TYPE)), table, checkpoint)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    back = DeltaTable(table).to_pyarrow_table().sort_by("l").to_pylist()
    assert len(back) == 6
    third = back[3]
    assert {name: third[name] for name in ("b", "s", "i", "l", "t", "bin", "flag", "vc")} == {
        "b": 3, "s": 3, "i": 3, "l": 3, "t": "0-3", "bin": b"0-3", "flag": False, "vc": "0-3",
    }  # fmt: skip
    assert third["m"] == Decimal(3)
    assert third["f"] == 1.0
    assert third["d"] == 3 / 7
    assert third["day"] == dt.date(1970, 1, 3)
    assert third["at"] == dt.datetime(1970, 1, 1, 0, 0, 0, 3, tzinfo=dt.UTC)
    assert third["ntz"] == dt.datetime(2024, 2, 29, 1, 2, 3, 456789)
    assert (third["ls"], third["mp"]) == ([3, None], [("0-3", 3)])
    assert third["st"] == {"x": 3, "y": [{"z": "0-3"}]}
    assert third["maybe"] == {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 3, tzinfo=dt.UTC)}
    assert back[2]["maybe"] is None
    filtered = DeltaTable(table).to_pyarrow_dataset().to_table(filter=pa.compute.field("l") > 3)
    assert filtered.num_rows == 2


def _split(text: str) -> list[str]:
    """Split a select list at the commas that are not inside parentheses."""
    parts, depth = [""], 0
    for character in text.strip():
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def test_files_are_no_larger_than_asked(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    run(numbers(spark, end=200_000, partitions=1), table, checkpoint, targetFileBytes=100_000, compression="zstd")
    files = [Path(uri) for uri in DeltaTable(table).file_uris()]
    assert len(files) > 1
    assert all(file.name.endswith(".zstd.parquet") for file in files)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 200_000


def test_a_batch_whose_rows_are_all_filtered_out_moves_the_offsets(
    spark: SparkSession, table: Path, checkpoint: Path
) -> None:
    run(numbers(spark, end=10).where("offset > 99"), table, checkpoint)
    shutil.rmtree(checkpoint)
    run(numbers(spark, end=20, offsetStore=f"delta:{table}", appId="app"), table, checkpoint)
    assert rows(table) == expected(20, begin=10)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"appId": ""}, "option appId='': it is empty"),
        ({"partionBy": "value"}, "did you mean 'partitionBy'"),
        ({"partitionBy": "nope"}, "the query has partition, offset, value"),
        ({"deliveryGuarantee": "often"}, "exactly-once"),
    ],
)
def test_options_are_refused_at_the_start(
    spark: SparkSession, table: Path, checkpoint: Path, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(StreamingQueryException) as error:
        run(numbers(spark, end=10), table, checkpoint, **change)
    assert reason in explain(error.value)
    assert not table.exists()


def test_a_checkpoint_set_by_configuration_alone_is_refused(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "set-by-conf"))
    try:
        writer = numbers(spark, end=10).writeStream.format("delta_once").option("appId", "app")
        with pytest.raises(StreamingQueryException) as error:
            writer.trigger(availableNow=True).start(str(table)).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "checkpointLocation is required" in failure(error)


def test_complete_mode_replaces_the_table_in_each_batch(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    """Two batches, and a restart: the table is the newest result, and each commit has the offsets with it."""
    counts = numbers(spark, end=25, perBatch=15).groupBy("partition").agg(f.count("*").alias("n"))
    run(counts, table, checkpoint, mode="complete")
    assert DeltaTable(table).to_pyarrow_table().sort_by("partition").to_pylist() == [
        {"partition": 0, "n": 25},
        {"partition": 1, "n": 25},
    ]
    counts = numbers(spark, end=30, perBatch=15).groupBy("partition").agg(f.count("*").alias("n"))
    run(counts, table, checkpoint, mode="complete")
    assert DeltaTable(table).to_pyarrow_table().column("n").to_pylist() == [30, 30]
    made = DeltaTable(table).history(3)
    assert [entry["sparkonce"]["batchId"] for entry in made] == [2, 1, 0]
    assert all(entry["sparkonce"]["writes"] == ["rows", "offsets"] for entry in made)


def test_complete_mode_needs_an_aggregation_and_exactly_once(
    spark: SparkSession, table: Path, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="complete"):
        start(numbers(spark, end=10), table, checkpoint, mode="complete")
    counts = numbers(spark, end=10).groupBy("partition").count()
    with pytest.raises(StreamingQueryException, match="leave deliveryGuarantee=at-least-once out"):
        run(counts, table, tmp_path / "other", mode="complete", deliveryGuarantee="at-least-once")
    assert not table.exists()


def test_another_schema_is_refused_or_merged(
    spark: SparkSession, table: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run(numbers(spark, end=10), table, checkpoint)
    files = sorted(table.rglob("*"))
    other = numbers(spark, end=10).selectExpr("cast(offset as string) as offset", "value", "1 as extra")
    with pytest.raises(StreamingQueryException) as error:
        run(other, table, tmp_path / "other", appId="other", coveredTwice="true")
    assert "column offset is bigint in the table and string in the query" in failure(error)
    assert "column extra (int) is not in the table" in failure(error)
    assert sorted(table.rglob("*")) == files
    wider = numbers(spark, end=20, perBatch=10).selectExpr(
        "offset", "value", "named_struct('x', offset, 'y', array(named_struct('z', value))) as extra"
    )
    run(wider, table, tmp_path / "wider", appId="other", coveredTwice="true", mergeSchema="true")
    found = DeltaTable(table).to_pyarrow_table()
    assert found.num_rows == 60
    assert found.column("partition").null_count == 40
    assert found.column("extra").null_count == 20
    assert [entry["operation"] for entry in DeltaTable(table).history()].count("ADD COLUMN") == 1


def test_a_query_into_an_object_store(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    """Checkpoint on the local disk, table in a store with S3's interface: batches, a restart, a lost checkpoint."""
    with open_s3() as store:
        table = "s3a://bucket/a table"
        run(numbers(spark, end=15), table, checkpoint, **store.query_options)
        run(numbers(spark, end=30), table, checkpoint, **store.query_options)
        shutil.rmtree(checkpoint)
        with pytest.raises(StreamingQueryException, match="overlap"):
            run(numbers(spark, end=35), table, checkpoint, **store.query_options)
        run(numbers(spark, end=45, perBatch=15), table, tmp_path / "fresh", **store.query_options)
        handle = DeltaTable("s3://bucket/a table", storage_options=dict(store.storage_options))
        values = handle.to_pyarrow_table(columns=["value"]).column("value").to_pylist()
        assert Counter(values) == expected(45)
        assert handle.version() == 3


def test_a_failing_task_leaves_nothing_behind(spark: SparkSession, table: Path, checkpoint: Path) -> None:
    # One task, which has written files when it fails: another one, ended by Spark meanwhile, could not clean up.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    bad = numbers(spark, end=10).coalesce(1).selectExpr("if(partition = 1, raise_error('planted'), value) as value")
    try:
        with pytest.raises(StreamingQueryException) as error:
            run(bad, table, checkpoint, targetFileBytes="1")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert "planted" in failure(error)
    assert not list(table.rglob("*.parquet"))
    run(numbers(spark, end=10).select("value"), table, checkpoint)
    assert rows(table) == expected(10)


def test_two_drivers_of_one_application_write_nothing_twice(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Two checkpoints, one appId, at the same time: losers stop or pass over what is there."""
    queries = [
        start(numbers(spark, end=60, perBatch=10), table, tmp_path / f"checkpoint-{number}") for number in range(2)
    ]
    messages = []
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            messages.append(str(error))
    assert rows(table) == expected(60) or messages
    assert not (rows(table) - expected(60))
    assert all("of the table holds batch" in message for message in messages), messages


def test_a_table_of_spark_s_catalog_is_refused(spark: SparkSession, checkpoint: Path) -> None:
    """Spark would give it the provider delta_once, so nobody could read it."""
    name = f"refused_{uuid.uuid4().hex}"
    writer = numbers(spark, end=10).writeStream.format("delta_once").trigger(availableNow=True)
    writer = writer.options(appId="app", checkpointLocation=str(checkpoint)).partitionBy("partition")
    try:
        with pytest.raises(StreamingQueryException, match="toTable creates a table in Spark's catalog"):
            writer.toTable(name).awaitTermination()
        warehouse = spark.conf.get("spark.sql.warehouse.dir")
        assert warehouse is not None
        folder = Path(warehouse.removeprefix("file:"), name)
        assert folder.is_dir()
        assert not list(folder.rglob("*.parquet"))
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
