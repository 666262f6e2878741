"""The benchmarks beside the JVM's connectors, with Spark sessions that only pretend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lab.bench import load, micro_batches, pipelines, planning
from lab.bench.__main__ import parse
from lab.bench.load import create_topic, fill, records_in
from lab.bench.results import Comparison, Results
from lab.bench.sessions import JVM, OURS, WARM_UP_BATCHES, SideError
from lab.bench.settings import MICRO_BATCH_ROWS, SPARK_BENCHMARKS, TARGETS
from lab.bench.spark_side import Batch, Outcome, Query
from sparkonce import EmbeddedBroker

ROWS = 1000
BATCHES = 3
SECONDS = {OURS: 1.0, JVM: 2.0}


class FakeSide:
    """A query takes 1 s on our side and 2 s on the other, a batch or its planning a tenth; warm-up batches 100 s."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.queries: list[Query] = []
        self.lost = 0
        self.nulls: dict[str, int] = {}

    def __enter__(self) -> FakeSide:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, query: Query) -> Outcome:
        self.queries.append(query)
        rows = ROWS // 5 if query.topic == "rows-1KiB" else ROWS
        if query.rows_per_batch is not None:
            rows = (WARM_UP_BATCHES + BATCHES) * query.rows_per_batch
        tuned = bool(query.conf)
        each = SECONDS[self.name] / (20 if tuned else 10)
        batches = (Batch(100.0, 100.0),) * WARM_UP_BATCHES + (Batch(each, each),) * BATCHES
        table = {"rows": rows - self.lost, "nulls": self.nulls} if query.count_table else None
        memory = [(done, 80.0 + done / 10) for done in range(len(batches) + 1)]
        read = rows if query.count_table else rows - self.lost
        return Outcome(SECONDS[self.name], read, batches, 4.0, table, memory)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, FakeSide]:
    sides = {name: FakeSide(name, tmp_path / name) for name in (OURS, JVM)}
    monkeypatch.setattr(pipelines, "SparkSide", lambda name, *_: sides[name])
    monkeypatch.setattr(load, "DISTINCT_VALUES", 10)
    monkeypatch.setattr(pipelines, "session_settings", lambda _: ({}, True))
    for module in (pipelines, micro_batches, planning):
        for name in ("create_topic", "delete_topic", "fill"):
            monkeypatch.setattr(module, name, lambda *_: None)
    return sides


def measure(*names: str) -> Results:
    settings = parse([*names, "--rows", str(ROWS), "--rounds", "2"])[0]
    settings = replace(
        settings,
        micro_batches=2 * BATCHES,
        micro_passes=2,
        planning_batches=BATCHES,
        memory_batches=BATCHES + WARM_UP_BATCHES,
    )
    results = Results({})
    pipelines.run(settings, results)
    return results


def lines(found: Sequence[Comparison]) -> list[str | None]:
    return [one.line() for one in found]


def test_throughput_is_of_rows_and_of_cpu_time(sides: dict[str, FakeSide]) -> None:
    results = measure("source-noop", "pipeline-json")
    assert lines(results.comparisons) == [
        "RATIO source-noop=2.000 target>=1.15",
        "RATIO source-noop-cpu=1.000",
        "RATIO pipeline-json=2.000 target>=1.5",
        "RATIO pipeline-json-cpu=1.000",
    ]
    assert [len(side.queries) for side in sides.values()] == [2 * 3] * 2


def test_both_sides_read_the_same_topics(sides: dict[str, FakeSide]) -> None:
    measure("source", "pipeline")
    topics = [[query.topic for query in side.queries] for side in sides.values()]
    assert topics[0] == topics[1]
    assert {query.sink for query in sides[OURS].queries} == {"noop", "delta_once"}
    assert {query.sink for query in sides[JVM].queries} == {"noop", "delta"}


