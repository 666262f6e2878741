"""Time, as a broker takes it from the machine that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Both times, in milliseconds: since 1970, and of a clock that never goes back."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
