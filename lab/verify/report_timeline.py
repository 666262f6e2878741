"""The timeline of one cell: a lane for each part of the pipeline, a numbered mark for each event.

A mark's position is its time; its number is beside it, moved where marks are closer than their numbers are wide, and
refers to the line of the table below. Rows and offsets, the two writes, have different shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from lab.verify.cells import Moment

LANES = ("pipeline", "commit", "fault", "broker", "checkpoint")
LEFT, WIDTH, LANE_HEIGHT, TOP, BOTTOM, RIGHT = 84, 700, 30, 6, 24, 16
NUMBER_GAP = 16
"""Pixels from one number to the next on a lane."""
TICKS = 5
LEAST_S = 0.1
"""The minimal time span of the whole width."""

TIMELINE_STYLE = """
.timeline { display: block; min-width: 560px; max-width: 800px; width: 100%; height: auto }
.timeline .rows { fill: var(--commit) } .timeline .offsets { fill: none; stroke: var(--commit); stroke-width: 2.5 }
.timeline .pipeline, .timeline .broker { stroke: var(--good); stroke-width: 3 }
.timeline .checkpoint { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 2 2 }
.timeline .crash { stroke: var(--kill); stroke-width: 1.5; stroke-dasharray: 5 3 }
.timeline .fault { stroke: var(--kill); stroke-width: 3 }
"""


def timeline(moments: Sequence[Moment]) -> str:
    """Return the picture as SVG; a lane that is not one of `LANES` is an error of the caller."""
    ordered = _ordered(moments)
    last_s = max((moment.at_s for moment in ordered), default=0.0)
    scale = WIDTH / max(last_s, LEAST_S)
    bottom = TOP + LANE_HEIGHT * len(LANES)
    parts = [
        f'<svg class="timeline" viewBox="0 0 {LEFT + WIDTH + RIGHT} {bottom + BOTTOM}" role="img" '
        'aria-label="Timeline of the pipeline, its commits and the crash">',
        *_grid(max(last_s, LEAST_S), bottom),
    ]
    places = [LEFT + moment.at_s * scale for moment in ordered]
    number_places = _apart(ordered, places)
    for number, moment in enumerate(ordered, 1):
        parts.append(_mark(number, moment, places[number - 1], number_places[number - 1], bottom))
    return "\n".join([*parts, "</svg>"])


def steps(moments: Sequence[Moment]) -> Iterable[Sequence[str]]:
    """Yield the lines of the picture's table."""
    for number, moment in enumerate(_ordered(moments), 1):
        yield str(number), f"{moment.at_s:.2f}", moment.lane, moment.what


def _ordered(moments: Sequence[Moment]) -> list[Moment]:
    return sorted(moments, key=lambda moment: moment.at_s)


def _apart(moments: Sequence[Moment], places: Sequence[float]) -> list[float]:
    """Return positions of the numbers: near their marks, without overlaps, and within the picture."""
    moved = list(places)
    for lane in LANES:
        chosen = [position for position, moment in enumerate(moments) if moment.lane == lane]
        at_least = 0.0
        for position in chosen:
            moved[position] = max(moved[position], at_least)
            at_least = moved[position] + NUMBER_GAP
        at_most = float(LEFT + WIDTH)
        for position in reversed(chosen):
            moved[position] = min(moved[position], at_most)
            at_most = moved[position] - NUMBER_GAP
    return moved


def _grid(last_s: float, bottom: float) -> Iterable[str]:
    for number, lane in enumerate(LANES):
        y = TOP + LANE_HEIGHT * number
        yield f'<text x="0" y="{y + LANE_HEIGHT / 2 + 4}">{lane}</text>'
        yield f'<line class="grid" x1="0" x2="{LEFT + WIDTH}" y1="{y + LANE_HEIGHT}" y2="{y + LANE_HEIGHT}"/>'
    for tick in range(TICKS + 1):
        x = LEFT + WIDTH * tick / TICKS
        seconds = f"{last_s * tick / TICKS:.1f} s"
        yield f'<text class="soft" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{seconds}</text>'


def _mark(number: int, moment: Moment, x: float, number_x: float, bottom: float) -> str:
    y = TOP + LANE_HEIGHT * LANES.index(moment.lane)
    middle = y + LANE_HEIGHT / 2 + 5
    title = f"<title>{number}: {moment.at_s:.2f} s: {escape(moment.what)}</title>"
    shapes = list(_shapes(moment, x, middle))
    if moment.lane == "fault":
        shapes.insert(0, f'<line class="crash" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
    label = f'<text class="soft" x="{number_x:.1f}" y="{y + 11}" text-anchor="middle">{number}</text>'
    return f"<g>{title}{''.join(shapes)}{label}</g>"


def _shapes(moment: Moment, x: float, middle: float) -> Iterable[str]:
    if moment.lane == "commit":
        if "rows" in moment.what:
            yield f'<rect class="rows" x="{x - 5:.1f}" y="{middle - 5:.1f}" width="10" height="10"/>'
        if "offsets" in moment.what:
            yield f'<circle class="offsets" cx="{x:.1f}" cy="{middle:.1f}" r="8"/>'
    elif moment.lane == "fault":
        for rise in (5, -5):
            ends = f'x1="{x - 5:.1f}" x2="{x + 5:.1f}" y1="{middle - rise:.1f}" y2="{middle + rise:.1f}"'
            yield f'<line class="fault" {ends}/>'
    else:
        ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 7:.1f}" y2="{middle + 7:.1f}"'
        yield f'<line class="{moment.lane}" {ends}/>'
