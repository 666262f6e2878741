"""`MergeWriter` with delta-spark: MERGEs that add up, so that each loss and each repetition shows as a wrong sum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from connectors.delta_once.merge import MergeWriter
from exactly_once import crash_points
from exactly_once.crash_points import CrashPlans, arm, fired
from exactly_once.guarantee import Guarantee
from tests.spark.sink_support import NumbersSource, numbers

pytestmark = [pytest.mark.spark, pytest.mark.java]
EXACTLY = Guarantee.EXACTLY_ONCE


@pytest.fixture(scope="module")
def session(delta_spark: SparkSession) -> SparkSession:
    delta_spark.dataSource.register(NumbersSource)
    return delta_spark


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of plans: `foreachBatch` runs in this very process."""
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, folder))
    return folder


def totals(target: Any, rows: DataFrame) -> Any:
    """Add each batch's count and sum to those that are there."""
    sums = rows.groupBy("partition").agg(f.count("*").alias("n"), f.sum("offset").alias("total"))
    builder = target.alias("t").merge(sums.alias("s"), "t.partition = s.partition")
    return builder.whenMatchedUpdate(set={"n": "t.n + s.n", "total": "t.total + s.total"}).whenNotMatchedInsertAll()


TOTALS_SCHEMA = "partition int, n bigint, total bigint"


class Pipeline:
    """One result; drivers come and go."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.table = folder / "table"

    def writer(self, checkpoint: str = "c", **options: Any) -> MergeWriter:
        from pyspark.sql.types import StructType

        settings = {"merge": totals, "schema": StructType.fromDDL(TOTALS_SCHEMA), **options}
        return MergeWriter(str(self.table), "app", str(self.folder / checkpoint), **settings)

    def start(
        self, end: int, checkpoint: str = "c", source: dict[str, Any] | None = None, **options: Any
    ) -> StreamingQuery:
        frame = numbers(self.session, end=end, **{"perBatch": 10, **(source or {})})
        writer = self.writer(checkpoint, **options)
        query = frame.writeStream.foreachBatch(writer).trigger(availableNow=True)
        return query.option("checkpointLocation", str(self.folder / checkpoint)).start()

    def run(self, end: int, checkpoint: str = "c", **options: Any) -> None:
        self.start(end, checkpoint, **options).awaitTermination()

    def totals(self) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["partition"])


@pytest.fixture
def pipeline(session: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(session, tmp_path)


def expected(end: int) -> list[dict[str, int]]:
    return [{"partition": p, "n": end, "total": sum(range(end))} for p in range(2)]


@pytest.mark.parametrize("guarantee", [each.value for each in Guarantee])
def test_batches_add_up(pipeline: Pipeline, guarantee: str) -> None:
    pipeline.run(25, guarantee=guarantee)
    assert pipeline.totals() == expected(25)
    pipeline.run(40, guarantee=guarantee)
    assert pipeline.totals() == expected(40)
    by_spark = pipeline.session.read.format("delta").load(str(pipeline.table)).orderBy("partition").collect()
    assert [row.asDict() for row in by_spark] == expected(40)


@pytest.mark.parametrize("point", ["sink.begun", "sink.before_commit", "merge.recorded"])
def test_a_crash_before_the_merge(pipeline: Pipeline, faults: Path, point: str) -> None:
    plan = arm(faults, "crash", f"{point}@1=raise")
    with pytest.raises(Exception, match="injected failure"):
        pipeline.run(30)
    assert fired(plan)
    assert pipeline.totals() == expected(10)
    pipeline.run(30)
    assert pipeline.totals() == expected(30)
