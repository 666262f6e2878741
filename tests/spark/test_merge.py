"""`MergeWriter` with delta-spark: MERGEs that add up, so that each loss and each repetition shows as a wrong sum."""

from __future__ import annotations

import os
import select
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from lab.crash_plans import arm, fired
from sparkonce.connectors.delta_spark import sequence
from sparkonce.connectors.delta_spark.crash_points import IntentPoint
from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER
from sparkonce.connectors.delta_spark.merge import MergeWriter
from sparkonce.crash_points import CrashPoint, InjectedCrashError
from sparkonce.exactly_once.guarantee import Guarantee
from tests.spark.sink_support import numbers

pytestmark = [pytest.mark.spark, pytest.mark.java]
DEADLINE_S = 240
SCHEMA = "partition int, n bigint, total bigint"


def add_up(target: Any, rows: DataFrame) -> Any:
    """Add each batch's count and sum to those that are there."""
    sums = rows.groupBy("partition").agg(f.count("*").alias("n"), f.sum("offset").alias("total"))
    builder = target.alias("t").merge(sums.alias("s"), "t.partition = s.partition")
    return builder.whenMatchedUpdate(set={"n": "t.n + s.n", "total": "t.total + s.total"}).whenNotMatchedInsertAll()


class Pipeline:
    """One result; drivers and checkpoints come and go."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.table = folder / "table"

    def writer(self, checkpoint: str = "c", **options: Any) -> MergeWriter:
        return MergeWriter(
            str(self.table), "app", str(self.folder / checkpoint), **{"merge": add_up, "schema": SCHEMA, **options}
        )

    def start(self, end: int, checkpoint: str = "c", stored: bool = False, **options: Any) -> StreamingQuery:
        """Start a query in batches of ten; ``stored``: a new checkpoint begins at the stored offsets."""
        writer = self.writer(checkpoint, **options)
        store = {"offsetStore": writer.offset_store, "appId": "app"} if stored else {}
        frame = numbers(self.session, end=end, perBatch=10, **store)
        query = frame.writeStream.foreachBatch(writer).trigger(availableNow=True)
        return query.option("checkpointLocation", str(self.folder / checkpoint)).start()

    def run(self, end: int, checkpoint: str = "c", **options: Any) -> None:
        self.start(end, checkpoint, **options).awaitTermination()

    def totals(self) -> list[dict[str, int]]:
        """Read the result with delta-rs."""
        rows: list[dict[str, int]] = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["partition"])


@pytest.fixture
def pipeline(delta_session: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(delta_session, tmp_path)


def expected(end: int) -> list[dict[str, int]]:
    return [{"partition": p, "n": end, "total": sum(range(end))} for p in range(2)]


def test_batches_add_up_through_crashes(pipeline: Pipeline, faults: Path) -> None:
    """A MERGE leaves no settings behind, either."""
    names = [f"spark.databricks.delta.{name}" for name in ("write.txnAppId", "write.txnVersion")]
    found = []

    def looking(target: Any, rows: DataFrame) -> Any:
        found.append([rows.sparkSession.conf.get(name, None) for name in names])
        return add_up(target, rows)

    for number, point in enumerate(("intent.recorded@1", "sink.after_commit@1")):
        plan = arm(faults, f"crash{number}", f"{point}=raise")
        with pytest.raises(StreamingQueryException, match="injected failure"):
            pipeline.run(20, merge=looking)
        assert fired(plan)
    pipeline.run(25, merge=looking)
    assert found == [[None, None]] * 3  # one for each batch: batch 1 was not merged a second time
    assert_result(pipeline, expected(25), last_batch=2)


@pytest.mark.lab  # the same courses with delta_once: tests/verify/test_quick.py
@pytest.mark.parametrize(("guarantee", "times"), [(Guarantee.AT_LEAST_ONCE, 2), (Guarantee.AT_MOST_ONCE, 0)])
def test_a_crash_shows_what_the_guarantee_allows(
    pipeline: Pipeline, faults: Path, guarantee: Guarantee, times: int
) -> None:
    plan = arm(faults, "crash", "sink.between_writes@1=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        pipeline.run(20, guarantee=guarantee.value)
    assert fired(plan)
    pipeline.run(25, guarantee=guarantee.value)
    offsets = [*range(10), *(list(range(10, 20)) * times), *range(20, 25)]
    row = {"n": len(offsets), "total": sum(offsets)}
    assert_result(pipeline, [{"partition": p, **row} for p in range(2)], last_batch=2)


def assert_result(pipeline: Pipeline, wanted: list[dict[str, int]], last_batch: int) -> None:
    """Check the rows, as both delta-rs and Spark read them, and the newest commit."""
    assert pipeline.totals() == wanted
    by_spark = pipeline.session.read.format("delta").load(str(pipeline.table)).orderBy("partition").collect()
    assert [row.asDict() for row in by_spark] == wanted
    newest = DeltaTable(pipeline.table).history(1)[0]
    assert f'"batchId":{last_batch}' in newest["userMetadata"]


@pytest.fixture
def dies_unconfirmed(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the next driver die after the MERGE of a batch has landed: from then on it gets to see nothing."""

    def arm_it(dies_in: int) -> None:
        real_snapshot = sequence.NumberedTable.snapshot
        dead = False

        def reach(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
            nonlocal dead
            if point is IntentPoint.UNCONFIRMED and batch_id == dies_in:
                dead = True
                raise InjectedCrashError("the driver died")

        def snapshot(table: sequence.NumberedTable) -> sequence.NumberedSnapshot:
            if dead:
                raise InjectedCrashError("the driver is dead")
            return real_snapshot(table)

        monkeypatch.setattr(sequence, "reach", reach)
        monkeypatch.setattr(sequence.NumberedTable, "snapshot", snapshot)

    return arm_it


def test_a_driver_dies_between_the_merge_and_its_confirmation(
    pipeline: Pipeline, dies_unconfirmed: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its checkpoint, then without it."""
    for batch_id, keeps_checkpoint in ((1, True), (3, False)):
        end = 10 * (batch_id + 1)
        dies_unconfirmed(batch_id)
        with pytest.raises(StreamingQueryException, match="the driver died"):
            pipeline.run(end)
        monkeypatch.undo()
        assert pipeline.totals() == expected(end)
        if not keeps_checkpoint:
            shutil.rmtree(pipeline.folder / "c")
        pipeline.run(end + 10, stored=not keeps_checkpoint)
        assert pipeline.totals() == expected(end + 10)


def test_a_lost_checkpoint(pipeline: Pipeline) -> None:
    pipeline.run(10)
    shutil.rmtree(pipeline.folder / "c")
    with pytest.raises(
        StreamingQueryException, match=r"overlap with the result's offsets.*Set offsetStore=delta:\S*/_sparkonce "
    ):
        numbers_in_one_batch(pipeline, end=20)
    shutil.rmtree(pipeline.folder / "c")
    pipeline.run(20, stored=True)
    assert pipeline.totals() == expected(20)


def numbers_in_one_batch(pipeline: Pipeline, end: int) -> None:
    query = numbers(pipeline.session, end=end).writeStream.foreachBatch(pipeline.writer()).trigger(availableNow=True)
    query.option("checkpointLocation", str(pipeline.folder / "c")).start().awaitTermination()


def test_a_driver_that_is_overtaken_before_its_merge_stops(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, go_on = threading.Event(), threading.Event()

    def reach(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
        if point is IntentPoint.RECORDED and not recorded.is_set():
            recorded.set()
            assert go_on.wait(DEADLINE_S)

    monkeypatch.setattr(sequence, "reach", reach)
    slow = pipeline.start(10, "slow")
    assert recorded.wait(DEADLINE_S)
    pipeline.run(10, "quick")
    go_on.set()
    with pytest.raises(StreamingQueryException, match=r"holds that number, made by batch 0 of query .* Another driver"):
        slow.awaitTermination()
    assert pipeline.totals() == expected(10)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


class Gate:
    """Two named pipes at which a Spark task says that it has begun, and waits to be let through."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.begun, self.opened = folder / "begun", folder / "opened"
        for pipe in (self.begun, self.opened):
            os.mkfifo(pipe)
        # Read and write, so that opening does not wait, and what a task writes is kept for us.
        self._begun, self._opened = (os.open(pipe, os.O_RDWR) for pipe in (self.begun, self.opened))

    def wait_for_task(self) -> None:
        ready, _, _ = select.select([self._begun], [], [], DEADLINE_S)
        assert ready

    def open(self) -> None:
        os.write(self._opened, b"." * 1000)  # one for each task that passes, however often Spark runs them

    def close(self) -> None:
        os.close(self._begun)
        os.close(self._opened)


def test_a_driver_that_is_overtaken_within_its_merge_stops(pipeline: Pipeline, gate: Gate) -> None:
    pipeline.run(10, "first")
    begun, opened = str(gate.begun), str(gate.opened)

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open(begun, "wb", buffering=0) as pipe:
            pipe.write(b".")
        with open(opened, "rb", buffering=0) as pipe:
            assert pipe.read(1)
        yield from batches

    def held(target: Any, rows: DataFrame) -> Any:
        one_task = rows.coalesce(1)  # the other core of the session is the quick driver's
        return add_up(target, one_task.mapInArrow(wait, rows.schema))

    slow = pipeline.start(20, "slow", stored=True, merge=held)
    gate.wait_for_task()
    pipeline.run(20, "quick", stored=True)
    gate.open()
    with pytest.raises(StreamingQueryException, match="Another driver runs with the same appId"):
        slow.awaitTermination()
    assert pipeline.totals() == expected(20)


def groups(pipeline: Pipeline, end: int) -> DataFrame:
    frame = numbers(pipeline.session, end=end, perBatch=10)
    return frame.groupBy((f.col("offset") % 3).alias("rest"), "partition").agg(f.count("*").alias("n"))


def run_groups(pipeline: Pipeline, end: int, **options: Any) -> None:
    keyed = {"merge": None, "schema": None, "keys": ["rest", "partition"], "partition_by": ["partition"], **options}
    query = groups(pipeline, end).writeStream.foreachBatch(pipeline.writer(**keyed)).outputMode("update")
    query = query.option("checkpointLocation", str(pipeline.folder / "c")).trigger(availableNow=True)
    query.start().awaitTermination()


def test_an_aggregation_in_update_mode(pipeline: Pipeline, faults: Path) -> None:
    arm(faults, "crash", "intent.recorded@1=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        run_groups(pipeline, 20)
    run_groups(pipeline, 20)
    table = DeltaTable(pipeline.table)
    assert table.metadata().partition_columns == ["partition"]
    found = {(row["rest"], row["partition"]): row["n"] for row in table.to_pyarrow_table().to_pylist()}
    assert found == {(rest, p): len(range(rest, 20, 3)) for rest in range(3) for p in range(2)}
    shutil.rmtree(pipeline.folder / "c")
    with pytest.raises(StreamingQueryException, match="first of a stateful query with a new checkpoint"):
        run_groups(pipeline, 30)


def test_the_newest_row_of_each_key_is_taken(pipeline: Pipeline) -> None:
    writer = pipeline.writer(merge=None, schema=None, keys=["rest", "partition"], newest_by="offset")
    frame = numbers(pipeline.session, end=25, perBatch=20).withColumn("rest", f.col("offset") % 4)
    query = frame.writeStream.foreachBatch(writer).trigger(availableNow=True)
    query.option("checkpointLocation", str(pipeline.folder / "c")).start().awaitTermination()
    rows = DeltaTable(pipeline.table).to_pyarrow_table().to_pylist()
    found = sorted((row["partition"], row["rest"], row["offset"], row["value"]) for row in rows)
    assert found == [(p, n % 4, n, f"{p}-{n}") for p in range(2) for n in sorted(range(21, 25), key=lambda n: n % 4)]


@pytest.mark.soak
def test_vacuum_keeps_the_offsets(pipeline: Pipeline) -> None:
    pipeline.run(20)
    name = "spark.databricks.delta.retentionDurationCheck.enabled"
    pipeline.session.conf.set(name, "false")
    try:
        pipeline.session.sql(f"VACUUM delta.`{pipeline.table}` RETAIN 0 HOURS")
    finally:
        pipeline.session.conf.unset(name)
    DeltaTable(pipeline.table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert DeltaTable(pipeline.table / OFFSETS_FOLDER).version() > 0
    pipeline.run(30)
    assert pipeline.totals() == expected(30)


def test_a_deleted_result_is_not_filled_from_the_middle(pipeline: Pipeline) -> None:
    elsewhere = str(pipeline.folder / "offsets")
    pipeline.run(10, offsets=elsewhere)
    shutil.rmtree(pipeline.table)
    with pytest.raises(StreamingQueryException, match="the result was deleted, replaced"):
        pipeline.run(20, offsets=elsewhere)


@pytest.mark.parametrize(
    "arguments",
    [
        {"keys": "a"},
        {"keys": ["a"], "merge": add_up},
        {},
        {"keys": ["a"], "app": " "},
        {"merge": add_up, "newest_by": "a"},
    ],
)
def test_arguments_that_cannot_work_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    app = arguments.pop("app", "app")
    with pytest.raises(ValueError, match=r"keys|app_id is empty"):
        MergeWriter(str(tmp_path), app, "c", **arguments)