@pytest.mark.parametrize(("name", "told"), [("source-noop", "read 999"), ("pipeline-delta", "wrote 999")])
def test_rows_that_are_missing_fail_the_run(sides: dict[str, FakeSide], name: str, told: str) -> None:
    sides[JVM].lost = 1
    with pytest.raises(SideError, match=f"{name}: Spark's JVM {told} of 1000 rows"):
        measure(name)


def test_documents_that_were_not_parsed_fail_the_run_and_missing_keys_do_not(sides: dict[str, FakeSide]) -> None:
    sides[JVM].nulls = {"key": ROWS}
    measure("pipeline-delta")
    with pytest.raises(SideError, match=r"pipeline-json: Spark's JVM wrote nulls .*'key': 1000"):
        measure("pipeline-json")


def test_micro_batches_are_held_to_both_ways_of_the_peer(sides: dict[str, FakeSide]) -> None:
    results = measure("micro-batch-400")
    assert lines(results.comparisons) == [
        "RATIO micro-batch-400=0.500 target<=0.2",
        "RATIO micro-batch-400-cpu=1.000",
        "RATIO micro-batch-400-tuned=1.000 target<=0.25",
        "RATIO micro-batch-400-tuned-cpu=1.000 target<=0.2",
    ]
    assert len(results.comparisons[0].ours) == 2 * BATCHES
    assert [bool(query.conf) for query in sides[JVM].queries] == [False, True] * 2


def test_old_tables_are_held_to_the_tuned_peer_only(
    sides: dict[str, FakeSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batches, "_templates", lambda *_: {})
    assert lines(measure("micro-batch-100000").comparisons) == [
        "RATIO micro-batch-100000-versions-tuned=1.000 target<=0.25",
        "RATIO micro-batch-100000-versions-tuned-cpu=1.000 target<=0.2",
    ]
    assert all(query.conf == micro_batches.TUNED_CONF for query in sides[JVM].queries)


def test_planning_is_compared_and_its_memory_held_to_a_limit(sides: dict[str, FakeSide]) -> None:
    results = measure("planning")
    assert lines(results.comparisons) == ["RATIO planning-1000=0.500 target<=1"]
    # From the second batch on, the first behind a fifth of eight, to the eighth: a tenth of a megabyte each.
    assert [one.line() for one in results.bounds] == ["RATIO planning-memory-growth-mb=0.600 target<=10"]


def test_memory_that_nobody_looked_at_is_no_figure() -> None:
    with pytest.raises(SideError, match="seen 1 times after the first 20 batches"):
        planning.growth_mb([(1, 50.0), (19, 60.0), (20, 61.0)], 100)


def test_every_line_with_a_target_is_printed(sides: dict[str, FakeSide], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batches, "_templates", lambda *_: {})
    printed = {one.name for one in measure(*SPARK_BENCHMARKS).comparisons}
    assert {name for name in TARGETS if name.startswith(SPARK_BENCHMARKS)} <= printed


def test_documents_have_a_value_for_each_column_of_the_schema() -> None:
    names = [column.split()[0] for column in load.DOCUMENT_SCHEMA.split(", ")]
    found = [json.loads(document) for document in load.documents()]
    assert len(names) == 10
    assert all(list(document) == names for document in found)
    assert all(value is not None for document in found for value in document.values())


def test_values_have_the_size_that_was_asked_for() -> None:
    assert {len(value) for made in (load.words(100), load.random_bytes(100)) for value in made} == {100}


def test_a_part_of_the_partitions_is_filled(kafka_broker: EmbeddedBroker) -> None:
    create_topic(kafka_broker.bootstrap_servers, "partly", 6)
    fill(kafka_broker.bootstrap_servers, "partly", 2 * MICRO_BATCH_ROWS, load.words(50), 4, "zstd")
    assert records_in(kafka_broker.bootstrap_servers, "partly", 4) == 2 * MICRO_BATCH_ROWS
    assert records_in(kafka_broker.bootstrap_servers, "partly", 6) == 2 * MICRO_BATCH_ROWS
