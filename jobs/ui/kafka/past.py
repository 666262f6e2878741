"""Earlier end offsets of logs, their growth and when an offset was written; and trends of lags."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter

from sparkonce.offset_store.group import Slot

SPACING_S = 1.0
MAX_MOMENTS = 300
HISTORY_S = MAX_MOMENTS * SPACING_S
"""How far back the time of an offset is known, except in very large clusters."""
MIN_MOMENTS = 15
MAX_ENTRIES = 400_000
"""Number of times multiplied by partitions: for a very large cluster the history is shorter."""

Ends = Mapping[Slot, int]
UNKNOWN = -1
"""The end of an existing partition whose leader did not answer: it does not begin at 0."""


class EndOffsetHistory:
    """The end offsets of all logs at intervals of about a second, and the newest ones; only one thread may write."""

    def __init__(self) -> None:
        self._moments: tuple[tuple[float, Ends], ...] = ()

    def note(self, now_s: float, ends: Ends) -> None:
        """Add the current end offsets."""
        kept = self._moments
        if len(kept) >= 2 and kept[-1][0] - kept[-2][0] < SPACING_S:
            kept = kept[:-1]
        most = min(MAX_MOMENTS, max(MIN_MOMENTS, MAX_ENTRIES // max(len(ends), 1)))
        self._moments = (*kept[-most + 1 :], (now_s, ends))

    def before(self, now_s: float, age_s: float) -> tuple[float, Ends]:
        """Return the end offsets of about ``age_s`` ago, or the oldest ones, and their age in seconds."""
        moments = self._moments
        at = max(bisect_right(moments, now_s - age_s, key=itemgetter(0)) - 1, 0)
        return (now_s - moments[at][0], moments[at][1]) if moments else (0.0, {})

    def written_at(self, slot: Slot, offset: int) -> float | None:
        """Return about when this offset was written; None if before the history, or in the future."""
        moments = self._moments
        after = bisect_right(moments, offset, key=lambda moment: moment[1].get(slot, -1))
        if after in (0, len(moments)):
            return None
        (then_s, then), (now_s, now) = moments[after - 1], moments[after]
        begin = then.get(slot, 0)  # a topic that did not exist yet began at 0
        if begin == UNKNOWN:
            return None
        return then_s + (now_s - then_s) * (offset - begin + 1) / (now[slot] - begin)


POINT_S = 2.0
"""The interval between two points of a trend."""
MAX_POINTS = 150
GAP_S = 5 * POINT_S
"""Nobody has looked for so long: what was before is no part of a trend."""


class Trends:
    """Values over time by name, such as the lag of each group; thread-safe."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, int]]] = {}
        self._lock = threading.Lock()

    def note(self, name: str, value: int) -> tuple[tuple[float, int], ...]:
        """Return earlier values and this one, with seconds of a monotonic clock."""
        now_s = time.monotonic()
        with self._lock:
            points = self._points.setdefault(name, deque(maxlen=MAX_POINTS))
            if points and now_s - points[-1][0] < POINT_S:
                return (*points, (now_s, value))
            usual_s = points[-1][0] - points[-2][0] if len(points) > 1 else 0.0  # a look may take long
            if points and now_s - points[-1][0] > max(GAP_S, 3 * usual_s):
                points.clear()
            points.append((now_s, value))
            return tuple(points)

    def keep(self, names: Collection[str]) -> None:
        """Forget all other names."""
        with self._lock:
            for gone in self._points.keys() - names:
                del self._points[gone]


TREND_S = 30.0
"""The time span of a trend: a longer one would hide it behind earlier bursts."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the change per second over the last `TREND_S`: that of the lows or of the highs, whichever is less.

    A lag goes up between two batches and down with each: only if the lows and the highs of the second half are above
    those of the first does it grow. Of a query with a batch a minute, this span has too little to tell.
    """
    points = [each for each in points if each[0] >= points[-1][0] - TREND_S]
    if len(points) < 2 or points[-1][0] - points[0][0] < TREND_S / 2:
        return 0.0
    before, after = points[: len(points) // 2], points[-(len(points) // 2) :]
    apart_s = after[0][0] - before[0][0]
    if not apart_s:
        return 0.0
    low, high = (
        (most(value for _, value in after) - most(value for _, value in before)) / apart_s for most in (min, max)
    )
    return 0.0 if low * high <= 0 else min(low, high, key=abs)
