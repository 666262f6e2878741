"""`AppendWriter` with delta-spark, into tables that `delta_once` rejects: with drivers that die, race and move over."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as f

from lab.crash_plans import arm, fired
from sparkonce.connectors.delta_spark import sequence
from sparkonce.connectors.delta_spark.append import AppendWriter
from sparkonce.connectors.delta_spark.crash_points import IntentPoint
from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER
from sparkonce.crash_points import CrashPoint
from sparkonce.jobs.cli.main import main
from tests.spark.sink_support import numbers
from tests.spark.sink_support import run as run_delta_once

pytestmark = [pytest.mark.spark, pytest.mark.java]
DEADLINE_S = 240
COLUMNS = "partition INT, offset BIGINT, value STRING"
SOURCE = ("partition", "offset", "value")


@dataclass(frozen=True)
class Feature:
    """A table that asks something of its writers."""

    columns: str = COLUMNS
    clause: str = ""
    properties: str = ""
    alterations: tuple[str, ...] = ()
    rejected: str = ""
    """What `delta_once` says of it, if it rejects it."""
    select: tuple[str, ...] = ("*",)
    """What the query writes."""
    expect: str = "true"
    """What holds for each row of the table."""
    unreadable_by_delta_rs: bool = False


CHECK = "ALTER TABLE {table} ADD CONSTRAINT positive CHECK (offset >= 0)"
FEATURES = {
    "check": Feature(alterations=(CHECK,)),
    "not null": Feature(alterations=("ALTER TABLE {table} ADD CONSTRAINT there CHECK (value IS NOT NULL)",)),
    "generated": Feature(
        f"{COLUMNS}, twice BIGINT GENERATED ALWAYS AS (offset * 2)",
        expect="twice = offset * 2",
    ),
    "default": Feature(
        f"{COLUMNS}, origin STRING DEFAULT 'kafka'",
        properties="'delta.feature.allowColumnDefaults' = 'supported'",
        expect="origin = 'kafka'",
    ),
    "identity": Feature(
        f"{COLUMNS}, n BIGINT GENERATED ALWAYS AS IDENTITY", rejected="identity columns", expect="n IS NOT NULL"
    ),
    "cluster by": Feature(clause="CLUSTER BY (offset)"),
    "row tracking": Feature(properties="'delta.enableRowTracking' = 'true'"),
    "in-commit timestamps": Feature(properties="'delta.enableInCommitTimestamps' = 'true'"),
    "iceberg": Feature(
        properties="'delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name'", rejected="Iceberg"
    ),
    "varchar": Feature(COLUMNS.replace("STRING", "VARCHAR(9)")),
    "type widening": Feature(
        properties="'delta.enableTypeWidening' = 'true'",
        alterations=("ALTER TABLE {table} ALTER COLUMN partition TYPE BIGINT",),
        unreadable_by_delta_rs=True,
    ),
    "variant": Feature(
        f"{COLUMNS}, document VARIANT",
        rejected="variant",
        select=("*", "parse_json(CONCAT('{\"offset\":', offset, '}')) AS document"),
        expect="variant_get(document, '$.offset', 'bigint') = offset",
    ),
}  # fmt: skip
"""Tables with one feature each, for the long run."""
TOGETHER = {
    "a table of many features": Feature(
        f"{COLUMNS}, twice BIGINT GENERATED ALWAYS AS (offset * 2), origin STRING DEFAULT 'kafka', "
        "n BIGINT GENERATED ALWAYS AS IDENTITY",
        clause="CLUSTER BY (offset)",
        properties="'delta.feature.allowColumnDefaults' = 'supported', 'delta.enableRowTracking' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true'",
        alterations=(CHECK,),
        rejected="identity columns",
        expect="twice = offset * 2 AND origin = 'kafka' AND n IS NOT NULL",
    ),
    "widened, with variants": Feature(
        f"{COLUMNS}, document VARIANT",
        properties=FEATURES["type widening"].properties,
        alterations=FEATURES["type widening"].alterations,
        rejected="variant",
        select=FEATURES["variant"].select,
        expect=FEATURES["variant"].expect,
        unreadable_by_delta_rs=True,
    ),
}


class Pipeline:
    """One table, by name; drivers and checkpoints come and go."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.table, self.name = folder / "table", f"append_{uuid.uuid4().hex}"
        self.select: tuple[str, ...] = ("*",)

    def create(self, feature: Feature) -> None:
        properties = f"TBLPROPERTIES ({feature.properties})" if feature.properties else ""
        where = f"LOCATION '{self.table}'"
        self.session.sql(
            f"CREATE TABLE {self.name} ({feature.columns}) USING delta {feature.clause} {where} {properties}"
        )
        for alteration in feature.alterations:
            self.session.sql(alteration.format(table=self.name))
        self.select = feature.select

    def writer(self, checkpoint: str = "c", **options: Any) -> AppendWriter:
        return AppendWriter(str(self.table), "app", str(self.folder / checkpoint), **options)

    def records(self, end: int, writer: AppendWriter | None = None) -> DataFrame:
        """Batches of ten; with a ``writer``, from the offsets that it has stored."""
        store = {} if writer is None else {"offsetStore": writer.offset_store, "appId": "app"}
        return numbers(self.session, end=end, perBatch=10, **store)

    def start(self, end: int, checkpoint: str = "c", stored: bool = False, **options: Any) -> Any:
        writer = self.writer(checkpoint, **options)
        rows = self.records(end, writer if stored else None).selectExpr(*self.select)
        query = rows.writeStream.foreachBatch(writer).trigger(availableNow=True)
        return query.option("checkpointLocation", str(self.folder / checkpoint)).start()

    def run(self, end: int, checkpoint: str = "c", **options: Any) -> None:
        self.start(end, checkpoint, **options).awaitTermination()

    def rows(self) -> list[tuple[Any, ...]]:
        """Read the source's columns by the table's name."""
        return sorted(tuple(row) for row in self.session.table(self.name).select(*SOURCE).collect())


