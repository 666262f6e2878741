"""The chain of offset ranges as a picture: a strip for each partition, a box for each commit's range.

Values only: start and end of each box, and what is wrong there. Boxes of consecutive commits
touch; a gap and an overlap are separate boxes. The picture shows the versions of one page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.jobs.shared.drawing import Mark, strip
from sparkonce.jobs.ui.delta.versions import VersionState
from sparkonce.offset_store.record import PartitionKey, Writes

MAX_STRIPS = 40
"""The number of partitions to draw; the sums include all."""


@dataclass(frozen=True, slots=True)
class Box:
    """A stretch of offsets of a strip."""

    kind: str
    """``range``, ``rows`` or ``offsets`` (of a commit with only one of the two), ``gap`` or ``overlap``."""
    start: int
    end: int
    version: int
    """The commit; of a gap or an overlap, the one whose range begins after or before the previous end."""
    is_odd: bool = False
    """Alternating, for two shades."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One partition of one source of one application."""

    app_id: str
    source: str
    name: str
    start: int
    end: int
    boxes: tuple[Box, ...]

    @property
    def wrong(self) -> int:
        """The number of gaps and overlaps."""
        return sum(box.kind in ("gap", "overlap") for box in self.boxes)

    @property
    def words(self) -> str:
        """Describe the picture."""
        wrong = [f"{box.kind} [{box.start}, {box.end}) at version {box.version}" for box in self.boxes if _is_bad(box)]
        commits = sum(not _is_bad(box) for box in self.boxes)
        joined = "they join without a gap or an overlap" if not wrong else "; ".join(wrong)
        return f"{self.name}: {commits} ranges from {self.start} to {self.end}; {joined}"

    @property
    def picture(self) -> str:
        """The boxes as SVG."""
        return strip(map(_mark, self.boxes), self.start, self.end, self.words)


def _mark(box: Box) -> Mark:
    title = f"{box.kind} [{box.start}, {box.end}), version {box.version}"
    kind = f"box-{box.kind}{' odd' if box.is_odd else ''}"
    return Mark(kind, title, box.start, box.end, tall=1.0 if _is_bad(box) else 0.75)


def strips(versions: Sequence[VersionState]) -> tuple[list[Strip], int]:
    """Return the strips of some versions, oldest first, and how many more there are."""
    boxes: dict[tuple[str, PartitionKey], list[Box]] = {}
    ends: dict[tuple[str, PartitionKey], int] = {}
    for state in versions:
        if state.batch is None:
            continue
        for key, extent in state.moved.items():
            owner = state.batch.record.app_id, key
            drawn = boxes.setdefault(owner, [])
            end = ends.get(owner) if Writes.OFFSETS in state.batch.writes else None
            if end is not None and extent.start > end:
                drawn.append(Box("gap", end, extent.start, state.version))
            elif end is not None and extent.start < end:
                drawn.append(Box("overlap", extent.start, min(end, extent.end), state.version))
            drawn.append(Box(_kind(state.batch.writes), extent.start, extent.end, state.version, len(drawn) % 2 == 1))
            if Writes.OFFSETS in state.batch.writes:
                ends[owner] = extent.end
    found = [_strip(owner, drawn) for owner, drawn in sorted(boxes.items())]
    found.sort(key=lambda strip: strip.wrong == 0)  # wrong ones first, otherwise in order
    return found[:MAX_STRIPS], max(len(found) - MAX_STRIPS, 0)


def _strip(owner: tuple[str, PartitionKey], drawn: Sequence[Box]) -> Strip:
    app_id, (source, tp) = owner
    start, end = min(box.start for box in drawn), max(box.end for box in drawn)
    # Overlaps are drawn last, above their boxes.
    return Strip(app_id, source, str(tp), start, end, tuple(sorted(drawn, key=lambda box: box.kind == "overlap")))


def _kind(writes: Writes) -> str:
    if writes == Writes.ROWS | Writes.OFFSETS:
        return "range"
    return "rows" if writes == Writes.ROWS else "offsets"


def _is_bad(box: Box) -> bool:
    return box.kind in ("gap", "overlap")
