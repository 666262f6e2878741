"""The benchmarks of the direct path, with Spark sessions that only pretend; the program without Spark is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lab.bench import direct, growth, load, loop, micro_batches, pipelines, task_memory, task_parts
from lab.bench.__main__ import parse
from lab.bench.chart import panels
from lab.bench.load import KEPT_SITE, create_topic, documents, fill, kept_of
from lab.bench.processes import peak_rss_mb, peak_worker_mb
from lab.bench.results import Comparison, Results
from lab.bench.sessions import JVM, LOOP, OURS, WARM_UP_BATCHES, SideError
from lab.bench.settings import (
    DIRECT_BENCHMARKS,
    DIRECT_KAFKA,
    DIRECT_PARTS,
    DIRECT_THROUGHPUT,
    LIMITS,
    TARGETS,
)
from lab.bench.spark_side import Batch, Outcome, Query
from sparkonce import EmbeddedBroker

ROWS = 1000
BATCHES = 3
SECONDS = {OURS: 1.0, JVM: 8.0, LOOP: 4.0}
INTO_TABLES = [name for name in DIRECT_BENCHMARKS if name not in (*DIRECT_KAFKA, DIRECT_PARTS)]


class FakeSide:
    """A query takes 1 s on our side, 8 s on the JVM's and 4 s without Spark; a worker grows by 50 MB a query."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queries: list[Query] = []
        self.lost = 0

    def __enter__(self) -> FakeSide:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, query: Query) -> Outcome:
        self.queries.append(query)
        batches: tuple[Batch, ...] = ()
        if query.rows_per_batch is None:
            rows = topic_rows(query)
        else:
            rows = (WARM_UP_BATCHES + BATCHES) * query.rows_per_batch
            each = SECONDS[self.name] / 10
            batches = (Batch(100.0, 0.0),) * WARM_UP_BATCHES + (Batch(each, 0.0),) * BATCHES
        kept = kept_of(rows) if is_kept(query) else rows
        table = {"rows": kept - self.lost, "nulls": {}}
        peak = 300.0 + 50 * len(self.queries)
        read = None if query.is_direct else rows
        return Outcome(SECONDS[self.name], read, batches, 2e-3, table, peak_worker_mb=peak)


def topic_rows(query: Query) -> int:
    if query.topic.startswith("direct-memory-"):
        return int(query.topic.rpartition("-")[2])
    return ROWS // 5 if query.topic == "direct-rows-1KiB" else ROWS


def is_kept(query: Query) -> bool:
    return bool(
        query.where or "WHERE" in query.sink_options.get("sql", "") or query.source_options.get("columns") == "kept"
    )


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeSide]:
    sides = {name: FakeSide(name) for name in (OURS, JVM, LOOP)}
    monkeypatch.setattr(load, "DISTINCT_VALUES", 100)
    monkeypatch.setattr(direct, "session_settings", lambda _: ({}, True))
    monkeypatch.setattr(direct, "loop_side", lambda _: sides[LOOP])
    for module in (direct, growth, task_memory):
        monkeypatch.setattr(module, "SparkSide", lambda name, *_: sides[name])
    for module in (pipelines, micro_batches, growth, task_memory):
        for name in ("create_topic", "delete_topic", "fill"):
            monkeypatch.setattr(module, name, lambda *_: None)
    return sides


def measure(*names: str) -> Results:
    words = [*names, "--rows", str(ROWS), "--rounds", "2", "--micro-batches", str(2 * BATCHES)]
    results = Results({})
    direct.run(parse(words)[0], results)
    return results


def lines(results: Results) -> list[str | None]:
    return [one.line() for one in results.comparisons]


def test_a_program_without_spark_stands_beside_without_a_target(sides: dict[str, FakeSide]) -> None:
    assert lines(measure("direct-100B")) == [
        "RATIO direct-100B=8.000 target>=6",
        "RATIO direct-100B-cpu=1.000",
        "RATIO direct-100B-loop=4.000",
        "RATIO direct-100B-loop-cpu=1.000",
    ]


def test_cpu_time_of_json_is_held_to_a_limit(sides: dict[str, FakeSide]) -> None:
    results = measure("direct-json")
    assert [one.line() for one in results.bounds] == ["RATIO direct-json-cpu-s=2.000 target<=2"]


def test_only_our_side_hands_over_ranges(sides: dict[str, FakeSide]) -> None:
    measure(*INTO_TABLES)
    assert all(query.is_direct for query in sides[OURS].queries)
    assert not any(query.is_direct for side in (JVM, LOOP) for query in sides[side].queries)
    assert {query.sink for query in sides[JVM].queries} == {"delta"}


@pytest.mark.parametrize("name", INTO_TABLES)
def test_rows_that_are_missing_fail_the_run(sides: dict[str, FakeSide], name: str) -> None:
    sides[OURS].lost = 1
    with pytest.raises(SideError, match=r"sparkonce|the table has"):
        measure(name)


def test_what_a_condition_keeps_is_counted(sides: dict[str, FakeSide]) -> None:
    kept = sum(json.loads(document)["site"] == KEPT_SITE for document in documents())
    assert kept_of(250) == 2 * kept + sum(json.loads(one)["site"] == KEPT_SITE for one in documents()[:50])
    measure("direct-json-where")
    sides[LOOP].lost = -1
    with pytest.raises(SideError, match=r"loop wrote \d+ of \d+ rows"):
        measure("direct-json-where")


