"""Helpers for the texts of messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 batch", "2,000 batches"."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first few names: "a, b, c, …"."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
