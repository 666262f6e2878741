"""Intervals in table properties, such as ``interval 30 days``, read as Spark reads them (`IntervalUtils`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache

DAY_MS = 24 * 60 * 60 * 1000
_UNITS_US = {
    "week": 7 * DAY_MS * 1000,
    "day": DAY_MS * 1000,
    "hour": 60 * 60 * 1_000_000,
    "minute": 60 * 1_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_PART = re.compile(rf"([+-])?\s*(\d*)(?:\.(\d{{0,9}}))?\s+({'|'.join(_UNITS_US)})s?(?:\s+|$)")

logger = logging.getLogger(__name__)


def retention_ms(properties: Mapping[str, str], name: str, default: str) -> int | None:
    """Return a retention that a table's property says; None, and a warning once, if it says nothing understandable."""
    text = properties.get(name, default)
    try:
        return interval_ms(text)
    except ValueError as error:
        _warn_once(name, str(error))
        return None


@cache
def _warn_once(name: str, why: str) -> None:
    logger.warning("nothing expires by the table property %s: %s", name, why)


def interval_ms(text: str) -> int:
    """Return how many milliseconds an interval is; the word ``interval`` before it is optional, as in Delta.

    Raises:
        ValueError: if it cannot be read, is negative, or has months or years, which have no fixed length.
    """
    rest = text.strip().lower()
    rest = re.sub(r"^interval\s+", "", rest)
    total, position = 0, 0
    while position < len(rest):
        found = _PART.match(rest, position)
        if found is None or not (found[2] or found[3]) or (found[3] is not None and found[4] != "second"):
            break
        value = int(found[2] or 0) * _UNITS_US[found[4]] + int((found[3] or "").ljust(6, "0")[:6])
        total += -value if found[1] == "-" else value
        position = found.end()
    if not rest or position < len(rest) or total < 0:
        raise ValueError(f"{text!r} is no interval of weeks, days, hours, minutes or seconds")
    return total // 1000
