"""Whether spans and metrics are on, by OpenTelemetry's variables; off without: nothing leaves a machine unasked."""

from __future__ import annotations

import os
from collections.abc import Sequence

TRACES = "OTEL_TRACES_EXPORTER"
METRICS = "OTEL_METRICS_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"
OTLP = "otlp"
PROTOCOL = "http/protobuf"


class UnsupportedProtocolError(ValueError):
    """The environment names an unsupported protocol."""


def traces_are_on() -> bool:
    """Whether batches are traced."""
    return _is_on(TRACES)


def metrics_are_on() -> bool:
    """Whether a `LagListener` sends its metrics."""
    return _is_on(METRICS)


def check_protocol(variables: Sequence[str]) -> None:
    """Check the first of ``variables`` that is set. Raises UnsupportedProtocolError if it asks for another protocol."""
    for name in variables:
        wanted = os.environ.get(name, "").strip()
        if wanted and wanted != PROTOCOL:
            raise UnsupportedProtocolError(f"{name}={wanted}: only {PROTOCOL} is supported")
        if wanted:
            return


def _is_on(variable: str) -> bool:
    wanted = os.environ.get(variable)  # most have none, and this is called for each task
    if not wanted or os.environ.get(DISABLED, "").strip().lower() == "true":
        return False
    return OTLP in (each.strip().lower() for each in wanted.split(","))
