"""The only module that imports OpenTelemetry's packages (extra ``otel``): spans and resources in its own types.

Its exporter reads the collector's address and credentials from ``OTEL_EXPORTER_OTLP_*``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from sparkonce.connectors.telemetry.spans import Span
from sparkonce.connectors.telemetry.switches import check_protocol

SERVICE = "sparkonce"
_UNNAMED = "unknown_service"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def scope() -> InstrumentationScope:
    """Return the instrumentation scope of spans and metrics."""
    return InstrumentationScope(SERVICE, version(SERVICE))


def resource() -> Resource:
    """Return the resource: ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES``, else our name."""
    found = Resource.create()
    unnamed = str(found.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED)
    return found.merge(Resource({SERVICE_NAME: SERVICE})) if unnamed else found


def quieten() -> None:
    """Keep the exporter from logging each failure with a stack trace: `export` logs it once."""
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)


def connect() -> Callable[[Sequence[Span]], bool]:
    """Return a function that sends spans and returns whether it did. Raises UnsupportedProtocolError."""
    check_protocol(_PROTOCOLS)
    quieten()
    exporter, of, by = OTLPSpanExporter(), resource(), scope()
    return lambda spans: exporter.export([_readable(each, of, by) for each in spans]) is SpanExportResult.SUCCESS


def _readable(span: Span, of: Resource, by: InstrumentationScope) -> ReadableSpan:
    context = SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    parent = None
    if span.parent_id is not None:
        parent = SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    failed = {} if span.error is None else {"error.type": span.error}
    return ReadableSpan(
        span.name,
        context,
        parent,
        of,
        {**span.attributes, **failed},
        status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR),
        start_time=span.interval.start_ns,
        end_time=span.interval.end_ns,
        instrumentation_scope=by,
    )
