"""Spans and metrics of real queries, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.otlp_collector import Collector, collector, number, plain
from tests.spark.source_support import Topics
from tests.spark.traced_job import RUNS

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
DEADLINE_S = 500
SECRET, TOKEN = "value-of-a-record", "token-of-the-collector"
STEPS = {"plan", "begin", "read", "write", "commit"}
IDS = {"sparkonce.query.id", "sparkonce.query.run_id", "sparkonce.batch.id"}


@dataclass(frozen=True)
class Traced:
    """What the collector has, and the ids of each query and its run."""

    collected: Collector
    ids: dict[str, tuple[str, str]]

    def of(self, name: str, batch_id: int) -> dict[str, Any]:
        """Return the spans of a batch, by their names."""
        query_id, _ = self.ids[name]
        wanted = {"sparkonce.query.id": query_id, "sparkonce.batch.id": batch_id}
        found = [each for each in self.collected.spans() if wanted.items() <= plain(each.attributes).items()]
        assert len({each.name for each in found}) == len(found), "each step once: there is one task"
        assert len({each.trace_id for each in found}) == 1
        return {each.name: each for each in found}


@pytest.fixture(scope="module")
def traced(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    topics = Topics(kafka.bootstrap_servers)
    topic = topics.create(1, "traced")
    topics.produce(topic, [SECRET.encode()] * 10)
    with collector() as collected:
        switches = {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "NO_PROXY": "127.0.0.1",
        }
        folder = tmp_path_factory.mktemp("traced")
        command = [sys.executable, "-m", "tests.spark.traced_job", kafka.bootstrap_servers, topic, str(folder)]
        environment = {**os.environ, **switches}
        done = subprocess.run(
            command, env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        words = [line.split() for line in done.stdout.splitlines()]
        yield Traced(collected, {name: (query_id, run_id) for name, query_id, run_id in words})


@pytest.mark.parametrize(("name", "batch_id"), [("rows", 0), ("rows", 1), ("ranges", 0), ("ranges", 1)])
def test_each_batch_is_one_trace_with_its_steps(traced: Traced, name: str, batch_id: int) -> None:
    spans = traced.of(name, batch_id)
    assert spans.keys() == {*STEPS, "batch"}
    root = spans["batch"]
    assert root.parent_span_id == b""
    assert all(spans[step].parent_span_id == root.span_id for step in STEPS - {"read"})
    reader = root if name == "rows" else spans["write"]  # a direct query reads in the task that writes
    assert spans["read"].parent_span_id == reader.span_id
    assert all(root.start_time_unix_nano <= each.start_time_unix_nano for each in spans.values())
    assert all(each.end_time_unix_nano <= root.end_time_unix_nano for each in spans.values())
    order = ("plan", "begin", "read", "commit")
    ends = [spans[step].end_time_unix_nano for step in order]
    assert ends == sorted(ends)
    assert not any(each.status.code for each in spans.values())


def test_repeats_of_a_batch_would_be_in_its_trace_and_other_batches_are_not(traced: Traced) -> None:
    traces = {traced.of(name, batch_id)["batch"].trace_id for name, _ in RUNS[:2] for batch_id in (0, 1)}
    assert len(traces) == 4


@pytest.mark.parametrize(("name", "batch_id", "records"), [("rows", 0, 6), ("rows", 1, 4), ("ranges", 0, 6)])
def test_spans_say_how_much_was_read_and_written(traced: Traced, name: str, batch_id: int, records: int) -> None:
    spans = {step: plain(each.attributes) for step, each in traced.of(name, batch_id).items()}
    _, run_id = traced.ids[name]
    for each in spans.values():
        assert each["sparkonce.query.run_id"] == run_id
    read = spans["read"]
    assert (read["sparkonce.records"], read["messaging.destination.name"]) == (records, "traced")
    assert read["sparkonce.read_bytes"] > 0
    for step in ("write", "commit", "batch"):
        assert spans[step]["sparkonce.rows"] == records
        assert (spans[step]["sparkonce.files"], spans[step]["sparkonce.app_id"]) == (1, name)
    assert (spans["write"]["spark.task.partition"], spans["write"]["spark.task.attempt"]) == (0, 0)


def test_a_refused_batch_is_a_trace_that_says_by_what(traced: Traced) -> None:
    spans = traced.of("refused", 0)
    assert spans.keys() == {"batch", "plan", "begin"}
    for step in ("batch", "begin"):
        assert spans[step].status.code == 2
        assert spans[step].status.message == ""
        assert plain(spans[step].attributes)["error.type"] == "OffsetMismatchError"
    assert spans["begin"].parent_span_id == spans["batch"].span_id


def test_nothing_secret_and_no_content_of_records_leaves(traced: Traced) -> None:
    messages: list[Any] = [*traced.collected.traces, *traced.collected.metrics]
    sent = b"".join(each.SerializeToString() for each in messages)
    assert SECRET.encode() not in sent
    assert TOKEN.encode() not in sent
    assert all(each["authorization"] == f"Bearer {TOKEN}" for each in traced.collected.headers)
    known = {"messaging.system", "messaging.operation.type", "messaging.destination.name", "error.type"}
    for span in traced.collected.spans():
        assert all(name in known or name.startswith(("sparkonce.", "spark.")) for name in plain(span.attributes))
        assert plain(span.attributes).keys() >= IDS


def test_resources_name_the_service(traced: Traced) -> None:
    for each in traced.collected.resources():
        assert (each["service.name"], each["deployment.environment.name"]) == ("sparkonce", "test")


def test_the_listeners_metrics_arrive_by_the_names_that_prometheus_has(traced: Traced) -> None:
    metrics = {each.name: each for each in traced.collected.last_metrics()}

    def values(points: Any) -> dict[str, float]:
        return {plain(each.attributes)["query"]: number(each) for each in points}

    assert values(metrics["sparkonce_rows"].sum.data_points) == {"rows": 10, "ranges": 10}
    assert metrics["sparkonce_rows"].sum.is_monotonic
    assert values(metrics["sparkonce_query_failed"].gauge.data_points) == {"rows": 0, "ranges": 0, "refused": 1}
    assert {"sparkonce_batch_duration_seconds_count", "sparkonce_partition_lag_records"} <= metrics.keys()
