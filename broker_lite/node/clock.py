"""Time, as a broker takes it from the machine that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of day in milliseconds since 1970, and a monotonic clock in milliseconds."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
