"""Helpers for the texts of messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 batch", "2,000 batches"."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"
