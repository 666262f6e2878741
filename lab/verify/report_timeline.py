"""The timeline of one cell: a lane for each part of the pipeline, a mark for each event.

A mark's number refers to the line of the table below. Rows and offsets, the two writes, have different shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lab.verify.cells import Moment
from sparkonce.jobs.shared import drawing
from sparkonce.jobs.shared.drawing import Mark

LANES = ("pipeline", "commit", "fault", "broker", "checkpoint")
TICKS = 5
LEAST_S = 0.1
"""The minimal time span of the whole width."""

TIMELINE_STYLE = """
.lanes .rows { fill: var(--commit) } .lanes .offsets { fill: none; stroke: var(--commit); stroke-width: 2.5 }
.lanes .pipeline, .lanes .broker { stroke: var(--good); stroke-width: 3 }
.lanes .checkpoint { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 2 2 }
.lanes .crash { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 5 3 }
.lanes .fault { fill: none; stroke: var(--bad); stroke-width: 3 }
"""


def timeline(moments: Sequence[Moment]) -> str:
    """Return the picture as SVG; a lane that is not one of `LANES` is an error of the caller."""
    last_s = max([LEAST_S, *(moment.at_s for moment in moments)])
    marks = [mark for number, moment in enumerate(_ordered(moments), 1) for mark in _marks(number, moment)]
    ticks = [f"{last_s * tick / TICKS:.1f} s" for tick in range(TICKS + 1)]
    return drawing.timeline(LANES, marks, ticks, "Timeline of the pipeline, its commits and the crash", last_s)


def steps(moments: Sequence[Moment]) -> Iterable[Sequence[str]]:
    """Yield the lines of the picture's table."""
    for number, moment in enumerate(_ordered(moments), 1):
        yield str(number), f"{moment.at_s:.2f}", moment.lane, moment.what


def _ordered(moments: Sequence[Moment]) -> list[Moment]:
    return sorted(moments, key=lambda moment: moment.at_s)


def _marks(number: int, moment: Moment) -> Iterable[Mark]:
    title, lane = f"{number}: {moment.at_s:.2f} s: {moment.what}", LANES.index(moment.lane)
    forms = [(moment.lane, "cross" if moment.lane == "fault" else "line")]
    if moment.lane == "commit":
        forms = [each for each in (("rows", "square"), ("offsets", "circle")) if each[0] in moment.what] or forms
    if moment.lane == "fault":
        yield Mark("crash", title, moment.at_s)
    for place, (kind, form) in enumerate(forms):
        yield Mark(kind, title, moment.at_s, lane=lane, form=form, sign="" if place else str(number))