@pytest.fixture
def pipeline(delta_session: SparkSession, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(delta_session, tmp_path)
    yield made
    delta_session.sql(f"DROP TABLE IF EXISTS {made.name}")


@pytest.mark.parametrize(
    ("guarantee", "before"),
    [
        ("exactly-once", "AppendWriter"),
        pytest.param("at-least-once", "delta_once", marks=pytest.mark.lab),
        pytest.param("at-most-once", "AppendWriter", marks=pytest.mark.soak),
        pytest.param("exactly-once", "delta_once", marks=pytest.mark.soak),
    ],
)
def test_another_app_id_does_not_write_the_rows_again(pipeline: Pipeline, guarantee: str, before: str) -> None:
    pipeline.create(Feature())
    if before == "delta_once":
        run_delta_once(pipeline.records(10), pipeline.table, pipeline.folder / "c", appId="app")
    else:
        pipeline.run(10, guarantee=guarantee)
    for meant in (False, True):
        checkpoint = str(pipeline.folder / f"other-{meant}")
        writer = AppendWriter(str(pipeline.table), "other", checkpoint, guarantee=guarantee, covered_twice=meant)
        query = pipeline.records(10).writeStream.foreachBatch(writer).trigger(availableNow=True)
        query = query.option("checkpointLocation", checkpoint)
        if meant:
            query.start().awaitTermination()
        else:
            with pytest.raises(
                StreamingQueryException, match=r"another appId, 'app', up to offset.*covered_twice=True on"
            ):
                query.start().awaitTermination()
            assert pipeline.rows() == expected(10)
    assert pipeline.rows() == sorted([*expected(10)] * 2)


def expected(end: int, start: int = 0) -> list[tuple[int, int, str]]:
    return [(p, n, f"{p}-{n}") for p in range(2) for n in range(start, end)]


@pytest.mark.parametrize(
    "feature",
    [
        *(
            pytest.param(feature, id=name, marks=pytest.mark.lab if number else ())
            for number, (name, feature) in enumerate(TOGETHER.items())
        ),
        *(pytest.param(feature, id=name, marks=pytest.mark.soak) for name, feature in FEATURES.items()),
    ],
)
def test_a_table_that_asks_something_of_writers(pipeline: Pipeline, faults: Path, feature: Feature) -> None:
    pipeline.create(feature)
    rows = pipeline.records(20).selectExpr(*feature.select)
    if feature.rejected:
        with pytest.raises(StreamingQueryException, match=rf"(?s){feature.rejected}.*sparkonce\.AppendWriter"):
            run_delta_once(rows, pipeline.table, pipeline.folder / "rejected")
    for number, point in enumerate(("intent.recorded@1", "sink.after_commit@1")):
        plan = arm(faults, f"crash{number}", f"{point}=raise")
        with pytest.raises(StreamingQueryException, match="injected failure"):
            pipeline.run(20)
        assert fired(plan)
    pipeline.run(20)
    assert pipeline.rows() == expected(20)
    assert pipeline.session.table(pipeline.name).where(f"NOT ({feature.expect})").count() == 0
    if feature.unreadable_by_delta_rs:
        with pytest.raises(Exception, match="not yet supported by the deltalake reader"):
            DeltaTable(pipeline.table).to_pyarrow_table()
    else:
        # By DataFusion: of mapped columns (Iceberg), delta-rs's own to_pyarrow_table returns nulls.
        found = QueryBuilder().register("found", DeltaTable(pipeline.table))
        columns = ", ".join(f'"{name}"' for name in SOURCE)
        by_delta_rs = pa.table(found.execute(f"SELECT {columns} FROM found").read_all()).to_pylist()
        assert sorted(tuple(row.values()) for row in by_delta_rs) == expected(20)
    assert main(["audit", str(pipeline.table / OFFSETS_FOLDER)]) == 0


def test_a_row_that_a_constraint_rejects_stops_the_query_and_moves_no_offset(pipeline: Pipeline) -> None:
    constraint = "ALTER TABLE {table} ADD CONSTRAINT few CHECK (offset < 15)"
    pipeline.create(Feature(alterations=(constraint,)))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"(?s)DELTA_VIOLATE_CONSTRAINT.*few"):
            pipeline.run(20)
        assert pipeline.rows() == expected(10)
    pipeline.session.sql(f"ALTER TABLE {pipeline.name} DROP CONSTRAINT few")
    pipeline.run(20)
    assert pipeline.rows() == expected(20)


