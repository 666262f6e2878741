"""The part of an event loop that state machines use: implemented by asyncio's loop and by the simulator's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """The result of `Scheduler.call_later`."""

    def cancel(self) -> None:
        """Cancel the call."""


class Scheduler(Protocol):
    """Schedules callbacks; delays are in seconds."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Call after the current callback has ended."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call after a delay."""
