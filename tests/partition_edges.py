"""Dates and times at the edges of what partitions can have, in days and microseconds since 1970."""

from __future__ import annotations

import random

from sparkonce.connectors.sinks.partition_values import DATES, TIMES

_DAY_US = 86_400_000_000


def _between(first: int, last: int, count: int) -> list[int]:
    rng = random.Random(9999)
    return [rng.randint(first, last) for _ in range(count)]


DAYS = [*DATES, DATES[0] + 1, DATES[1] - 1, -1, 0, 1, -141_427, -141_428, 59, 11_016, *_between(*DATES, 20)]
"""Among them the end of the Julian calendar, leap days, and some at random."""
TIMES_US = [
    *TIMES,
    TIMES[0] + 1,
    TIMES[1] - 999_999,
    -1,
    0,
    1,
    500_000,
    -9_223_372_036_854_776,
    9_223_372_036_854_776,
    *_between(*TIMES, 20),
]
"""Among them those where nanoseconds in 64 bits end."""
FAR_DAYS = [DATES[0] - 1, DATES[0] - 367, DATES[1] + 1, -106_751_992, 106_751_991]
"""The last ones are the first and last day of Spark's timestamps."""
FAR_TIMES_US = [TIMES[0] - 1, TIMES[0] - 800 * _DAY_US, TIMES[1] + 1, -(2**63), 2**63 - 1]