def test_batches_without_rows_count(pipeline: Pipeline) -> None:
    pipeline.create(Feature(alterations=(CHECK,)))
    for end, kept in ((10, "true"), (20, "false")):
        writer = pipeline.writer()
        query = pipeline.records(end).where(kept).writeStream.foreachBatch(writer).trigger(availableNow=True)
        query.option("checkpointLocation", str(pipeline.folder / "c")).start().awaitTermination()
    shutil.rmtree(pipeline.folder / "c")
    pipeline.run(30, stored=True)
    assert pipeline.rows() == sorted(expected(10) + expected(30, start=20))


def test_a_deleted_checkpoint_and_a_driver_that_is_overtaken(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.create(TOGETHER["a table of many features"])
    pipeline.run(10)
    recorded, go_on = threading.Event(), threading.Event()

    def reach(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
        if point is IntentPoint.RECORDED and not recorded.is_set():
            recorded.set()
            assert go_on.wait(DEADLINE_S)

    monkeypatch.setattr(sequence, "reach", reach)
    slow = pipeline.start(20, "slow", stored=True)
    assert recorded.wait(DEADLINE_S)
    pipeline.run(20, "quick", stored=True)
    go_on.set()
    with pytest.raises(StreamingQueryException, match=r"holds that number, made by batch 0 of query .* Another driver"):
        slow.awaitTermination()
    assert pipeline.rows() == expected(20)
    shutil.rmtree(pipeline.folder / "c")
    with pytest.raises(StreamingQueryException, match=r"result's offsets.*Set offsetStore=delta:\S*/_sparkonce "):
        numbers_in_one_batch(pipeline, end=30)
    assert pipeline.rows() == expected(20)


def numbers_in_one_batch(pipeline: Pipeline, end: int) -> None:
    query = numbers(pipeline.session, end=end).writeStream.foreachBatch(pipeline.writer()).trigger(availableNow=True)
    query.option("checkpointLocation", str(pipeline.folder / "c")).start().awaitTermination()


def run_groups(pipeline: Pipeline, end: int, mode: str = "complete", **options: Any) -> None:
    frame = pipeline.records(end).groupBy((f.col("offset") % 3).alias("rest"), "partition").agg(f.count("*").alias("n"))
    query = frame.writeStream.foreachBatch(pipeline.writer(**options)).outputMode(mode).trigger(availableNow=True)
    query.option("checkpointLocation", str(pipeline.folder / "c")).start().awaitTermination()


def test_each_batch_replaces_the_table_in_output_mode_complete(pipeline: Pipeline, faults: Path) -> None:
    pipeline.create(
        Feature(
            "rest BIGINT, partition INT, n BIGINT", alterations=(CHECK.replace("offset", "n"),), clause="CLUSTER BY (n)"
        )
    )
    for number, point in enumerate(("intent.recorded@1", "sink.after_commit@1")):
        plan = arm(faults, f"crash{number}", f"{point}=raise")
        with pytest.raises(StreamingQueryException, match="injected failure"):
            run_groups(pipeline, 20, output_mode="complete")
        assert fired(plan)
    run_groups(pipeline, 20, output_mode="complete")
    rows = pipeline.session.table(pipeline.name).collect()
    assert sorted(tuple(row) for row in rows) == [(rest, p, (7, 7, 6)[rest]) for rest in range(3) for p in range(2)]
    shutil.rmtree(pipeline.folder / "c")
    with pytest.raises(StreamingQueryException, match="first of a stateful query with a new checkpoint"):
        run_groups(pipeline, 30, output_mode="complete")


@pytest.mark.lab
def test_no_partition_stays_in_output_mode_complete(pipeline: Pipeline) -> None:
    """Whatever the session says of other overwrites; Delta's own sink replaces all rows, too."""
    pipeline.session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        run_groups(pipeline, 20, output_mode="complete", partition_by=["n"])
    finally:
        pipeline.session.conf.unset("spark.sql.sources.partitionOverwriteMode")
    rows = DeltaTable(pipeline.table).to_pyarrow_table(columns=["rest", "partition", "n"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(r, p, (7, 7, 6)[r]) for r in range(3) for p in range(2)]


@pytest.mark.lab
def test_two_tables_in_threads(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both writes begin at the same moment, in the one session of the batch."""
    both, save = threading.Barrier(2), DataFrameWriter.save

    def save_together(writer: DataFrameWriter, *arguments: Any, **options: Any) -> None:
        both.wait(DEADLINE_S)
        save(writer, *arguments, **options)

    tables = [pipeline.folder / name for name in ("a", "b")]
    writers = [AppendWriter(str(table), table.name, str(pipeline.folder / "c")) for table in tables]

    def write(rows: DataFrame, batch_id: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            for written in [pool.submit(writer, rows, batch_id) for writer in writers]:
                written.result()

    monkeypatch.setattr(DataFrameWriter, "save", save_together)
    query = pipeline.records(20).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(pipeline.folder / "c")).start().awaitTermination()
    for table in tables:
        rows = DeltaTable(table).to_pyarrow_table(columns=list(SOURCE)).to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == expected(20)
        assert main(["audit", str(table / OFFSETS_FOLDER)]) == 0


@pytest.mark.parametrize(
    ("mode", "output_mode"), [("complete", "append"), ("update", "append"), ("update", "complete")]
)
def test_another_output_mode_than_the_querys_is_rejected(pipeline: Pipeline, mode: str, output_mode: str) -> None:
    with pytest.raises(
        StreamingQueryException, match=f"outputMode is {mode}, and the writer's output_mode {output_mode}"
    ):
        run_groups(pipeline, 10, mode, output_mode=output_mode)
    assert not pipeline.table.exists()


def test_a_new_table_and_new_columns(pipeline: Pipeline) -> None:
    pipeline.run(10, partition_by=["partition"])
    pipeline.select = ("*", "offset % 2 AS rest")
    with pytest.raises(StreamingQueryException, match=r"(?i)schema mismatch"):
        pipeline.run(20)
    pipeline.run(20, merge_schema=True)
    table = DeltaTable(pipeline.table)
    assert table.metadata().partition_columns == ["partition"]
    rests = [(row["offset"], row["rest"]) for row in table.to_pyarrow_table().to_pylist() if row["partition"] == 0]
    assert sorted(rests) == [(n, None if n < 10 else n % 2) for n in range(20)]


@pytest.mark.parametrize("keeps_checkpoint", [True, pytest.param(False, marks=pytest.mark.lab)])
def test_a_table_of_delta_once_that_gets_a_constraint(pipeline: Pipeline, keeps_checkpoint: bool) -> None:
    """The offsets that its commits hold move to the table of offsets, and from then on only those count."""
    run_delta_once(pipeline.records(10), pipeline.table, pipeline.folder / "c")
    where = f"CREATE TABLE {pipeline.name} USING delta LOCATION '{pipeline.table}'"
    constraint = f"ALTER TABLE {pipeline.name} ADD CONSTRAINT positive CHECK (offset >= 0L)"
    for statement in (where, constraint):
        pipeline.session.sql(statement)
    with pytest.raises(StreamingQueryException, match="check constraint positive"):
        run_delta_once(pipeline.records(20), pipeline.table, pipeline.folder / "c")
    shutil.copytree(pipeline.folder / "c", pipeline.folder / "old")
    if not keeps_checkpoint:
        shutil.rmtree(pipeline.folder / "c")
    pipeline.run(20, stored=not keeps_checkpoint)
    assert pipeline.rows() == expected(20)
    if not keeps_checkpoint:
        return
    pipeline.session.sql(f"ALTER TABLE {pipeline.name} DROP CONSTRAINT positive")
    with pytest.raises(StreamingQueryException, match="AppendWriter or MergeWriter writes to the table"):
        run_delta_once(pipeline.records(30), pipeline.table, pipeline.folder / "old")
    with pytest.raises(StreamingQueryException, match="AppendWriter or MergeWriter writes to the table"):
        run_delta_once(
            numbers(pipeline.session, end=30, offsetStore=f"delta:{pipeline.table}", appId="app"),
            pipeline.table,
            pipeline.folder / "new",
        )
    assert pipeline.rows() == expected(20)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"output_mode": "update"}, "not append or complete.*MergeWriter"),
        ({"output_mode": "complete", "guarantee": "at-least-once"}, "leave guarantee out"),
        ({"partition_by": "a"}, "partition_by is a list"),
        ({"guarantee": "twice"}, "twice"),
    ],
)
def test_arguments_that_cannot_work_are_rejected(tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AppendWriter(str(tmp_path), "app", "c", **arguments)
