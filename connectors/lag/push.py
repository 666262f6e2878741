"""The listener's metrics, sent to an OpenTelemetry collector at an interval.

They are those of `/metrics`, by the same names, so that what is written for one works with the other: Prometheus, when
it receives OTLP, adds ``_total`` to the names of counters, which have it there. Buckets, count and sum of a histogram
are no counters here, since their names must stay as they are.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from prometheus_client import Metric as Family

from sparkonce.connectors.telemetry.otlp import quieten, resource, scope
from sparkonce.connectors.telemetry.switches import check_protocol

INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_INTERVAL_MS = 60_000
STOP_S = 2.0
"""How long `MetricsPush.stop` waits for the last metrics to be sent."""
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_log = logging.getLogger(__name__)


class MetricsPush:
    """Sends the result of ``collect``, in a separate thread, at an interval and when it is stopped."""

    def __init__(self, collect: Callable[[], Iterable[Family]]) -> None:
        """Start. Raises ValueError if the environment names another protocol, or an invalid interval."""
        check_protocol(_PROTOCOLS)
        self._interval_s = _interval_ms() / 1000
        self._collect = collect
        quieten()
        self._exporter, self._resource, self._scope = OTLPMetricExporter(), resource(), scope()
        self._started_ns = time.time_ns()
        self._has_failed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkonce-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send the last metrics, and stop; it does not wait long for a collector."""
        self._stopping.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        try:
            sent = self._exporter.export(self._data()) is MetricExportResult.SUCCESS
        except Exception as error:  # such as an invalid address
            sent = False
            _log.debug("metrics cannot be sent: %r", error)
        if not sent and not self._has_failed:
            _log.warning("metrics cannot be sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT; trying again")
        self._has_failed = not sent

    def _data(self) -> MetricsData:
        now_ns = time.time_ns()
        metrics = [metric for family in self._collect() for metric in _metrics(family, self._started_ns, now_ns)]
        return MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(self._scope, metrics, "")], "")])


def _metrics(family: Family, start_ns: int, now_ns: int) -> Iterator[Metric]:
    """Yield the metrics of a Prometheus family: one for each name of its samples, without creation times."""
    by_name: dict[str, list[NumberDataPoint]] = {}
    for sample in family.samples:
        if not sample.name.endswith("_created"):
            points = by_name.setdefault(sample.name, [])
            points.append(NumberDataPoint(dict(sample.labels), start_ns, now_ns, sample.value))
    for name, points in by_name.items():
        if family.type == "counter":
            counted = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            yield Metric(name.removesuffix("_total"), family.documentation, "", counted)
        else:
            yield Metric(name, family.documentation, "", Gauge(points))


def _interval_ms() -> int:
    text = os.environ.get(INTERVAL, "").strip()
    if text and not (text.isdecimal() and int(text) > 0):
        raise ValueError(f"{INTERVAL}={text}: a number of milliseconds is needed")
    return int(text) if text else DEFAULT_INTERVAL_MS
