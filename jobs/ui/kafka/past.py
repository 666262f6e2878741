"""Where the logs ended at earlier looks: how fast they grow, and when an offset was written.

Pure: time is passed in, in seconds of a monotonic clock. Readers may be in other threads than the one writer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from sparkonce.offset_store.group import Slot

SPACING_S = 1.0
MAX_MOMENTS = 300
MIN_MOMENTS = 15
MAX_ENTRIES = 400_000
"""Moments times partitions: of a cluster with very many partitions less of the past is kept."""

Ends = Mapping[Slot, int]
UNKNOWN = -1
"""In place of the end of a partition that is there and whose leader did not answer: not one that begins at 0."""


class Past:
    """The ends of all logs at moments about a second apart, and at the newest one."""

    def __init__(self) -> None:
        self._moments: tuple[tuple[float, Ends], ...] = ()

    def note(self, now_s: float, ends: Ends) -> None:
        """Add where the logs end now."""
        kept = self._moments
        if len(kept) >= 2 and kept[-1][0] - kept[-2][0] < SPACING_S:
            kept = kept[:-1]
        most = min(MAX_MOMENTS, max(MIN_MOMENTS, MAX_ENTRIES // max(len(ends), 1)))
        self._moments = (*kept[-most + 1 :], (now_s, ends))

    def before(self, now_s: float, age_s: float) -> tuple[float, Ends]:
        """Return the ends about ``age_s`` ago, or the oldest that are known, and how many seconds ago that was."""
        moments = self._moments
        at = max(bisect_right(moments, now_s - age_s, key=_moment) - 1, 0)
        return (now_s - moments[at][0], moments[at][1]) if moments else (0.0, {})

    def written_at(self, slot: Slot, offset: int) -> float | None:
        """Return about when this offset was written; None if that was before the past that is known, or is to come."""
        moments = self._moments
        after = bisect_right(moments, offset, key=lambda moment: moment[1].get(slot, -1))
        if after in (0, len(moments)):
            return None
        (then_s, then), (now_s, now) = moments[after - 1], moments[after]
        begin = then.get(slot, 0)  # a topic that was not there yet began at 0
        if begin == UNKNOWN:
            return None
        return then_s + (now_s - then_s) * (offset - begin + 1) / (now[slot] - begin)


def _moment(moment: tuple[float, Ends]) -> float:
    return moment[0]


TREND_S = 30.0
"""How much of the past says where a value is going: what was before a burst, or since, would hide it."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much the value changes in a second, by a line through the last `TREND_S` (least squares)."""
    points = [each for each in points if each[0] >= points[-1][0] - TREND_S]
    if len(points) < 2:
        return 0.0
    mean_s = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - mean_s) ** 2 for at, _ in points)
    return sum((at - mean_s) * (value - mean) for at, value in points) / spread if spread else 0.0