def test_micro_batches_are_held_to_the_tuned_peer(sides: dict[str, FakeSide]) -> None:
    assert lines(measure("direct-micro-batch")) == [
        "RATIO direct-micro-batch=0.125 target<=0.2",
        "RATIO direct-micro-batch-cpu=1.000",
    ]
    assert all(query.conf == micro_batches.TUNED_CONF for query in sides[JVM].queries)


def test_memory_is_held_to_a_peak_and_to_growth(sides: dict[str, FakeSide]) -> None:
    results = measure("direct-memory")
    assert [one.line() for one in results.bounds] == [
        "RATIO direct-memory-peak-rss-mb=400.000 target<=600",
        "RATIO direct-memory-growth-mb=50.000 target<=60",
    ]
    small, large = (topic_rows(query) for query in sides[OURS].queries)
    assert large == task_memory.TIMES_LARGER * small


def test_growth_is_drawn_by_task_slots(sides: dict[str, FakeSide]) -> None:
    found = measure("direct-growth").comparisons
    assert {panel.title: [label for label, _ in panel.lines] for panel in panels(found)} == {
        "partitions, direct into a table, one task slot: rows/s": ["1", "4", "16", "64"],
        "partitions, direct into a table, two task slots: rows/s": ["1", "4", "16", "64"],
    }


def test_throughput_is_drawn_with_the_pipelines() -> None:
    speed = Comparison("direct-100B", "rows/s", (6e6,), (1e6,), JVM, 6.0)
    assert [[label for label, _ in panel.lines] for panel in panels([speed])] == [["direct-100B"]]


def test_every_line_with_a_target_is_printed(sides: dict[str, FakeSide]) -> None:
    results = measure(*INTO_TABLES)
    printed = {one.name for one in results.comparisons} | {one.name for one in results.bounds}
    bounds = {name for name in (*TARGETS, *LIMITS) if name.startswith("direct") and name not in DIRECT_KAFKA}
    assert bounds <= printed


def test_nothing_is_started_when_nothing_direct_was_asked_for(sides: dict[str, FakeSide]) -> None:
    assert lines(measure("source")) == []
    assert sides[OURS].queries == []


def test_all_direct_benchmarks_have_one_beginning() -> None:
    assert parse(["direct"])[0].names == DIRECT_BENCHMARKS
    assert set(DIRECT_THROUGHPUT) == set(direct.CASES)


@pytest.mark.parametrize(("columns", "values"), [("records", load.words(50)), ("documents", None), ("kept", None)])
def test_the_program_without_spark_writes_the_rows(
    kafka_broker: EmbeddedBroker, tmp_path: Path, columns: str, values: list[bytes] | None
) -> None:
    rows, topic = 500, f"looped-{columns}"
    create_topic(kafka_broker.bootstrap_servers, topic, 4)
    fill(kafka_broker.bootstrap_servers, topic, rows, values or documents(), 4)
    DeltaTable.create(str(tmp_path), loop.COLUMNS[columns]([]).schema)
    for partitions in ([0, 2], [1, 3]):
        loop.copy_partitions(kafka_broker.bootstrap_servers, topic, partitions, columns, str(tmp_path))
    table = DeltaTable(str(tmp_path)).to_pyarrow_table()
    assert table.num_rows == (kept_of(rows) if columns == "kept" else rows)
    if columns == "kept":
        assert table.column_names == list(direct.EXPRESSIONS)
        assert set(table.column("site").to_pylist()) == {KEPT_SITE}
        assert all(0 <= bucket < 1000 for bucket in table.column("bucket").to_pylist())


@pytest.mark.parametrize(("kind", "names"), [("100B", 3), ("json", 4)])
def test_the_parts_of_a_task_are_measured(kafka_broker: EmbeddedBroker, kind: str, names: int) -> None:
    topic, rows = f"parts-{kind}", 300
    create_topic(kafka_broker.bootstrap_servers, topic, 1)
    fill(kafka_broker.bootstrap_servers, topic, rows, task_parts.KINDS[kind].values(), 1)
    steps = task_parts.Steps(kafka_broker.bootstrap_servers, topic, task_parts.KINDS[kind].options)
    assert steps.rows == rows
    found = task_parts.parts(steps, 2)
    assert [len(figures) for figures in found.values()] == [2] * names
    assert list(found)[-1] == "files"


def test_a_partition_that_was_not_filled_fails_the_run(kafka_broker: EmbeddedBroker) -> None:
    create_topic(kafka_broker.bootstrap_servers, "parts-empty", 1)
    with pytest.raises(SideError, match="parts-empty: the measuring process failed"):
        task_parts._in_a_process(
            kafka_broker.bootstrap_servers, "parts-empty", {"kafkaConsumer.pollTimeoutMs": "200"}, 1, 10
        )


def test_memory_of_a_process_that_has_ended_is_none() -> None:
    assert peak_rss_mb(2**22 + 1) == 0.0
    assert peak_worker_mb(1) >= 0.0
