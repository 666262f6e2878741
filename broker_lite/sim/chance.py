"""Streams of chance that depend on nothing but a seed and a name: not on the process, nor on what others have drawn."""

from __future__ import annotations

import random


def stream(name: str, *numbers: int) -> random.Random:
    """Return a stream of its own for this name and these numbers, the seed first."""
    return random.Random("/".join((name, *map(str, numbers))))  # noqa: S311 - a choice that can be repeated, no secret
