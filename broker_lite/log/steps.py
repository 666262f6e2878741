"""Long work is a generator that yields after each piece, so that clients can be served in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def finish(steps: Generator[object, None, Result]) -> Result:
    """Run a generator to its end; returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
