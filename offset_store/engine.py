"""What this product calls itself in the ``engineInfo`` of its commits."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def engine_info() -> str:
    """Return its name and version."""
    return f"sparkonce/{version('sparkonce')}"
