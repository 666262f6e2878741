"""A listener's metrics on their way to a collector."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkonce import BatchCounts, LagListener, PartitionLag, SourceLag
from sparkonce.connectors.lag.push import MetricsPush
from sparkonce.connectors.lag.state import Batch, LagState
from tests.otlp_collector import collector, number, plain


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> LagListener:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    state = LagState()
    source = SourceLag(0, "kafka", "d", 1, (PartitionLag("t", 0, 1, 2),), 1, 1, 1, 1)
    state.progressed(Batch("q", "r", "name", 0, 1, 1, (source,), BatchCounts(read_bytes=1)), 0)
    streams = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
    return LagListener(SimpleNamespace(streams=streams), state, lambda: 0.0)  # type: ignore[arg-type]


def by_name_in_prometheus(metrics: list[Any]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for metric in metrics:
        is_counter = metric.HasField("sum")
        for point in (metric.sum if is_counter else metric.gauge).data_points:
            labels = tuple(sorted(plain(point.attributes).items()))
            found[metric.name + ("_total" if is_counter else ""), labels] = number(point)
    return found


def test_what_prometheus_makes_of_them_is_what_it_scrapes(
    listener: LagListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.url)
        with listener.start(port=None):
            pass
    scraped = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(listener.metrics_text())
        for sample in family.samples
    }
    assert by_name_in_prometheus(collected.last_metrics()) == scraped


def test_they_are_sent_at_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.url)
        push = MetricsPush(list)
        try:
            collected.wait_for(lambda: len(collected.metrics) >= 3, 30)
        finally:
            push.stop()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "OTEL_METRIC_EXPORT_INTERVAL=soon: a number of milliseconds"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: only http/protobuf"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(
    listener: LagListener, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said):
        listener.start(port=None)
    monkeypatch.delenv("OTEL_METRICS_EXPORTER")
    with listener.start(port=None):
        pass


def test_without_the_extra_the_error_names_it(listener: LagListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sparkonce.connectors.lag.push", None)
    with pytest.raises(ImportError, match=r"pip install 'sparkonce\[otel\]'"):
        listener.start(port=0)
    assert listener._server is None, "it serves nothing"


def test_a_collector_that_is_gone_does_not_matter(
    listener: LagListener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "no address")
    with listener.start(port=None):
        pass
    assert "metrics cannot be sent" in caplog.text
