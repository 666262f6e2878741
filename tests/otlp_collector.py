"""A collector of OpenTelemetry for tests: receives OTLP over HTTP as Protobuf, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def plain(attributes: Any) -> dict[str, Any]:
    """Return the attributes of a message."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def number(point: Any) -> float:
    """Return the value of a point."""
    return float(getattr(point, point.WhichOneof("value")))


class Collector:
    """What was received."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers: list[dict[str, str]] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self._changed = threading.Condition()

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._changed:
            self.headers.append(headers)
            if path == "/v1/traces":
                self.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                assert path == "/v1/metrics"
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self._changed.notify_all()

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float) -> None:
        """Wait for what is received."""
        with self._changed:
            assert self._changed.wait_for(is_there, timeout_s)

    def spans(self) -> list[Any]:
        """Return all spans so far."""
        return [
            span for each in self.traces for of in each.resource_spans for by in of.scope_spans for span in by.spans
        ]

    def resources(self) -> list[dict[str, Any]]:
        """Return what the spans and metrics are of."""
        parts = [of for each in self.traces for of in each.resource_spans]
        return [plain(of.resource.attributes) for of in parts]

    def last_metrics(self) -> list[Any]:
        """Return the metrics of the last request."""
        return [metric for of in self.metrics[-1].resource_metrics for by in of.scope_metrics for metric in by.metrics]


@contextmanager
def collector() -> Iterator[Collector]:
    """Run one on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.receive(self.path, {name.lower(): text for name, text in self.headers.items()}, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
