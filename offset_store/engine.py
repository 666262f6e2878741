"""What this product calls itself in the ``engineInfo`` of its commits."""

from __future__ import annotations

from functools import cache


@cache
def engine_info() -> str:
    """Return its name and version."""
    from sparkonce import __version__

    return f"sparkonce/{__version__}"
