"""Durations as Spark's options write them: ``15m``, ``500ms``; a number alone is milliseconds."""

from __future__ import annotations

import re

_UNIT_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def milliseconds(text: str) -> int:
    """Read a duration as Spark's ``JavaUtils.timeStringAsMs`` does, and return whole milliseconds."""
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    unit = found and _UNIT_MICROSECONDS.get(found[2] or "ms")
    if not found or not unit:
        raise ValueError(
            "expected a time in seconds (s), milliseconds (ms), microseconds (us), minutes (m or min), hours (h) or "
            "days (d), such as 50s, 100ms or 15m"
        )
    return int(found[1]) * unit // 1_000
