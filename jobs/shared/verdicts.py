"""Verdicts on a terminal: good ones in green, wrong ones in red."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def coloured(text: str, *, good: bool, stream: TextIO | None = None) -> str:
    """Return a verdict for a stream: plain if it is no terminal, or with NO_COLOR (no-color.org)."""
    where = stream or sys.stdout
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not where.isatty():
        return text
    return f"\x1b[{32 if good else 31}m{text}\x1b[0m"
