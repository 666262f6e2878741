"""Whether spans and metrics are wanted: as OpenTelemetry's own variables say, which every process inherits.

OpenTelemetry takes ``otlp`` where a variable is missing. Here that means off: nothing leaves a machine unasked.
"""

from __future__ import annotations

import os

TRACES = "OTEL_TRACES_EXPORTER"
METRICS = "OTEL_METRICS_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"
OTLP = "otlp"


def traces_are_on() -> bool:
    """Whether batches are traced."""
    return _is_on(TRACES)


def metrics_are_on() -> bool:
    """Whether a `LagListener` sends its metrics."""
    return _is_on(METRICS)


def _is_on(variable: str) -> bool:
    wanted = os.environ.get(variable)  # most have none, and this is asked for each task
    if not wanted or os.environ.get(DISABLED, "").strip().lower() == "true":
        return False
    return OTLP in (each.strip().lower() for each in wanted.split(","))
