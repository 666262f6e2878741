"""The part of an event loop that is used by what knows of no event loop: asyncio's has it, and so has a simulator's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What `Scheduler.call_later` returns."""

    def cancel(self) -> None:
        """Cancel the call."""


class Scheduler(Protocol):
    """What calls back; delays are in seconds."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Call when whatever runs now has ended."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call after a delay."""
