"""The example jobs on real flights: a crash, a second run, and the answer worked out without Spark."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lab.crash_plans import arm, disarm, fired
from sparkonce import EmbeddedBroker
from sparkonce.jobs.etl import dataset, enrich_flights, hourly_delays
from sparkonce.jobs.etl.job_settings import BOOTSTRAP_SERVERS, JobSettings, sample
from sparkonce.jobs.etl.publish import create_topic, publish
from sparkonce.jobs.shared.arguments import CONF

pytestmark = pytest.mark.spark
FLIGHTS = 1_000
NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return dataset.flights().slice(0, FLIGHTS)


@pytest.fixture(scope="module")
def broker(flights: pa.Table) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        create_topic(made.bootstrap_servers, "flights", 4)
        assert publish(made.bootstrap_servers, "flights", dataset.messages(flights), lambda _: None) == FLIGHTS
        yield made


def settings(name: str, own: tuple[str, ...], broker: EmbeddedBroker, folder: Path) -> JobSettings:
    read = JobSettings.read(CONF / f"{name}.toml", own)
    kafka = {**read.kafka, BOOTSTRAP_SERVERS: broker.bootstrap_servers, "maxOffsetsPerTrigger": "500"}
    return replace(read, result=str(folder / "table"), checkpoint=str(folder / "checkpoint"), kafka=kafka)


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: row["flight_id"])


def test_enrich_flights(
    spark: SparkSession, broker: EmbeddedBroker, flights: pa.Table, tmp_path: Path, crash_folder: Path
) -> None:
    job = settings("enrich_flights", ("partition_by",), broker, tmp_path)
    plan = arm(crash_folder, "enrich-flights", "enrich-flights:sink.before_commit@1=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        enrich_flights.start(spark, job, NOW).awaitTermination()
    assert fired(plan)
    disarm(crash_folder, "enrich-flights")
    shutil.rmtree(job.checkpoint)
    enrich_flights.start(spark, job, NOW).awaitTermination()
    found = DeltaTable(job.result).to_pyarrow_table()
    joined = flights.join(dataset.airlines(), "carrier", join_type="left outer")
    expected = by_id(joined.join(dataset.planes(), "tailnum", join_type="left outer"))
    columns = list(expected[0])
    assert by_id(found.select(columns)) == expected
    assert DeltaTable(job.result).metadata().partition_columns == ["origin"]


def delays(flights: pa.Table) -> dict[tuple[str, dt.datetime], list[int]]:
    """Group the delays of the flights that left by airport and hour of departure."""
    groups: dict[tuple[str, dt.datetime], list[int]] = defaultdict(list)
    for row in flights.to_pylist():
        if row["dep_delay"] is None:
            continue
        scheduled = dt.datetime(row["year"], row["month"], row["day"], tzinfo=dt.UTC) + dt.timedelta(
            hours=row["sched_dep_time"] // 100, minutes=row["sched_dep_time"] % 100
        )
        departed = scheduled + dt.timedelta(minutes=row["dep_delay"])
        groups[row["origin"], departed.replace(minute=0)].append(row["dep_delay"])
    return groups


@pytest.mark.java
def test_hourly_delays(
    delta_spark: SparkSession, broker: EmbeddedBroker, flights: pa.Table, tmp_path: Path, faults: Path
) -> None:
    job = settings("hourly_delays", ("window", "watermark"), broker, tmp_path)
    plan = arm(faults, "crash", "intent.recorded@1=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        hourly_delays.start(delta_spark, job, NOW).awaitTermination()
    assert fired(plan)
    hourly_delays.start(delta_spark, job, NOW).awaitTermination()
    rows = DeltaTable(job.result).to_pyarrow_table().to_pylist()
    found = {(row["origin"], row["hour"]): (row["flights"], row["mean_delay"]) for row in rows}
    assert len(found) == len(rows)
    expected = delays(flights)
    assert {key: value[0] for key, value in found.items()} == {key: len(each) for key, each in expected.items()}
    for key, each in expected.items():
        assert found[key][1] == pytest.approx(sum(each) / len(each))


def test_a_sample_keeps_its_flights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = JobSettings.read(CONF / "enrich_flights.toml", ("partition_by",))
    job = replace(job, checkpoint=str(tmp_path / "checkpoint"))
    for _ in range(2):
        with sample(job, 20) as ready:
            assert ready.kafka[BOOTSTRAP_SERVERS] != job.kafka[BOOTSTRAP_SERVERS]
            assert ready.kafka["subscribe"] == "flights"
    assert capsys.readouterr().out.count("published 20 flights to flights") == 1
